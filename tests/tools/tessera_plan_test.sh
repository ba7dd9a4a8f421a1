#!/usr/bin/env bash
# tessera_plan_test.sh TESSERA_PLAN FACT: the program tessera_plan as a user runs it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

plan="$1"
readonly swap=(--mesh dp=2,tp=4 --shape 8000,8000 --from 'S(0),S(1)' --to 'S(1),S(0)')

# expect_lines MOST WIDTH: the last output has at most MOST lines of at most WIDTH columns.
expect_lines() {
  local lines width
  lines="$(printf '%s\n' "$output" | wc -l)"
  width="$(printf '%s\n' "$output" | LC_ALL=C.UTF-8 wc -L)"
  ((lines <= $1)) || fail "$lines lines instead of at most $1"
  ((width <= $2)) || fail "$width columns instead of at most $2"
}

# expect_no TEXT: the last output lacks it.
expect_no() { [[ "$output" != *"$1"* ]] || fail "the output has: $1"; }

# refuse TEXT ARGS...: exits with 2, says just that in one line on stderr, and nothing on stdout.
refuse() {
  local text="tessera_plan: $1"
  shift
  expect_fail 2 "$plan" "$@"
  [[ "$output" == "$text" ]] || fail "the message is not: $text"
  output="$("$plan" "$@" 2>/dev/null)" || true
  [[ -z "$output" ]] || fail "stdout is not empty: $*"
}

# On a terminal of 100 columns; the rest as given.
on_terminal() {
  python3 - "$@" <<'PYTHON'
import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PYTHON
}

help_names_every_option() {
  local option
  expect_pass "$plan" --help
  for option in --mesh --shape --from --to --ranks --to-mesh --to-ranks --element-size --budget \
    --rank --json --tour --color --ascii --help; do
    expect_output "  $option "
  done
  expect_lines 40 100
  expect_pass "$plan"
  expect_output "Usage: tessera_plan --mesh MESH"
}

plans_are_drawn_and_explained() {
  expect_pass "$plan" "${swap[@]}"
  expect_output "mesh [dp=2, tp=4]" "before [8000,8000][S(0),S(1)] on [dp=2, tp=4]" \
    "after [8000,8000][S(1),S(0)] on [dp=2, tp=4]" "│ 0 │ 1 │ 2 │ 3 │" "│ 3 │ 7 │" \
    "exchange(dp, tp): [S(0),S(1)] -> [S(1),S(0)]" "(bound 32.0 MB)"
  expect_lines 60 120
  expect_pass "$plan" "${swap[@]}" --element-size=2
  expect_output "(bound 16.0 MB)"
}

layouts_are_drawn_alone() {
  expect_pass "$plan" --mesh 4 --shape 5 --from 'S(0)' --ascii
  expect_output "mesh [4]" "layout [5][S(0)] on [4]" "| 0 | 1 | 2 |" "rank 3 holds nothing"
  expect_pass "$plan" --mesh 2 --shape '' --from R
  expect_output "layout [][R] on [2]" "│ 0,1 │"
}

other_meshes_are_planned() {
  expect_pass "$plan" --mesh tp=4 --shape 12 --from 'S(0)' --to 'S(0)' --to-mesh tp=3 \
    --to-ranks 4,5,6
  expect_output "to mesh [tp=3]@4..6" "│ 4 │ 5 │ 6 │" "exchange: [S(0)] -> [S(0)]"
  expect_pass "$plan" --mesh 2 --ranks 6,2 --shape 4 --from 'S(0)' --to 'S(0)' --to-ranks 2,6
  expect_output "│ 6 │ 2 │ │ 2 │ 6 │"
}

ranks_show_their_messages() {
  expect_pass "$plan" "${swap[@]}" --rank 3
  expect_output "rank 3, in indices of its local tensor" "local shape [4000,2000] -> [2000,4000]" \
    "send to 4: 16.0 MB, [0, 2000) x [0, 2000)" "receive from 5: 16.0 MB, [0, 2000) x [2000, 4000)" \
    "receives 32.0 MB (bound 32.0 MB), sends 32.0 MB"
  expect_pass "$plan" --mesh 2 --shape 4 --from 'S(0)' --to R --rank 1
  expect_output "receive from 0: 8 B, [0, 2)" "keep: 8 B, [2, 4)"
}

