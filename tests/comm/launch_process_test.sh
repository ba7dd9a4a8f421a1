#!/usr/bin/env bash
# launch_process_test.sh FACT PROBE TESSERA_RUN HELLO: one program under every launcher.
#
# Skipped (77) where the launcher or the engine is missing.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../dev/expect.sh
source "$here/../dev/expect.sh"

probe="$2"
run="$3"
hello="$4"
readonly mpirun=(mpirun --allow-run-as-root --oversubscribe)
export OMPI_MCA_rmaps_base_oversubscribe=1
# What an outer launcher of the tests may have set is not ours.
for name in $(compgen -e | grep -E '^(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|PMI_.*|OMPI_COMM_.*|SLURM_.*|TESSERA_.*)$' || true); do
  unset "$name"
done

skip() {
  echo "skipped: $1"
  exit 77
}
needs_engine() {
  local code=0
  output="$("$probe" sum --engine "$1" 2>&1)" || code=$?
  [[ "$code" != 2 || "$output" != *"is not built in"* ]] || skip "$output"
}
needs_torchrun() {
  torchrun="$here/../../.venv/bin/torchrun"
  [[ -x "$torchrun" ]] || skip "no torchrun in .venv"
}
needs_mpirun() { command -v mpirun >/dev/null || skip "no mpirun"; }

# A port that the system does not hand out to others by itself.
free_port() {
  python3 -c '
import os, socket
for attempt in range(10000):
    port = 10000 + (os.getpid() * 7919 + attempt) % 10000
    try:
        socket.socket().bind(("127.0.0.1", port))
    except OSError:
        continue
    print(port)
    break'
}

# is_running COMMAND...: a process of that command line is there.
is_running() {
  local file
  for file in /proc/[0-9]*/cmdline; do
    [[ "$(tr '\0' ' ' 2>/dev/null <"$file" || true)" != "$* " ]] || return 0
  done
  return 1
}

# expect_gone COMMAND...: no process of that command line is left; its end may take a moment to be seen.
expect_gone() {
  local deadline=$((SECONDS + 20))
  while is_running "$@"; do
    ((SECONDS < deadline)) || fail "processes are left: $*"
    pause 0.05
  done
}

# pause SECONDS: without a process for it.
pause() { read -r -t "$1" <> <(:) || true; }

# expect_sums SIZE ENGINE: every rank has printed the right sum.
expect_sums() {
  local rank
  for ((rank = 0; rank < $1; ++rank)); do
    expect_output "rank $rank of $1 by $2 sums up to $(($1 * ($1 - 1) / 2))"
  done
}

hello_runs_everywhere() {
  [[ -n "$hello" ]] || skip "the examples are not built"
  expect_pass "$hello"
  expect_output "rank 0 of 1 (threads) on DeviceMesh([all=1], cpu): the ranks add up to 0"
  expect_pass "$hello" --ranks 4
  expect_output "rank 3 of 4 (threads) on DeviceMesh([all=4], cpu): the ranks add up to 6"
  expect_pass env TESSERA_RANKS=3 "$hello"
  expect_output "rank 2 of 3 (threads) on DeviceMesh([all=3], cpu): the ranks add up to 3"
  needs_engine gloo
  expect_pass "$run" --nproc-per-node 2 "$hello"
  expect_output "[1] rank 1 of 2 (gloo) on DeviceMesh([all=2], cpu): the ranks add up to 1"
}

threads_run_alone() {
  local ranks
  for ranks in 1 2 5; do
    expect_pass "$probe" sum --ranks "$ranks"
    expect_sums "$ranks" threads
  done
  expect_pass "$probe" --ranks=3 sum --engine threads --timeout 5
  expect_sums 3 threads
}

engines_run_alone() {
  local engine
  for engine in gloo mpi; do
    needs_engine "$engine"
    expect_pass "$probe" sum --engine "$engine"
    expect_sums 1 "$engine"
  done
}

