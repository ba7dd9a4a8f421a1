# shellcheck shell=bash
# Sourced by the tests that are scripts: runs commands and looks at what they print.

output=""

# Text with every run of white space, and CMake's line breaks, made one blank.
squeezed() { printf '%s' "$1" | tr -s '[:space:]' ' '; }

fail() {
  printf 'FAILED: %s\n---- output:\n%s\n----\n' "$1" "$output" >&2
  exit 1
}

# expect_pass CMD...: the command exits with 0. Its output goes to $output.
expect_pass() {
  printf -- '-- passes: %s\n' "$*"
  output="$("$@" 2>&1)" || fail "exit code $? instead of 0: $*"
}

# expect_fail CODE CMD...: the command exits with CODE (or, if that is "any", not with 0).
expect_fail() {
  local wanted="$1" code=0
  shift
  printf -- '-- fails: %s\n' "$*"
  output="$("$@" 2>&1)" || code=$?
  [[ "$code" != 0 ]] || fail "passed, but should fail: $*"
  [[ "$wanted" == any || "$code" == "$wanted" ]] || fail "exit code $code instead of $wanted: $*"
}

# expect_output TEXT...: the last output has each text in it, however it is broken into lines.
expect_output() {
  local text
  for text in "$@"; do
    [[ "$(squeezed "$output")" == *"$(squeezed "$text")"* ]] || fail "the output lacks: $text"
  done
}
