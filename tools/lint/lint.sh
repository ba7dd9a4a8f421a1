#!/usr/bin/env bash
# Runs the checks named (format, includes, headers, tidy), or all. `./dev lint` calls this.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
build="$root/build/tidy"
jobs="${TESSERA_JOBS:-2}"

configure() { (cd "$root" && cmake --preset tidy >/dev/null); }

run_check() {
  case "$1" in
    format) "$here/check_format.sh" "$root" ;;
    includes) python3 "$here/check_includes.py" "$root" ;;
    headers)
      configure && cmake --build "$build" --parallel "$jobs" --target all_verify_interface_header_sets
      ;;
    tidy) configure && python3 "$here/check_tidy.py" "$root" "$build" "$jobs" ;;
    *)
      echo "lint: unknown check '$1'; there are format, includes, headers, tidy" >&2
      return 2
      ;;
  esac
}

main() {
  local check failed=()
  [[ $# -gt 0 ]] || set -- format includes headers tidy
  for check in "$@"; do
    echo "lint: checking $check"
    run_check "$check" || failed+=("$check")
  done
  if [[ ${#failed[@]} -gt 0 ]]; then
    echo "lint: failed: ${failed[*]}" >&2
    exit 1
  fi
  echo "lint: all clean: $*"
}

main "$@"
