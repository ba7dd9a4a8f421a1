#!/usr/bin/env bash
# check_tidy.sh ROOT BUILD_DIR [JOBS]: clang-tidy has nothing to say about the sources below ROOT,
# compiled as BUILD_DIR/compile_commands.json says. Headers are checked where sources include them.
set -euo pipefail
# shellcheck source=sources.sh
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

tool="$(clang_tool clang-tidy)"

# clang-tidy goes on with its defaults when it cannot read its configuration.
config_errors="$(cd "$1" && "$tool" --dump-config 2>&1 >/dev/null)"
if [[ -n "$config_errors" ]]; then
  printf 'lint: clang-tidy cannot read its configuration:\n%s\n' "$config_errors" >&2
  exit 1
fi

# Prints our sources among those that the build compiles, each ended by a NUL.
compiled_sources() {
  python3 - "$1" "$2/compile_commands.json" <<'PYTHON'
import json, pathlib, sys
root, database = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
folders = [root / name for name in ("src", "tools", "bench", "tests", "examples")]
files = sorted({pathlib.Path(entry["file"]).resolve() for entry in json.loads(database.read_text())})
print(end="".join(f"{file}\0" for file in files if any(f in file.parents for f in folders)))
PYTHON
}

# On stderr it counts the warnings that it suppressed in other people's headers: of no interest.
compiled_sources "$1" "$2" |
  xargs -0 --no-run-if-empty -n 1 -P "${3:-2}" "$tool" -p "$2" --quiet \
    --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings\? generated' >&2)
