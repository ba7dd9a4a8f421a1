#!/usr/bin/env bash
# check_format.sh [--fix] ROOT: every C++ file below ROOT is as clang-format would write it.
set -euo pipefail

mode=(--dry-run --Werror)
if [[ "${1:-}" == --fix ]]; then
  mode=(-i)
  shift
fi

# Version 14 before any other, as the configuration is written for it.
tool="$(command -v clang-format-14 || command -v clang-format)" || {
  echo "lint: clang-format is not installed; run ./dev setup" >&2
  exit 1
}

folders=()
for name in include src tests bench tools examples python; do
  if [[ -d "$1/$name" ]]; then folders+=("$1/$name"); fi
done
find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cpp' \) -print0 |
  sort -z | xargs -0 --no-run-if-empty "$tool" --style=file "${mode[@]}"
