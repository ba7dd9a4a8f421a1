# shellcheck shell=bash
# Sourced by the checks: what is ours, and which clang tool reads it.

# Prints the files below the folders of ROOT that match, each ended by a NUL: find_sources ROOT
# "FOLDER..." "GLOB...".
find_sources() {
  local root="$1" folder glob
  for folder in $2; do
    [[ -d "$root/$folder" ]] || continue
    for glob in $3; do
      find "$root/$folder" -type f -name "$glob" -print0
    done
  done | sort -z
}

# Prints the name of a clang tool, version 14 before any other, as the configuration is written for it.
clang_tool() {
  command -v "$1-14" || command -v "$1" || {
    echo "lint: $1 is not installed; run ./dev setup" >&2
    return 1
  }
}