tessera_run_means_gloo() {
  needs_engine gloo
  expect_pass "$run" --nproc-per-node 3 "$probe" sum
  expect_sums 3 gloo
}

torchrun_means_gloo() {
  needs_torchrun
  needs_engine gloo
  expect_pass "$torchrun" --no-python --nproc-per-node 2 "$probe" sum
  expect_sums 2 gloo
  expect_pass "$torchrun" --standalone --no-python --nproc-per-node 2 "$probe" sum --ranks 2
  expect_sums 2 gloo
}

# The keys of the ranks that failed are still in the agent's store.
torchrun_may_restart() {
  needs_torchrun
  needs_engine gloo
  expect_pass env TESSERA_LOG=info "$torchrun" --standalone --no-python --nproc-per-node 2 \
    --max-restarts 1 bash -c \
    'if [[ $TORCHELASTIC_RESTART_COUNT == 0 ]]; then "$0" throw 1; else "$0" sum; fi' "$probe"
  expect_output "planted failure"
  expect_sums 2 gloo
}

mpirun_means_mpi() {
  needs_mpirun
  needs_engine mpi
  expect_pass "${mpirun[@]}" -n 3 "$probe" sum
  expect_sums 3 mpi
  expect_pass "${mpirun[@]}" -n 1 "$probe" sum --engine threads --ranks 3
  expect_sums 3 threads
}

mpirun_may_use_gloo() {
  needs_mpirun
  needs_engine gloo
  expect_pass "${mpirun[@]}" -x "MASTER_PORT=$(free_port)" -n 2 "$probe" sum --engine gloo
  expect_sums 2 gloo
}

# Slurm is not here; what srun sets for two tasks on one host is.
sruns_variables_suffice() {
  needs_engine gloo
  local rank
  local -a step=(env SLURM_JOB_ID=$((RANDOM * 7)) SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_NNODES=1
    SLURM_JOB_NODELIST='gpu[01-02]' TESSERA_ENGINE=gloo)
  expect_pass bash -c '
    "$@" SLURM_PROCID=1 SLURM_LOCALID=1 "$0" sum & second=$!
    "$@" SLURM_PROCID=0 SLURM_LOCALID=0 "$0" sum; wait "$second"' "$probe" "${step[@]}"
  expect_sums 2 gloo
}

# What is derived from srun's variables is told together with them.
sruns_variables_are_named() {
  needs_engine gloo
  local -a step=(SLURM_JOB_ID=77 SLURM_STEP_ID=3 SLURM_PROCID=0 SLURM_NTASKS=2 TESSERA_ENGINE=gloo)
  expect_fail 2 env "${step[@]}" SLURM_NNODES=2 SLURM_JOB_NODELIST='no-such-host[07-08].invalid' \
    "$probe" sum
  expect_output "launch_probe: rank 0: launch: host no-such-host07.invalid (the first of \
SLURM_JOB_NODELIST=no-such-host[07-08].invalid) cannot be used: no machine of that name is known; set MASTER_ADDR"
  # Somebody uses the port: this test, unless another program does.
  expect_fail 2 python3 -c '
import socket, subprocess, sys
server = socket.socket()
try:
    server.bind(("127.0.0.1", 22852))
except OSError:
    pass
sys.exit(subprocess.run(sys.argv[1:]).returncode)' env "${step[@]}" SLURM_NNODES=1 "$probe" sum
  expect_output "launch_probe: rank 0: launch: port 22852 (derived from SLURM_JOB_ID=77 and \
SLURM_STEP_ID=3) cannot be used: another program uses that port of 127.0.0.1; set MASTER_PORT to a free one"
}

