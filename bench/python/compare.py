#!/usr/bin/env python3
"""compare.py PACKAGE_DIR: the Python package beside `torch.distributed.tensor`, in one run.

PACKAGE_DIR is the folder that holds the built package `tessera`. Says which bars are met: over the plain
operation at most 2 us and a sixth of PyTorch's; local_map at most 10 us and a sixth of PyTorch's; a
training step three times as fast. Moves, which have no bar, are mostly the time of gloo.
"""

import json
import os
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
package = pathlib.Path(sys.argv[1]).resolve()


def rows_of(script, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               str(ranks), str(here / script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if result.returncode != 0:
        print(f"left out: {script} on {ranks} rank(s): {result.stderr.strip()[-1500:]}")
        return []
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def compare_ops():
    print(f"{'us in Python':34}{'ranks':>6}{'plain':>8}{'Tessera':>9}{'added':>8}{'PyTorch adds':>14}"
          f"{'ratio':>8}  bars")
    for ranks in (1, 2, 4):
        for row in rows_of("ops_bench.py", ranks):
            added, theirs = row["tessera"] - row["plain"], row["pytorch"] - row["plain"]
            bars = ""
            if row["name"].startswith(("x ", "redistribute, nothing")):
                bars = "met" if added <= 2 and added <= theirs / 6 else "MISSED"
            elif row["name"].startswith("local_map"):
                bars = "met" if row["tessera"] <= 10 and added <= theirs / 6 else "MISSED"
            print(f"{row['name']:34}{ranks:6}{row['plain']:8.2f}{row['tessera']:9.2f}{added:8.2f}"
                  f"{theirs:14.2f}{theirs / added:7.1f}x  {bars}")


def compare_training():
    for row in rows_of("training_bench.py", 2):
        ratio = row["pytorch"] / row["tessera"]
        print(f"\n{row['name']}, tensor parallel on {row['ranks']} ranks: Tessera {row['tessera']:.1f} ms, "
              f"PyTorch {row['pytorch']:.1f} ms, {ratio:.1f}x: {'met' if ratio >= 3 else 'MISSED'}")


compare_ops()
compare_training()
