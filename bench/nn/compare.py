#!/usr/bin/env python3
"""compare.py BENCH_DIR: one training step of a GPT on 2x2 ranks beside PyTorch.

Everything is measured in one run, in turns, on this machine; of each the best round counts, as others may
use the machine in between. BENCH_DIR has the built programs. The interpreter that runs this must have
torch.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROUNDS = 5
TIMEOUT = 300
MESH = "dp=2,tp=2"

bench = pathlib.Path(sys.argv[1]).resolve()
here = pathlib.Path(__file__).resolve().parent
program = str(bench / "gpt_bench")
tessera_run = str(bench.parent / "bin/tessera_run")


def row_of(command):
    """The JSON object that a program prints; None when it cannot be run."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"left out: {command[0]}: {error}")
        return None
    # tessera_run puts the rank in front of every line.
    rows = [line[line.index("{"):] for line in result.stdout.splitlines() if '{"name"' in line]
    if result.returncode != 0 or not rows:
        print(f"left out: {' '.join(command)}: {result.stderr.strip().splitlines()[-1:]}")
        return None
    return json.loads(rows[0])


def commands():
    all_ = {}
    for style in ("dp+tp", "dp+sp", "fsdp+tp", "fsdp+sp"):
        all_[f"Tessera {style} on threads"] = [program, style, MESH, "--ranks", "4"]
    if pathlib.Path(tessera_run).exists():
        all_["Tessera dp+tp on gloo"] = [
            tessera_run, "--nproc-per-node", "4", program, "dp+tp", MESH, "--engine", "gloo"]
    if shutil.which("mpirun"):
        allow = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        all_["Tessera dp+tp on mpi"] = [
            "mpirun", *allow, "--oversubscribe", "-n", "4", program, "dp+tp", MESH, "--engine", "mpi"]
    all_["PyTorch dp+tp on gloo"] = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4",
        str(here / "pytorch_gpt.py")]
    return all_


def main():
    seen = {}
    for _ in range(ROUNDS):
        for label, command in commands().items():
            row = row_of(command)
            if row is not None:
                seen.setdefault(label, []).append(row)
    times = {label: min(row["ms"] for row in rows) for label, rows in seen.items()}
    base = times.get("PyTorch dp+tp on gloo")
    print(f"{'GPT step, 2x2 ranks':30}{'ms':>9}{'PyTorch is slower by':>22}"
          f"{'received by a rank':>20}{'collectives':>13}")
    for label, time in sorted(times.items(), key=lambda item: item[1]):
        row = seen[label][-1]
        ratio = f"{base / time:21.1f}x" if base else " " * 22
        print(f"{label:30}{time:9.1f}{ratio}{row['received_bytes'] / 1e6:17.2f} MB"
              f"{row['collectives']:13}")


if __name__ == "__main__":
    main()