failures_name_the_rank() {
  expect_fail 1 "$probe" throw 1 --ranks 3
  expect_output "launch_probe: rank 1: planted failure"
  needs_engine gloo
  expect_fail 1 "$run" --nproc-per-node 3 "$probe" throw 1
  expect_output "[1] launch_probe: rank 1: planted failure" "[0] launch_probe: rank 0: " \
    "[2] launch_probe: rank 2: " "tessera_run: rank 1 failed first: exit code 1"
  expect_fail 137 "$run" --nproc-per-node 3 "$probe" kill 2 --timeout 20
  expect_output "tessera_run: rank 2 failed first: killed by signal 9 (SIGKILL)" \
    "[0] launch_probe: rank 0: " "[1] launch_probe: rank 1: " "rank 2 is gone: process "
  expect_gone "$probe" kill 2 --timeout 20
  expect_fail 7 "$run" --nproc-per-node 2 "$probe" exit 0
  expect_output "tessera_run: rank 0 failed first: exit code 7"
}

# has_lines COUNT PATTERN FILE
has_lines() { [[ "$(grep -cE "$2" "$3" || true)" == "$1" ]]; }

# kill_one_rank RANK DELAY FILE: starts a job of three ranks that work and print into a new file, kills one of
# them, and looks at what the job makes of it.
kill_one_rank() {
  local victim="$1" delay="$2" file="$3" code=0 pid rank deadline=$((SECONDS + 60))
  local -a command=("$probe" work --timeout 20)
  printf -- '-- rank %s is killed after %s ms\n' "$victim" "$delay"
  : >"$file"
  "$run" --nproc-per-node 3 "${command[@]}" >"$file" 2>&1 &
  launcher=$!
  until has_lines 3 '^\[[0-2]\] rank [0-2] is process [0-9]+$' "$file"; do
    output="$(<"$file")"
    ((SECONDS < deadline)) || fail "the ranks are not ready"
    pause 0.02
  done
  pause "$(printf '0.%03d' "$delay")"
  pid="$(sed -nE "s/^\[$victim\] rank $victim is process //p" "$file")"
  is_running "${command[@]}" || fail "the ranks do not run as: ${command[*]}"
  kill -KILL "$pid"
  wait "$launcher" || code=$?
  launcher=""
  output="$(<"$file")"
  [[ "$code" == 137 ]] || fail "exit code $code instead of 137"
  expect_output "tessera_run: rank $victim failed first: killed by signal 9 (SIGKILL)"
  for rank in 0 1 2; do
    [[ "$rank" == "$victim" ]] || grep -qE \
      "^\[$rank\] launch_probe: rank $rank: .*rank $victim is gone: process $pid " "$file" ||
      fail "rank $rank does not say that rank $victim is gone"
  done
  expect_gone "${command[@]}"
}

killed_ranks_are_named_by_all() {
  needs_engine gloo
  local number
  folder="$(mktemp -d)"
  launcher=""
  trap '[[ -z "$launcher" ]] || kill "$launcher"; rm -rf -- "$folder"' EXIT
  # The same kills in every run.
  RANDOM=7
  for ((number = 0; number < 10; ++number)); do
    kill_one_rank $((RANDOM % 3)) $((RANDOM % 61)) "$folder/$number"
  done
}

torchrun_shows_the_reason() {
  needs_torchrun
  needs_engine gloo
  expect_fail any "$torchrun" --standalone --no-python --nproc-per-node 2 "$probe" throw 1
  expect_output "launch_probe: rank 1: planted failure" "Root Cause"
  output="${output##*Root Cause}"
  expect_output "rank : 1 (local_rank: 1)" "traceback : rank 1: planted failure"
}

# fail_under_mpirun ARGS...: the probe with these fails, in time, and leaves nobody. Now and then the end of a
# rank upsets mpirun itself, which then does not end: that is tried again, once.
fail_under_mpirun() {
  local attempt code begin
  local -r limit=60
  for attempt in 1 2; do
    printf -- '-- fails: mpirun -n 3 launch_probe %s\n' "$*"
    code=0
    begin="$SECONDS"
    output="$(timeout --kill-after 5 "$limit" "${mpirun[@]}" -n 3 "$probe" "$@" 2>&1)" || code=$?
    expect_gone "$probe" "$@"
    ((attempt == 1 && SECONDS - begin >= limit)) && [[ "$output" == *"PMIX ERROR"* ]] || break
  done
  [[ "$code" != 0 ]] || fail "passed, but should fail"
  # The exit code does not tell: mpirun ends with that of a killed rank.
  ((SECONDS - begin < limit)) || fail "mpirun did not end, and was ended by the test"
}

