#!/usr/bin/env bash
# tessera_run_test.sh TESSERA_RUN FACT WORK_DIR: the program tessera_run as a user runs it.
#
# Ranks are small shell scripts. What has to happen is waited for, never slept for.
# shellcheck disable=SC2016  # the ranks expand their own variables
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

run="$1"
export work="$3/$2"
rm -rf -- "$work"
mkdir -p "$work"

# refuse TEXT ARGS...: exits with 2 and says just that.
refuse() {
  local text="tessera_run: $1"
  shift
  expect_fail 2 "$run" "$@"
  [[ "$output" == "$text" ]] || fail "the message is not: $text"
}

# expect_line LINE...: the last output has each of these lines.
expect_line() {
  local line
  for line in "$@"; do
    grep -qxF -- "$line" <<<"$output" || fail "the output lacks the line: $line"
  done
}

# wait_for CMD...: until the command passes, for at most 20 s.
wait_for() {
  local deadline=$((SECONDS + 20))
  until "$@"; do
    ((SECONDS < deadline)) || fail "waited in vain for: $*"
    read -r -t 0.02 <> <(:) || true
  done
}

is_gone() { [[ ! -e "/proc/$1" || "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" == Z ]]; }
has_files() { [[ "$(find "$work" -name "$2" | wc -l)" == "$1" ]]; }

# The pids that ranks noted, once there are COUNT of them.
noted_pids() {
  wait_for has_files "$1" 'pid.*'
  wait_for has_no_empty_pid
  cat "$work"/pid.*
}
has_no_empty_pid() { [[ -z "$(find "$work" -name 'pid.*' -empty)" ]]; }
readonly note='echo $$ >"$work/pid.$RANK";'

help_names_every_option() {
  local option
  expect_pass "$run" --help
  for option in --nproc-per-node --log-dir --timeout --grace --master-port --help; do
    expect_output "  $option "
  done
}

ranks_get_torchruns_variables() {
  expect_pass "$run" --nproc-per-node 3 env
  local rank
  for rank in 0 1 2; do
    expect_line "[$rank] RANK=$rank" "[$rank] LOCAL_RANK=$rank" "[$rank] ROLE_RANK=$rank" \
      "[$rank] WORLD_SIZE=3" "[$rank] LOCAL_WORLD_SIZE=3" "[$rank] ROLE_WORLD_SIZE=3" \
      "[$rank] GROUP_RANK=0" "[$rank] GROUP_WORLD_SIZE=1" "[$rank] MASTER_ADDR=127.0.0.1" \
      "[$rank] TORCHELASTIC_RESTART_COUNT=0" "[$rank] TORCHELASTIC_USE_AGENT_STORE=False" \
      "[$rank] TORCHELASTIC_RUN_ID=tessera_run" "[$rank] work=$work"
  done
  local ports
  ports="$(sed -n 's/.*MASTER_PORT=//p' <<<"$output" | sort -u)"
  [[ "$ports" =~ ^[0-9]+$ ]] || fail "the ranks have no port in common: $ports"
  expect_pass env RANK=9 OMP_NUM_THREADS=5 "$run" --master-port 4711 env
  expect_line "[0] RANK=0" "[0] WORLD_SIZE=1" "[0] MASTER_PORT=4711" "[0] OMP_NUM_THREADS=5"
  [[ "$output" != *"RANK=9"* ]] || fail "an outer RANK got through"
}

arguments_reach_the_program() {
  expect_pass "$run" --nproc-per-node=2 printf '%s|' a 'b  c' '' --timeout --help
  expect_line "[0] a|b  c||--timeout|--help|" "[1] a|b  c||--timeout|--help|"
  expect_pass "$run" --nproc_per_node 1 --standalone --no-python --nnodes=1 -- echo hello
  expect_line "[0] hello"
}