budgets_make_rounds() {
  expect_pass "$plan" --mesh 4 --shape 8000,8000 --from 'S(0)' --to 'S(1)' --budget 4M
  expect_output "rounds"
  expect_pass "$plan" --mesh 4 --shape 8000,8000 --from 'S(0)' --to 'S(1)' --budget 4G
  expect_no "rounds"
}

json_is_one_object() {
  expect_pass "$plan" "${swap[@]}" --json
  printf '%s' "$output" | python3 -c '
import json, sys
plan = json.load(sys.stdin)
assert plan["element_size"] == 4, plan
assert plan["from"] == "[8000,8000][S(0),S(1)] on [dp=2, tp=4]", plan
assert len(plan["steps"]) == 1 and plan["steps"][0]["kind"] == "exchange", plan
' || fail "not the JSON that was expected"
}

wrong_arguments_are_refused() {
  refuse "unknown argument '--frobnicate'; see --help" --frobnicate
  refuse "unknown argument 'x'; see --help" --tour x
  refuse "--mesh is given without a value; see --help" --mesh
  refuse "--mesh is given twice" --mesh 2 --mesh 3
  refuse "--json takes no value" --json=yes
  refuse "--shape is missing; see --help" --mesh 2
  refuse "--from is missing; see --help" --mesh 2 --shape 4
  refuse "--shape: 'four' given; an integer is expected" --mesh 2 --shape four --from R
  refuse "--shape: '4,' given; an integer is missing at its end" --mesh 2 --shape 4, --from R
  refuse "--element-size is about a plan; pass --to as well" --mesh 2 --shape 4 --from R \
    --element-size 2
  refuse "--color: 'blue' given; auto, always or never is expected" --tour --color blue
  refuse "--mesh cannot be combined with --tour, which shows plans of its own" --tour --mesh 2
  refuse "--budget: '1Q' given; an integer is expected" "${swap[@]}" --budget 1Q
  refuse "--rank: 9 given; it is neither in [dp=2, tp=4] nor in [dp=2, tp=4]" "${swap[@]}" --rank 9
  refuse "--json prints the whole plan; leave out --rank" "${swap[@]}" --rank 1 --json
}

# What the library refuses is said with the option that is at fault.
wrong_layouts_are_refused() {
  expect_fail 2 "$plan" --mesh 2 --shape 4 --from 'S(3)'
  expect_output "tessera_plan: --from: Layout: placement S(3) given for a tensor of shape [4]"
  expect_fail 2 "$plan" --mesh 2,2 --shape 4 --from 'S(0)'
  expect_output "tessera_plan: --from: Layout: 1 placement(s) [S(0)] given for mesh [2, 2]"
  expect_fail 2 "$plan" --mesh 2 --ranks 0,0 --shape 4 --from R
  expect_output "tessera_plan: --ranks: MeshShape:"
  expect_fail 2 "$plan" --mesh 2 --shape 4 --from 'P(max)' --to 'P(sum)'
  expect_output "tessera_plan: redistribute: mesh dim 0 of [2] cannot go from P(max) to P(sum)"
}

colors_are_for_terminals() {
  local escape=$'\x1b['
  expect_pass "$plan" "${swap[@]}"
  expect_no "$escape"
  expect_pass "$plan" "${swap[@]}" --color always
  expect_output "$escape"
  expect_pass on_terminal env -u NO_COLOR "$plan" "${swap[@]}"
  expect_output "$escape"
  expect_pass on_terminal env NO_COLOR=1 "$plan" "${swap[@]}"
  expect_no "$escape"
  expect_pass on_terminal env -u NO_COLOR "$plan" "${swap[@]}" --color never
  expect_no "$escape"
}

tour_fits_a_terminal() {
  local stop
  expect_pass "$plan" --tour
  expect_lines 120 100
  expect_no $'\x1b['
  for stop in 1 2 3 4 5 6 7; do
    expect_output "── $stop. "
  done
  expect_output "receives ▇▇▇▇▇▇ 32.0 MB: the least possible" "rank 3 holds nothing" "Σ 0-3" \
    " rounds"
  expect_pass on_terminal env NO_COLOR=1 "$plan" --tour
  output="${output//$'\r'/}"
  expect_lines 120 100
  expect_pass "$plan" --tour --ascii
  output="$(LC_ALL=C tr -d '\0-\177' <<<"$output")"
  [[ -z "$output" ]] || fail "--ascii prints other characters"
}

"$2"
