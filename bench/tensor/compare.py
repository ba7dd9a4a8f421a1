#!/usr/bin/env python3
"""compare.py BENCH_DIR [PART...]: DTensors beside PyTorch's DTensor, and a large move beside JAX.

Everything is measured in one run, in turns, on this machine. BENCH_DIR has the built programs. The
parts are ops, instructions, moves, jax and lists; without any all of them are measured. The
interpreter that runs this must have torch; JAX is looked for in the interpreter that TESSERA_JAX names,
and left out without it:

    python3 -m venv jax && jax/bin/pip install jax
    TESSERA_JAX=jax/bin/python ./dev bench
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROUNDS = int(os.environ.get("TESSERA_BENCH_ROUNDS", "3"))
JAX_ROUNDS = 7
TIMEOUT = 300

bench = pathlib.Path(sys.argv[1]).resolve()
here = pathlib.Path(__file__).resolve().parent
program = str(bench / "dtensor_bench")
tessera_run = str(bench.parent / "bin/tessera_run")


def rows_of(command, timeout=TIMEOUT):
    """The JSON objects that a program prints; none when it cannot be run."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"left out: {command[0]}: {error}")
        return []
    if result.returncode != 0:
        print(f"left out: {' '.join(command)}: {result.stderr.strip().splitlines()[-1:]}")
        return []
    # tessera_run puts the rank in front of every line.
    return [json.loads(line[line.index("{"):]) for line in result.stdout.splitlines() if "{" in line]


def median(values):
    return sorted(values)[len(values) // 2]


def measure(commands):
    """The median over rounds of every row of every command, the commands in turns."""
    seen = {}
    for _ in range(ROUNDS):
        for label, command in commands.items():
            for row in rows_of(command):
                seen.setdefault((label, row["name"], row.get("engine")), []).append(row)
    return seen


def compare_ops():
    seen = measure({
        "tessera": [program, "ops"],
        "pytorch": [sys.executable, str(here / "pytorch_bench.py"), "ops"],
    })
    print(f"\n{'us over the plain op':32}{'Tessera':>10}{'PyTorch':>10}{'ratio':>8}")
    for (label, name, _), rows in seen.items():
        if label != "tessera":
            continue
        added = median([row["dtensor_us"] - row["plain_us"] for row in rows])
        others = seen.get(("pytorch", name, None))
        text = f"{name:32}{added:10.2f}"
        if others:
            theirs = median([row["dtensor_us"] - row["plain_us"] for row in others])
            text += f"{theirs:10.2f}{theirs / added:7.1f}x"
        print(text)
        if name.startswith("AdamW"):
            ratio = median([row["dtensor_us"] / row["plain_us"] for row in rows])
            print(f"{'  beside plain tensors':32}{ratio:9.2f}x")


def count_instructions():
    """Instructions by callgrind, which are the same however busy the machine is."""
    if not shutil.which("valgrind"):
        print("\nleft out: instruction counts, since there is no valgrind")
        return
    region = "tessera_counted_calls"
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(["valgrind", "--tool=callgrind", f"--toggle-collect={region}",
                        f"--dump-after={region}", f"--callgrind-out-file={folder}/out",
                        program, "count"], timeout=4 * TIMEOUT)
        counts = {}
        for number, row in enumerate(rows, 1):
            text = pathlib.Path(f"{folder}/out.{number}").read_text()
            total = next(line for line in text.splitlines() if line.startswith(("summary:", "totals:")))
            counts[row["name"], row["kind"]] = int(total.split()[1]) / row["repeats"]
    print(f"\n{'instructions per call':32}{'plain':>10}{'DTensor':>10}{'added':>10}")
    for (name, kind), plain in counts.items():
        if kind == "plain":
            distributed = counts[name, "dtensor"]
            print(f"{name:32}{plain:10.0f}{distributed:10.0f}{distributed - plain:10.0f}")


def on_every_engine(what):
    """The commands that run a part of dtensor_bench on four ranks of each engine."""
    commands = {"tessera on threads": [program, what, "--ranks", "4"]}
    if pathlib.Path(tessera_run).exists():
        commands["tessera on gloo"] = [tessera_run, "--nproc-per-node", "4", program, what]
    if shutil.which("mpirun"):
        allow = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        commands["tessera on mpi"] = ["mpirun", *allow, "--oversubscribe", "-n", "4", program, what]
    return commands


def compare_lists():
    print(f"\n{'100 parameters of 16 KB, S(0) -> R':36}{'one by one':>12}{'all at once':>12}{'ratio':>8}")
    for (label, _, _), rows in measure(on_every_engine("list")).items():
        separate = median([row["one_by_one_ms"] for row in rows])
        together = median([row["all_ms"] for row in rows])
        print(f"{label:36}{separate:9.2f} ms{together:9.2f} ms{separate / together:7.1f}x")


def compare_moves():
    commands = on_every_engine("move")
    commands["PyTorch on gloo"] = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
        str(here / "pytorch_bench.py"), "move"]
    times = {}
    for (label, _, _), rows in measure(commands).items():
        times[label] = (median([row["ms"] for row in rows]), min(row["least_ms"] for row in rows))
    base = times.get("PyTorch on gloo")
    print(f"\n{'64 MB, S(0) -> S(1), 4 ranks':32}{'median ms':>10}{'least':>10}"
          f"{'PyTorch is slower by':>24}")
    for name, (time, least) in sorted(times.items(), key=lambda item: item[1]):
        print(f"{name:32}{time:10.1f}{least:10.1f}" + (f"{base[0] / time:23.1f}x" if base else ""))


def compare_with_jax():
    """Both take turns, since what else the machine does changes from one second to the next."""
    if "TESSERA_JAX" not in os.environ:
        print("\nleft out: JAX, since TESSERA_JAX names no interpreter that has it")
        return
    ratios = {"ms": [], "least_ms": [], "cpu_ms": []}
    print(f"\n{'64 MB, S(0) -> S(1), 4 ranks, ms':36}{'threads':>9}{'device_put':>12}{'jit':>8}{'ratio':>8}")
    for number in range(1, JAX_ROUNDS + 1):
        ours = rows_of([program, "move", "--ranks", "4"])
        theirs = rows_of([os.environ["TESSERA_JAX"], str(here / "jax_bench.py")])
        if not ours or not theirs:
            return
        for key, values in ratios.items():
            values.append(min(row[key] for row in theirs) / ours[0][key])
        print(f"{f'  round {number}':36}{ours[0]['ms']:9.1f}{theirs[0]['ms']:12.1f}{theirs[1]['ms']:8.1f}"
              f"{ratios['ms'][-1]:7.1f}x")
    print(f"threads beside the better of JAX's two ways, median of the rounds: "
          f"{median(ratios['ms']):.1f}x by the medians of a round, {median(ratios['least_ms']):.1f}x by its "
          f"least times, {median(ratios['cpu_ms']):.1f}x by the time that all cores spend")


parts = {"ops": compare_ops, "instructions": count_instructions, "moves": compare_moves,
         "jax": compare_with_jax, "lists": compare_lists}
for part in sys.argv[2:] or parts:
    parts[part]()