output_is_prefixed() {
  expect_pass "$run" --nproc-per-node 2 sh -c 'printf "one\n\ntwo"; printf "three" >&2'
  expect_line "[0] one" "[1] one" "[0] " "[1] " "[0] two" "[1] two" "[0] three" "[1] three"
  output="$("$run" sh -c 'echo out; echo err >&2' 2>/dev/null)"
  [[ "$output" == "[0] out" ]] || fail "stdout has something else"
  output="$("$run" sh -c 'echo out; echo err >&2' 2>&1 >/dev/null)"
  [[ "$output" == "[0] err" ]] || fail "stderr has something else"
}

lines_stay_whole() {
  expect_pass "$run" --nproc-per-node 4 sh -c \
    'i=0; while [ $i -lt 500 ]; do echo "line $i of $RANK"; i=$((i + 1)); done'
  [[ "$(wc -l <<<"$output")" == 2000 ]] || fail "not 2000 lines"
  [[ "$(grep -cE '^\[([0-3])\] line [0-9]+ of \1$' <<<"$output")" == 2000 ]] || fail "lines mix"
  # A line without an end does not fill the memory: it is broken, and all of it arrives.
  expect_pass "$run" sh -c 'head -c 200000 /dev/zero | tr "\0" x'
  [[ "$(tr -dc x <<<"$output" | wc -c)" == 200000 ]] || fail "not all of the long line arrived"
  [[ "$(wc -L <<<"$output")" -lt 66000 ]] || fail "the long line was not broken"
}

ranks_have_no_input() { expect_pass "$run" --nproc-per-node 2 cat; }

exit_code_is_that_of_the_failed_rank() {
  expect_fail 7 "$run" --nproc-per-node 3 --grace 0.1 sh -c \
    'test $RANK = 1 && exit 7; exec tail -f /dev/null'
  expect_output "tessera_run: rank 1 failed first: exit code 7, pid " "; stopped ranks 0, 2"
  # The others have a while to end by themselves.
  expect_fail 3 "$run" --nproc-per-node 2 --grace 20 sh -c \
    'test $RANK = 0 && exit 3; until [ -s "$work/go" ]; do echo >"$work/go"; done; echo done'
  expect_line "[1] done"
  expect_output "rank 0 failed first: exit code 3"
  [[ "$output" != *stopped* ]] || fail "rank 1 was stopped"
}

killed_rank_is_named() {
  expect_fail 137 "$run" --nproc-per-node 4 --grace 0.1 sh -c \
    'test $RANK = 2 && kill -KILL $$; exec tail -f /dev/null'
  expect_output "tessera_run: rank 2 failed first: killed by signal 9 (SIGKILL), pid " \
    "; stopped ranks 0, 1, 3"
  expect_fail 134 "$run" --nproc-per-node 1 sh -c 'kill -ABRT $$'
  expect_output "rank 0 failed first: killed by signal 6 (SIGABRT)"
}

# A rank that says it failed because of another is not the first, even if it ends before it.
consequences_are_told_from_causes() {
  expect_fail 5 "$run" --nproc-per-node 2 --grace 20 bash -c '
    head="{\"tessera\":{\"time_ns\":$(date +%s%N),\"consequence\":"
    if [[ $RANK == 0 ]]; then
      echo "${head}true},\"message\":{}}" >"$TORCHELASTIC_ERROR_FILE"
      echo $$ >"$work/pid.0"; exit 1
    fi
    until [[ -s "$work/pid.0" && ! -e /proc/$(<"$work/pid.0")/fd/1 ]]; do :; done
    exit 5'
  expect_output "rank 1 failed first: exit code 5"
  # The times that ranks note count, not the order in which they end.
  expect_fail 6 "$run" --nproc-per-node 2 --grace 20 bash -c '
    printf "{\"tessera\":{\"time_ns\":%d,\"consequence\":false}" $((2000 - RANK)) \
      >"$TORCHELASTIC_ERROR_FILE"
    exit $((5 + RANK))'
  expect_output "rank 1 failed first: exit code 6"
}