mpirun_ends_with_a_failure() {
  needs_mpirun
  needs_engine mpi
  fail_under_mpirun throw 1
  expect_output "launch_probe: rank 1: planted failure"
  fail_under_mpirun kill 2
  expect_output "process rank 2 " "signal 9"
}

# refuse TEXT ENV...: the probe with these variables ends with 2 and says so.
refuse() {
  local text="$1"
  shift
  expect_fail 2 env "$@" "$probe" sum
  expect_output "launch_probe: launch: $text"
}

bad_environments_are_refused() {
  refuse "RANK=1 given, but WORLD_SIZE is missing" RANK=1
  refuse "RANK=x given; an integer from 0 to 16777215 is expected" RANK=x WORLD_SIZE=2
  refuse "RANK=2 given with WORLD_SIZE=2; a rank from 0 to 1 is expected" RANK=2 WORLD_SIZE=2
  refuse "MASTER_PORT=99999 given; an integer from 1 to 65535 is expected" \
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999
  refuse "RANK=1, WORLD_SIZE=2 (of torchrun) and OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2 (of mpirun) disagree" \
    RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2
  expect_fail 2 "$probe" sum --ranks
  expect_output "launch_probe: launch: --ranks is given without a value"
  expect_fail 2 env TESSERA_LOG=loud "$probe" sum
  expect_output "launch_probe: TESSERA_LOG=loud given; error, warning, info or debug is expected"
}

log_names_source_and_rank() {
  expect_pass "$probe" log --ranks 2
  expect_output "[rank 0] tessera warning: probe of warning by the rank" \
    "[rank 1] tessera error: probe of error by the rank" \
    "tessera error: probe of error by another thread"
  [[ "$output" != *"info:"* && "$output" != *"debug:"* ]] || fail "more than warnings"
  expect_pass env TESSERA_LOG=debug "$probe" log --ranks 2
  expect_output "tessera info: launch: no launcher; engine threads, 2 rank(s) as threads" \
    "[rank 1] tessera debug: probe of debug by the rank"
  needs_engine gloo
  expect_pass env TESSERA_LOG=info "$run" --nproc-per-node 2 "$probe" log
  expect_output "[1] [rank 1] tessera info: launch: torchrun (RANK=1, WORLD_SIZE=2); engine gloo" \
    "[1] [rank 1] tessera info: probe of info by another thread"
}

# expect_local_listeners: what the last output says of listeners is on loopback. 0100007F is 127.0.0.1; the
# long ones are ::ffff:127.0.0.1 and ::1.
expect_local_listeners() {
  local loopback='^(0100007F|0000000000000000FFFF00000100007F|00000000000000000000000001000000):'
  output="$(sed -n 's/.*listens //p' <<<"$output")"
  ! grep -vE "$loopback" <<<"$output" | grep . || fail "a listener beyond loopback"
}

nothing_listens_beyond_loopback() {
  needs_engine gloo
  expect_pass "$run" --nproc-per-node 2 "$probe" listeners
  expect_local_listeners
  [[ -n "$output" ]] || fail "no listener at all: the probe does not see them"
  # Without tessera_run's file, rank 0 listens for the others.
  expect_pass env LOCAL_WORLD_SIZE=2 WORLD_SIZE=2 "MASTER_PORT=$(free_port)" bash -c \
    'RANK=1 "$0" listeners & second=$!; RANK=0 "$0" listeners; wait "$second"' "$probe"
  expect_local_listeners
  needs_mpirun
  needs_engine mpi
  expect_pass "${mpirun[@]}" -n 2 "$probe" listeners
  expect_local_listeners
}

"$1"
