#!/usr/bin/env bash
# install_test.sh BUILD_DIR {core|tessera}: installs BUILD_DIR, moves the installation elsewhere, and
# builds and runs a project that uses that component of it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

build="$1"
component="$2"
work="$build/tests/install/$component"
rm -rf -- "$work"
mkdir -p "$work"

build_consumer() {
  expect_pass cmake -S "$here/consumer" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$work/moved prefix" -DCONSUMER="$component" "$@"
  expect_pass cmake --build "$work/build"
  expect_pass "$work/build/consumer"
}

expect_pass cmake --install "$build" --prefix "$work/prefix"
mv "$work/prefix" "$work/moved prefix"
if output="$(grep -rlF -e "$build" -e "$work/prefix" "$work/moved prefix"/lib*/cmake)"; then
  fail "the installed package names a folder of the build"
fi

if [[ "$component" == core ]]; then
  # An empty folder instead of a libtorch: core must not look for one.
  export TESSERA_TORCH="$work"
  build_consumer
  expect_output "[0, 2) [2, 4) [4, 5) [5, 5)"
  expect_fail any cmake -S "$here/consumer" -B "$work/build" -DCONSUMER=tessera
  expect_output "Tessera needs libtorch 2.13, but no libtorch was found in TESSERA_TORCH=$work" \
    "COMPONENTS core gives tessera::core, which needs no libtorch"
else
  build_consumer -DTESSERA_TORCH="$TESSERA_TORCH"
  expect_output "[2, 3] [2, 3] [1, 3] [0, 3]"
fi
