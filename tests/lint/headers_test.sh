#!/usr/bin/env bash
# headers_test.sh WORK_DIR: the target that `./dev lint headers` builds catches a public header that
# does not compile on its own. The planted project declares its layer as Tessera's are declared.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

work="$1/headers"
rm -rf -- "$work"
mkdir -p "$work/include/tessera/base"
cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES CXX)
include("$here/../../cmake/TesseraFlags.cmake")
include("$here/../../cmake/TesseraTargets.cmake")
tessera_add_library(planted)
tessera_add_layer(tessera_planted base HEADERS planted.h SOURCES planted.cpp)
CMAKE
# The source includes what the header forgot, so that the library itself compiles either way.
printf '#include <string>\n\n#include "tessera/base/planted.h"\n' >"$work/planted.cpp"
header="$work/include/tessera/base/planted.h"
verify=(cmake --build "$work/build" --target all_verify_interface_header_sets)

printf '#pragma once\n\nstd::string name();\n' >"$header"
expect_pass cmake -S "$work" -B "$work/build" -G Ninja
expect_pass cmake --build "$work/build"
expect_fail any "${verify[@]}"
expect_output "tessera/base/planted.h:3:" "error:"

printf '#pragma once\n#include <string>\nstd::string name();\n' >"$header"
expect_pass "${verify[@]}"
