#!/usr/bin/env bash
# check_format.sh [--fix] ROOT: every C++ file below ROOT is as clang-format would write it.
set -euo pipefail
# shellcheck source=sources.sh
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

mode=(--dry-run --Werror)
if [[ "${1:-}" == --fix ]]; then
  mode=(-i)
  shift
fi
tool="$(clang_tool clang-format)"
find_sources "$1" "include src tests bench tools examples python" "*.h *.cpp" |
  xargs -0 --no-run-if-empty "$tool" --style=file "${mode[@]}"
