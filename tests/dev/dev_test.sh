#!/usr/bin/env bash
# dev_test.sh WORK_DIR: the script `dev` itself, as far as that is cheap.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=expect.sh
source "$here/expect.sh"

root="$(cd "$here/../.." && pwd)"
work="$1"
rm -rf -- "$work"
mkdir -p "$work"

scripts_are_well_formed() {
  local script
  for script in "$root/dev" "$root/.ci/run" "$root"/tools/lint/*.sh "$root"/tests/*/*.sh; do
    expect_pass bash -n "$script"
  done
}

commands_are_explained() {
  local command
  expect_pass "$root/dev" help
  for command in setup build demo tour test bench lint format clean run; do
    expect_output "  $command "
  done
  expect_fail 2 "$root/dev" frobnicate
  expect_output "unknown command 'frobnicate'" "Usage: ./dev COMMAND"
  expect_fail 2 "$root/dev"
  expect_output "Usage: ./dev COMMAND"
}

# Without building anything: what it would build, and what CTest would get.
test_runs_a_preset() {
  # shellcheck disable=SC2016  # for the inner shell
  local script='source "$0" help >/dev/null
    setup_all() { :; }
    build_preset() { echo "build $*"; }
    ctest() { echo "$PWD: ctest $*"; }
    cmd_test "$@"'
  cd "$work"
  expect_pass env TESSERA_JOBS=3 bash -c "$script" "$root/dev" -R 'some thing'
  expect_output "build dev" "$root: ctest --preset dev --parallel 3 -R some thing"
  expect_pass env TESSERA_JOBS=3 bash -c "$script" "$root/dev" --preset tsan -L ranks
  expect_output "build tsan" "$root: ctest --preset tsan --parallel 3 -L ranks"
  expect_fail 1 bash -c "$script" "$root/dev" --preset
  expect_output "test: --preset is given without a name; there are dev, asan-ubsan, tsan"
}

# In another folder, with the arguments as they are given.
run_uses_the_environment() {
  cd "$work"
  # shellcheck disable=SC2016  # for the inner shell
  expect_pass "$root/dev" run bash -c 'printf "<%s> " "$@" "$PWD" "${PATH%%:*}"' _ "two words" ''
  expect_output "<two words> <> <$work> <$root/.venv/bin>"
  expect_fail 1 "$root/dev" run
  expect_output "run: no command given"
}

# A setup after the first has nothing to do, and takes less than two seconds.
setup_is_idempotent() {
  [[ -e "$root/.venv/.tessera-stamp" ]] || exit 77 # nobody ran the first
  local start="${EPOCHREALTIME/./}" milliseconds
  expect_pass env TESSERA_NO_APT=1 PIP_NO_INDEX=1 "$root/dev" setup
  milliseconds=$(((${EPOCHREALTIME/./} - start) / 1000))
  [[ "$output" == "dev: setup: nothing left to do" ]] || fail "the second setup did something"
  echo "it took $milliseconds ms"
  ((milliseconds < 2000)) || fail "the second setup took $milliseconds ms"
}

# A PATH without compiler, CMake and Ninja stands for a machine that lacks them.
refusal_lists_what_is_missing() {
  local program
  mkdir "$work/bin"
  for program in bash dirname nproc sort head sed id grep cat; do
    ln -s "$(command -v "$program")" "$work/bin/$program"
  done
  expect_fail 1 env -u CXX TESSERA_NO_APT=1 PATH="$work/bin" "$root/dev" demo
  expect_output "packages are missing: g++ cmake ninja-build ccache" "root or passwordless sudo" \
    "g++ >= 12, cmake >= 3.25"
}

# apt is called only for what is missing, after an update where it does not know a package.
apt_installs_what_is_missing() {
  mkdir "$work/apt"
  cat >"$work/apt/apt-get" <<'APT'
#!/usr/bin/env bash
echo "apt-get $*"
if [[ "$1" == install ]]; then ln -s "$(type -P true)" "${0%/*}/ccache-of-the-test"; fi
APT
  printf '#!/usr/bin/env bash\nexit 100\n' >"$work/apt/apt-cache"
  printf '#!/usr/bin/env bash\necho 0\n' >"$work/apt/id"
  chmod +x "$work"/apt/*
  # shellcheck disable=SC2016  # for the inner shell
  expect_pass env -u TESSERA_NO_APT PATH="$work/apt:$PATH" bash -c '
    source "$1" help >/dev/null
    setup_system "tool ccache-of-the-test|ccache-package" "tool bash|bash"' _ "$root/dev"
  expect_output "installing system packages: ccache-package" "apt-get update" \
    "apt-get install -y -q --no-install-recommends ccache-package"
  [[ "$output" != *"recommends"*" bash"* ]] || fail "installed what was there"
}

# A libtorch that the user names must be one.
named_libtorch_is_checked() {
  expect_fail 1 env TESSERA_TORCH="$work/nowhere" "$root/dev" setup
  expect_output "TESSERA_TORCH=$work/nowhere holds no share/cmake/Torch/TorchConfig.cmake"
}

"$2"
