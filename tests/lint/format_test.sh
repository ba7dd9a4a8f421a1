#!/usr/bin/env bash
# format_test.sh WORK_DIR: `./dev lint format` catches a file that is not formatted.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

root="$here/../.."
work="$1/format"
rm -rf -- "$work"
mkdir -p "$work/src/tessera/base"
cp "$root/.clang-format" "$work"
file="$work/src/tessera/base/planted.cpp"

cat >"$file" <<'GOOD'
#include "tessera/base/planted.h"

#include <vector>

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include "tessera/base/check.h"

int answer(const int* pointer) { return *pointer; }
GOOD
expect_pass "$root/tools/lint/check_format.sh" "$work"
cp "$file" "$work/good"

printf 'int badly( int  *pointer ) ;\n' >>"$file"
expect_fail any "$root/tools/lint/check_format.sh" "$work"
expect_output "planted.cpp:12:" "code should be clang-formatted"

# Includes out of their groups: torch before the standard library.
{
  printf '#include <ATen/core/Tensor.h>\n#include <vector>\n'
} >"$file"
expect_fail any "$root/tools/lint/check_format.sh" "$work"
expect_output "planted.cpp:1:"

expect_pass "$root/tools/lint/check_format.sh" --fix "$work"
expect_pass "$root/tools/lint/check_format.sh" "$work"