hanging_ranks_are_killed() {
  expect_fail 9 "$run" --nproc-per-node 3 --grace 0.1 bash -c "
    trap 'echo not yet' TERM; $note"'
    if [[ $RANK == 0 ]]; then
      until [[ -s "$work/pid.1" && -s "$work/pid.2" ]]; do :; done; exit 9
    fi
    while :; do read -r -t 1 <> <(:); done'
  expect_output "not yet" "rank 0 failed first: exit code 9" "; stopped ranks 1, 2"
  local pid
  for pid in $(noted_pids 3); do is_gone "$pid" || fail "process $pid is left"; done
}

timeout_ends_ranks() {
  expect_fail 124 "$run" --nproc-per-node 2 --timeout 0.3 --grace 20 tail -f /dev/null
  expect_output "tessera_run: not finished after 0.3 s (--timeout); stopped ranks 0, 1"
  expect_pass "$run" --timeout 60 true
}

# signalled SIGNAL CODE: the signal reaches all ranks, which may end in order.
signalled() {
  # A shell starts what is in the background with SIGINT ignored.
  env --default-signal=INT "$run" --nproc-per-node 2 --grace 20 bash -c '
    trap "echo got '"$1"'; exit 0" '"$1"'; echo $$ >"$work/pid.$RANK"
    while :; do read -r -t 0.05 <> <(:); done' >"$work/out" 2>&1 &
  local code=0 launcher=$!
  noted_pids 2 >/dev/null
  kill "-$1" "$launcher"
  wait "$launcher" || code=$?
  output="$(<"$work/out")"
  [[ "$code" == "$2" ]] || fail "exit code $code instead of $2"
  expect_line "[0] got $1" "[1] got $1"
  expect_output "tessera_run: ended by signal $(($2 - 128)) (SIG$1); stopped ranks 0, 1"
  rm "$work"/pid.*
}

signals_are_forwarded() {
  signalled TERM 143
  signalled INT 130
  signalled HUP 129
  # What is ignored from the beginning stays so: nohup.
  env --ignore-signal=HUP "$run" bash -c "$note"' until [[ -e "$work/go" ]]; do :; done' &
  local launcher=$!
  noted_pids 1 >/dev/null
  kill -HUP "$launcher"
  touch "$work/go"
  wait "$launcher" || fail "exit code $? instead of 0 after SIGHUP"
}

second_signal_kills() {
  "$run" --nproc-per-node 2 --grace 1000 bash -c '
    trap "touch $work/got.$RANK" TERM; echo $$ >"$work/pid.$RANK"
    while :; do read -r -t 0.05 <> <(:); done' >"$work/out" 2>&1 &
  local code=0 launcher=$!
  noted_pids 2 >/dev/null
  kill -TERM "$launcher"
  wait_for has_files 2 'got.*'
  kill -TERM "$launcher"
  wait "$launcher" || code=$?
  [[ "$code" == 143 ]] || fail "exit code $code instead of 143"
}

# Even when tessera_run cannot do anything about it any more.
ranks_die_with_the_launcher() {
  TMPDIR="$work" "$run" --nproc-per-node 3 bash -c "$note exec tail -f /dev/null" &
  local launcher=$! pid pids
  pids="$(noted_pids 3)"
  kill -KILL "$launcher"
  for pid in $pids; do wait_for is_gone "$pid"; done
}

# What a rank starts ends with the job; what others run does not.
only_our_groups_are_killed() {
  tail -f /dev/null &
  local bystander=$! pid
  expect_pass "$run" --nproc-per-node 2 bash -c \
    'tail -f /dev/null & echo $! >"$work/pid.$RANK"; echo started'
  for pid in $(noted_pids 2); do wait_for is_gone "$pid"; done
  ! is_gone "$bystander" || fail "a process of somebody else was killed"
  kill "$bystander"
}

