#!/usr/bin/env bash
# wrong_torch_test.sh BUILD_DIR: configuring with a libtorch of another version, or with none, stops
# with a sentence that says what was found, where, what is needed and what to do.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

unset TESSERA_TORCH CMAKE_PREFIX_PATH
work="$1/tests/install/wrong_torch"
rm -rf -- "$work"

# make_libtorch FOLDER VERSION: a package that is nothing but its name and version.
make_libtorch() {
  mkdir -p "$1/share/cmake/Torch"
  printf 'set(PACKAGE_VERSION "%s")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n' "$2" \
    >"$1/share/cmake/Torch/TorchConfigVersion.cmake"
  printf 'add_library(torch INTERFACE IMPORTED)\n' >"$1/share/cmake/Torch/TorchConfig.cmake"
}

configure() {
  cmake -S "$here/../.." -B "$work/build" -G Ninja -DTESSERA_BUILD_TESTS=OFF \
    -DTESSERA_BUILD_BENCH=OFF "$@"
}

remedy="run \`./dev setup\`, or set TESSERA_TORCH to the folder of a libtorch 2.13."
for version in 2.12.1 2.14.0 2.130.0 1.13.1; do
  make_libtorch "$work/$version" "$version"
  expect_fail any configure -DTESSERA_TORCH="$work/$version"
  expect_output "Tessera needs libtorch 2.13, but found libtorch $version in" "$remedy"
  expect_output "$work/$version/share/cmake/Torch; "
done

expect_fail any configure -DTESSERA_TORCH= -DCMAKE_PREFIX_PATH="$work/2.12.1"
expect_output "found libtorch 2.12.1"

mkdir "$work/empty"
expect_fail any configure -DTESSERA_TORCH="$work/empty"
expect_output "Tessera needs libtorch 2.13, but no libtorch was found in" "$remedy"

for version in 2.13.0 2.13.4 2.13.0+cpu; do
  make_libtorch "$work/$version" "$version"
  expect_pass configure -DTESSERA_TORCH="$work/$version"
done