log_dir_keeps_the_output() {
  expect_pass "$run" --nproc-per-node 2 --log-dir "$work/a/b" sh -c \
    'echo "out $RANK"; printf "err $RANK" >&2'
  expect_line "[0] out 0" "[1] err 1"
  local rank
  for rank in 0 1; do
    [[ "$(<"$work/a/b/$rank/stdout.log")" == "out $rank" ]] || fail "stdout.log of rank $rank"
    [[ "$(<"$work/a/b/$rank/stderr.log")" == "err $rank" ]] || fail "stderr.log of rank $rank"
  done
  expect_pass "$run" --log-dir "$work/a/b" echo again
  [[ "$(<"$work/a/b/0/stdout.log")" == "again" ]] || fail "the old log is still there"
  touch "$work/file"
  refuse "--log-dir: cannot make $work/file/0: Not a directory" --log-dir "$work/file" true
}

nothing_is_left_in_the_temporary_folder() {
  mkdir "$work/tmp"
  expect_pass env TMPDIR="$work/tmp" "$run" --nproc-per-node 2 sh -c \
    'echo x >"$TORCHELASTIC_ERROR_FILE"'
  [[ -z "$(ls -A "$work/tmp")" ]] || fail "left: $(ls -A "$work/tmp")"
}

# Rank 0 may listen on the port, and nobody else does.
port_is_free() {
  expect_pass "$run" --nproc-per-node 2 python3 -c '
import os, socket
port = int(os.environ["MASTER_PORT"])
table = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
listening = [row for row in table if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
if os.environ["RANK"] == "0":
    assert not listening, listening
    server = socket.create_server(("127.0.0.1", port))
    print("listens")
'
  expect_line "[0] listens"
}

closed_output_ends_the_job() {
  local code=0
  "$run" --nproc-per-node 2 --grace 0.1 yes 2>"$work/err" | head -n 1 >/dev/null || code=${PIPESTATUS[0]}
  [[ "$code" == 141 ]] || fail "exit code $code instead of 141"
}

programs_that_cannot_be_run_are_named() {
  expect_fail 127 "$run" --nproc-per-node 2 "$work/nothing"
  expect_output "tessera_run: cannot run $work/nothing: No such file or directory"
  touch "$work/plain"
  expect_fail 126 "$run" "$work/plain"
  expect_output "tessera_run: cannot run $work/plain: Permission denied"
}

wrong_arguments_are_refused() {
  local number="an integer from 1 to 4096 is expected"
  local time="a number of seconds above 0 and up to 10000000 is expected"
  refuse "no program given; see --help, for example: tessera_run --nproc-per-node 4 ./program"
  refuse "no program given; see --help, for example: tessera_run --nproc-per-node 4 ./program" \
    --nproc-per-node 2
  refuse "unknown option '--ranks'; see --help" --ranks 2 true
  refuse "--nproc-per-node is given without a value; see --help" --nproc-per-node
  refuse "--nproc-per-node: '0' given; $number" --nproc-per-node 0 true
  refuse "--nproc-per-node: 'gpu' given; $number" --nproc-per-node=gpu true
  refuse "--nproc-per-node: '5000' given; $number" --nproc-per-node 5000 true
  refuse "--nproc-per-node is given twice" --nproc-per-node 2 --nproc_per_node 2 true
  refuse "--timeout: '-1' given; $time" --timeout -1 true
  refuse "--timeout: 'nan' given; $time" --timeout nan true
  refuse "--grace: '1s' given; $time" --grace 1s true
  refuse "--master-port: '70000' given; an integer from 1 to 65535 is expected" \
    --master-port 70000 true
  refuse "--log-dir: '' given; a folder is expected" --log-dir '' true
  refuse "--standalone takes no value" --standalone=1 true
  refuse "--nnodes: '2' given; tessera_run starts ranks on this host only, so 1 is expected; use torchrun, mpirun or srun for several hosts" \
    --nnodes 2 true
}

"$2"
