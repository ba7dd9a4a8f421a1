#!/usr/bin/env python3
"""op_database.py: PyTorch's op database on DTensors.

Every op that takes float32 on the CPU, but for random and sparse ones, is called with its sample inputs
twice: with plain tensors, and with DTensors on 1, 2, 3 and 4 ranks whose layouts are drawn at random
among Replicate, every Shard dim and Partial. Values and gradients must be equal. Random ops must give the
same values on every number of ranks.

    op_database.py                        everything; exits with 1 when the bars are not met
    op_database.py --write FILE           the same, and writes the table
    op_database.py --tenth 3              a tenth of the ops, drawn with that seed
    op_database.py --ops add,nn.functional.linear --ranks 2 --verbose
    op_database.py --ranks 4 --records 4.jsonl      a part, and what it found
    op_database.py --read 1.jsonl,4.jsonl --write FILE    the table of parts that were run

Ops run in worker processes, so that one that crashes or hangs is counted and the others go on.
"""

import argparse
import json
import math
import os
import random
import selectors
import subprocess
import sys
import time
import traceback
import zlib

MOST_SAMPLES = 10
OP_LIMIT = 120.0
LAUNCH_LIMIT = 180.0
# The bars: 630 of 637 ops and the six of UNINITIALISED, and of the cases that pass, in percent.
LEAST_OPS = 636
LEAST_SHARE = 75.0

# What draws random numbers; looked at in its own way.
RANDOM = frozenset((
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
    "normal.in_place", "normal.number_mean", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.feature_alpha_dropout.without_train", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "pca_lowrank", "svd_lowrank"))
SPARSE = frozenset(("sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse"))
# Their values are whatever is in memory.
UNINITIALISED = frozenset(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
                           "new_empty_strided"))


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def load_ops():
    """The ops by name, in the database's order."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return {name_of(op): op for op in op_db
            if torch.float32 in op.supported_dtypes("cpu") and name_of(op) not in SPARSE}


# ---- the worker ----------------------------------------------------------------------------------


class Case:
    """One call of an op: a sample, and the layouts of its tensors."""

    def __init__(self, op, sample, seed):
        import torch
        from torch.utils import _pytree as pytree

        self.op = op
        leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.leaves = [leaf.detach().clone().requires_grad_(leaf.requires_grad)
                       if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.generator = random.Random(seed)

    def is_distributed(self):
        """False for calls without tensors, such as zeros: the op does not meet a DTensor."""
        import torch

        return any(isinstance(leaf, torch.Tensor) for leaf in self.leaves)

    def layouts(self):
        """One placement per tensor; the same on all ranks."""
        import torch

        import tessera

        drawn = []
        for leaf in self.leaves:
            if not isinstance(leaf, torch.Tensor):
                drawn.append(None)
                continue
            choices = [tessera.Replicate()] + [tessera.Shard(dim) for dim in range(leaf.dim())]
            if leaf.dtype != torch.bool:
                choices.append(tessera.Partial())
            drawn.append(self.generator.choice(choices))
        return drawn

    def call(self, leaves):
        """Returns the flat results, and the gradients of a weighted sum of them."""
        import torch
        from torch.utils import _pytree as pytree

        value, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.op(value, *args, **kwargs)
        flat, _ = pytree.tree_flatten(result)
        inputs = [leaf for leaf in leaves
                  if isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad]
        outputs = [value for value in flat if isinstance(value, torch.Tensor) and value.requires_grad]
        gradients = []
        if inputs and outputs:
            weights = [weights_like(output) for output in outputs]
            gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
        return flat, list(gradients)


def weights_like(output):
    """Weights that are all different, of the same kind (plain or distributed) as `output`."""
    import torch

    import tessera

    count = max(1, output.numel())
    weights = torch.arange(count, dtype=torch.float64).mul_(0.7).sin_().add_(0.1)
    weights = weights[:output.numel()].reshape(output.shape).to(output.dtype)
    if isinstance(output, tessera.DTensor):
        return tessera.distribute_tensor(weights, output.device_mesh,
                                         [tessera.Replicate()] * output.device_mesh.ndim,
                                         src_data_rank=None)
    return weights


def plain_leaves(case):
    import torch

    return [leaf.detach().clone().requires_grad_(leaf.requires_grad)
            if isinstance(leaf, torch.Tensor) else leaf for leaf in case.leaves]


def whole(value):
    import tessera

    return value.full_tensor() if isinstance(value, tessera.DTensor) else value


def difference(expected, actual, is_shape_only):
    """Says how two results differ, or nothing."""
    import torch

    if isinstance(expected, torch.Tensor) != isinstance(actual, torch.Tensor):
        return f"{type(actual).__name__} instead of {type(expected).__name__}"
    if not isinstance(expected, torch.Tensor):
        same = expected == actual or (isinstance(expected, float) and math.isclose(
            expected, actual, rel_tol=1e-4, abs_tol=1e-5))
        return "" if same else f"{actual!r} instead of {expected!r}"
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return (f"{actual.dtype} {tuple(actual.shape)} instead of {expected.dtype} "
                f"{tuple(expected.shape)}")
    if is_shape_only or expected.numel() == 0:
        return ""
    expected, actual = expected.detach(), actual.detach()
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return "" if torch.equal(expected, actual) else "other values"
    finite = expected[torch.isfinite(expected)]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    if torch.allclose(actual, expected, rtol=1e-4, atol=1e-5 + 1e-5 * scale, equal_nan=True):
        return ""
    gap = (actual - expected).abs()
    return f"values differ by up to {float(gap[torch.isfinite(gap)].max()) if torch.isfinite(gap).any() else math.nan:.3g}"


def run_distributed(case, ranks, expected, is_shape_only):
    """Returns (result, text, bytes, fallbacks) of one case."""
    import tessera
    from tessera import _C

    layouts = case.layouts()

    def distributed(leaf, placement, mesh):
        if placement is None:
            return leaf
        value = tessera.distribute_tensor(leaf.detach(), mesh, [placement], src_data_rank=None)
        return value.requires_grad_(leaf.requires_grad)

    def rank_main(rank):
        mesh = tessera.init_device_mesh("cpu", (ranks,))
        leaves = [distributed(leaf, placement, mesh)
                  for leaf, placement in zip(case.leaves, layouts)]
        traffic, fallbacks = tessera.debug.CommDebugMode(), _C.FallbackLog()
        with traffic:
            flat, gradients = case.call(leaves)
        names = fallbacks.ops()
        del fallbacks
        values = [whole(value) for value in flat], [whole(value) for value in gradients]
        return values, traffic.received_bytes, names

    results = tessera.run_ranks(ranks, rank_main, timeout=30)
    fallbacks = sorted(set(results[0][2]))
    received = sum(result[1] for result in results)
    for rank, ((flat, gradients), _, _) in enumerate(results):
        for kind, wanted, given in (("result", expected[0], flat), ("gradient", expected[1], gradients)):
            if len(wanted) != len(given):
                return "wrong", f"{len(given)} {kind}s instead of {len(wanted)}", received, fallbacks
            for i, (one, other) in enumerate(zip(wanted, given)):
                text = difference(one, other, is_shape_only)
                if text:
                    text = f"{kind} {i} on rank {rank} of {ranks}: {text}; layouts {shown(case, layouts)}"
                    return "wrong", text, received, fallbacks
    return "pass", "", received, fallbacks


def shown(case, layouts):
    return " ".join(f"{tuple(leaf.shape)}{placement}" if placement is not None else repr(leaf)[:40]
                    for leaf, placement in zip(case.leaves, layouts))


def samples_of(op):
    import itertools

    import torch

    torch.manual_seed(0)
    random.seed(0)
    return list(itertools.islice(
        op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd), MOST_SAMPLES))


def draws(sample):
    """True for samples that draw random numbers although the op need not."""
    return sample.kwargs.get("dropout_p", 0.0) > 0.0 and sample.kwargs.get("training", True)


def without_dropout(name, sample):
    """Attention's samples all have dropout, which the check cannot compare."""
    if name == "nn.functional.multi_head_attention_forward":
        sample.args = sample.args[:9] + (0.0,) + sample.args[10:]
    return sample


def check_op(name, op, ranks_list, seed):
    """Yields one record per number of ranks and sample. After ranks have waited for each other in vain there
    are no more: the op has failed, and every sample might take as long."""
    hangs = 0
    for index, sample in enumerate(samples_of(op)):
        if draws(sample):
            continue
        try:
            case = Case(op, without_dropout(name, sample), 0)
            expected = case.call(plain_leaves(case))
        except Exception:  # Not every sample works on its own.
            continue
        for ranks in ranks_list if hangs == 0 else ():
            case.generator = random.Random(zlib.crc32(f"{seed} {name} {index} {ranks}".encode()))
            begin = time.perf_counter()
            try:
                result = run_distributed(case, ranks, expected, name in UNINITIALISED)
            except Exception as error:
                text = "".join(traceback.format_exception_only(type(error), error)).strip()
                case.generator = random.Random(zlib.crc32(f"{seed} {name} {index} {ranks}".encode()))
                result = "error", f"{text[:1500]}; layouts {shown(case, case.layouts())}", 0, []
                hangs += "in time" in text
            yield dict(zip(("result", "text", "bytes", "fallbacks"), result), op=name, sample=index,
                       ranks=ranks, is_distributed=case.is_distributed(),
                       seconds=round(time.perf_counter() - begin, 4))


def check_random_op(name, op, ranks_list):
    """Yields one record per sample: the values must not depend on the number of ranks."""
    import torch

    import tessera

    for index, sample in enumerate(samples_of(op)):
        case = Case(op, sample, 0)
        if not any(isinstance(leaf, torch.Tensor) for leaf in case.leaves):
            continue
        seen, result, text = None, "pass", ""
        for ranks in ranks_list:
            def rank_main(_rank):
                mesh = tessera.init_device_mesh("cpu", (ranks,))
                tessera.manual_seed(7)
                placement = [tessera.Shard(0) if index % 2 else tessera.Replicate()]
                leaves = [tessera.distribute_tensor(
                    leaf.detach(), mesh, placement if leaf.dim() else [tessera.Replicate()],
                    src_data_rank=None) if isinstance(leaf, torch.Tensor) else leaf
                    for leaf in case.leaves]
                with torch.no_grad():
                    return [whole(value) for value in case.call(leaves)[0]]

            try:
                values = tessera.run_ranks(ranks, rank_main, timeout=30)
            except Exception as error:
                result, text = "error", str(error)[:1500]
                break
            for flat in values:
                seen = seen or flat
                texts = [difference(one, other, False) for one, other in zip(seen, flat)]
                if any(texts) and result == "pass":
                    result, text = "wrong", f"on {ranks} ranks: {texts}"
        yield dict(op=name, sample=index, ranks=0, result=result, text=text, bytes=0, fallbacks=[],
                   is_distributed=True, seconds=0)


def worker():
    """Reads names of ops, one per line, and prints records as JSON."""
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    import tessera  # noqa: F401

    ops = load_ops()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        name = job["op"]
        records = (check_random_op(name, ops[name], job["ranks"]) if name in RANDOM else
                   check_op(name, ops[name], job["ranks"], job["seed"]))
        for record in records:
            print(json.dumps(record), flush=True)
        print(json.dumps({"done": name}), flush=True)


# ---- the parent ----------------------------------------------------------------------------------


class Worker:
    """A worker process and the op that it works on."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_JIT": "0"})
        self.buffer = b""
        self.job = None
        self.last = None
        self.deadline = time.monotonic() + LAUNCH_LIMIT

    def start(self, job):
        self.job, self.last = job, None
        self.deadline = time.monotonic() + OP_LIMIT
        self.process.stdin.write(json.dumps(job).encode() + b"\n")

    def lines(self):
        """The lines that came, or None when the process has ended."""
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            return None
        *complete, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in complete if line.startswith(b"{")]

    def stop(self):
        self.process.kill()
        self.process.wait()


def lost(worker, why):
    """The record of an op whose worker was lost."""
    last = worker.last
    text = why if last is None else f"{why} after sample {last['sample']} on {last['ranks']} rank(s)"
    ranks = worker.job["ranks"] if worker.job["op"] not in RANDOM else [0]
    return [dict(op=worker.job["op"], sample=-1, ranks=count, result=why.split()[0], text=text, bytes=0,
                 fallbacks=[], is_distributed=True, seconds=0) for count in ranks]


def run_jobs(jobs, processes, on_record):
    """Runs all jobs and calls on_record for each record."""
    pending = list(reversed(jobs))
    selector = selectors.DefaultSelector()
    workers = set()

    def add():
        worker = Worker()
        workers.add(worker)
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def remove(worker):
        selector.unregister(worker.process.stdout)
        workers.discard(worker)
        worker.stop()

    def next_job(worker):
        if pending:
            worker.start(pending.pop())
        else:
            remove(worker)

    for _ in range(min(processes, len(jobs))):
        add()
    launches = 0
    while workers:
        for key, _ in selector.select(timeout=1.0):
            worker = key.data
            lines = worker.lines()
            if lines is None:
                code = worker.process.wait()
                launches += worker.job is None
                if worker.job is not None:
                    for record in lost(worker, f"crash (exit code {code})"):
                        on_record(record)
                remove(worker)
                if launches > 3:
                    raise SystemExit("op_database: the worker does not start; run it by hand: "
                                     "op_database.py --worker")
                if pending:
                    add()
                continue
            for record in lines:
                if "ready" in record or "done" in record:
                    next_job(worker)
                else:
                    worker.last = record
                    worker.deadline = time.monotonic() + OP_LIMIT
                    on_record(record)
        for worker in [w for w in workers if time.monotonic() > w.deadline]:
            if worker.job is not None:
                for record in lost(worker, f"hang (more than {OP_LIMIT:.0f} s)"):
                    on_record(record)
            remove(worker)
            if pending:
                add()


def verdict(records):
    """The worst result of an op's samples."""
    order = ("wrong", "crash", "hang", "error", "pass")
    return min((record["result"] for record in records), key=order.index) if records else "none"


def summarise(records, names, ranks_list):
    """Returns by number of ranks: how many ops passed, and so on."""
    table = {}
    for record in records:
        table.setdefault((record["op"], record["ranks"]), []).append(record)
    summary = {}
    for ranks in ranks_list:
        verdicts = [verdict(table.get((name, ranks), [])) for name in names]
        cases = [r for r in records if r["ranks"] == ranks]
        passed = [r for r in cases if r["result"] == "pass"]
        distributed = [r for r in passed if r["is_distributed"]]
        served = [r for r in distributed if not r["fallbacks"]]
        summary[ranks] = dict(
            ops=sum(v != "none" for v in verdicts), passed=verdicts.count("pass"),
            wrong=verdicts.count("wrong"), errors=verdicts.count("error"),
            lost=verdicts.count("crash") + verdicts.count("hang"), cases=len(cases),
            passed_cases=len(passed), distributed=len(distributed), by_rule=len(served),
            silent=sum(r["bytes"] == 0 for r in served),
            share=100.0 * len(served) / max(1, len(distributed)))
    return table, summary


INTRODUCTION = """# Conformance

PyTorch 2.13's own op database (`torch.testing._internal.common_methods_invocations.op_db`) on DTensors: every op
that takes float32 on the CPU, but for sparse ones, with up to {samples} of its samples. Each sample is called with
plain tensors, and with DTensors on 1, 2, 3 and 4 ranks whose layouts are drawn at random (seed {seed}) among
Replicate, every Shard dim and Partial. Values must be equal on every rank, and so must the gradients of all inputs
where the op has any.

The script writes this file; do not edit it. To run it again, {command}:

```
./dev build
PYTHONPATH=build/dev/python .venv/bin/python tests/python/op_database.py --write docs/conformance.md
```

`--ops NAME --ranks N --verbose` looks at one op. The tests run a seeded tenth (`PythonTest.op_database`).
"""

LEGEND = """
A case is one sample on one number of ranks. It is served by a rule when no operation in it, forward or backward,
had to replicate all of its inputs for want of one. Cases without any tensor among their arguments (`zeros`,
`signal.windows`) meet no DTensor and do not count there. "Nothing moved" is the share of the cases by a rule in
which no rank received a byte.
"""


def write_table(path, table, summary, random_table, names, ranks_list, arguments):
    with open(path, "w", encoding="utf-8") as file:
        def say(text=""):
            print(text, file=file)

        say(INTRODUCTION.format(samples=MOST_SAMPLES, seed=arguments.seed,
                                command="which takes about seven minutes on two cores"))
        say("| Ranks | Ops | Passed | Wrong values | Errors | Crashes, hangs | Cases passed | By a rule "
            "| Nothing moved |")
        say("|---|---|---|---|---|---|---|---|---|")
        for ranks in ranks_list:
            s = summary[ranks]
            silent = 100.0 * s["silent"] / max(1, s["by_rule"])
            say(f"| {ranks} | {s['ops']} | {s['passed']} | {s['wrong']} | {s['errors']} | {s['lost']} | "
                f"{s['passed_cases']} of {s['cases']} | {s['share']:.1f} % | {silent:.1f} % |")
        say(LEGEND)
        say("## Every op")
        say()
        say("Result on each number of ranks; bytes received by all ranks together, over all samples, on "
            f"{ranks_list[-1]} ranks; and what served it: a rule, or the ops whose inputs were "
            "replicated.")
        say()
        say("| Op | " + " | ".join(str(r) for r in ranks_list) + " | Bytes | Served by |")
        say("|---|" + "---|" * len(ranks_list) + "---|---|")
        for name in sorted(names):
            cells = [verdict(table.get((name, r), [])) for r in ranks_list]
            if set(cells) == {"none"}:
                continue
            last = table.get((name, ranks_list[-1]), [])
            fallbacks = sorted({op for r in ranks_list for record in table.get((name, r), [])
                                for op in record["fallbacks"]})
            served = "rule" if not fallbacks else "fallback: " + ", ".join(fallbacks)
            say(f"| {name} | " + " | ".join(cells) +
                f" | {sum(record['bytes'] for record in last)} | {served} |")
        say()
        say("## Random ops")
        say()
        say("The same seed must give the same values on 1, 2, 3 and 4 ranks.")
        say()
        say("| Op | Result |")
        say("|---|---|")
        for name in sorted(random_table):
            say(f"| {name} | {verdict(random_table[name])} |")
        failures = [r for records in table.values() for r in records if r["result"] != "pass"]
        failures += [r for records in random_table.values() for r in records if r["result"] != "pass"]
        if failures:
            say()
            say("## What fails")
            say()
            seen = set()
            for record in failures:
                text = " ".join(record["text"].split()).replace("|", "/")[:300]
                key = (record["op"], text.split(";")[0])
                if key not in seen:
                    seen.add(key)
                    say(f"- {record['op']}, {record['ranks']} rank(s), sample {record['sample']}: "
                        f"{record['result']}: {text}")


def parse_arguments(names):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2,3,4")
    parser.add_argument("--ops", default="", help="names, separated by commas")
    parser.add_argument("--tenth", type=int, help="a seed: only a tenth of the ops")
    parser.add_argument("--part", default="0/1", help="1/4: the second of four parts of the ops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2)))
    parser.add_argument("--write", help="the file that gets the table")
    parser.add_argument("--records", help="a file that gets all records, as JSON lines")
    parser.add_argument("--read", default="", help="such files, separated by commas; nothing is run")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.ops.split(",") if name and name not in names]
    if unknown:
        parser.error(f"no such op: {', '.join(unknown)}")
    return arguments


def chosen(names, arguments):
    """The ops that the arguments ask for, in the database's order."""
    if arguments.ops:
        names = arguments.ops.split(",")
    if arguments.tenth is not None:
        drawn = set(random.Random(arguments.tenth).sample(names, len(names) // 10))
        names = [name for name in names if name in drawn]
    part, parts = (int(number) for number in arguments.part.split("/"))
    return names[part::parts]


def run_all(names, ranks_list, arguments):
    """Runs the ops and returns all records; shows what fails."""
    jobs = [dict(op=name, ranks=ranks_list, seed=arguments.seed) for name in names]
    records = []
    file = open(arguments.records, "w", encoding="utf-8") if arguments.records else None

    def on_record(record):
        records.append(record)
        if file is not None:
            print(json.dumps(record), file=file, flush=True)
        if record["result"] != "pass" or arguments.verbose:
            print(f"{record['op']}, sample {record['sample']}, {record['ranks']} rank(s): "
                  f"{record['result']} {record['text'][:600]} {record['fallbacks'] or ''}", flush=True)

    begin = time.monotonic()
    run_jobs(jobs, arguments.jobs, on_record)
    print(f"took {time.monotonic() - begin:.0f} s")
    return records


def read_records(files):
    records = []
    for path in files.split(","):
        with open(path, encoding="utf-8") as file:
            records += [json.loads(line) for line in file]
    return records


def is_good(summary, random_verdicts, is_all):
    """Prints how the bars are met. Of a part of the ops one may fail, and the share is its own."""
    good = "wrong" not in random_verdicts
    for ranks, counts in summary.items():
        print(f"{ranks} rank(s): {counts['passed']} of {counts['ops']} ops pass, {counts['wrong']} with "
              f"wrong values, {counts['errors']} with errors, {counts['lost']} crash or hang; "
              f"{counts['passed_cases']} of {counts['cases']} cases, {counts['share']:.1f} % by a rule")
        needed = LEAST_OPS if is_all else counts["ops"] - 1
        good = good and counts["wrong"] == 0 and counts["passed"] >= needed
        good = good and (counts["share"] >= LEAST_SHARE or not is_all)
    print(f"random ops: {random_verdicts.count('pass')} of {len(random_verdicts)} the same on all "
          "numbers of ranks")
    return good


def main():
    if sys.argv[1:] == ["--worker"]:
        worker()
        return 0
    all_names = list(load_ops())
    arguments = parse_arguments(all_names)
    ranks_list = [int(ranks) for ranks in arguments.ranks.split(",")]
    names = chosen(all_names, arguments)
    records = (read_records(arguments.read) if arguments.read
               else run_all(names, ranks_list, arguments))
    ordinary = [name for name in names if name not in RANDOM]
    table, summary = summarise([r for r in records if r["op"] not in RANDOM], ordinary, ranks_list)
    random_table = {}
    for record in records:
        if record["op"] in RANDOM:
            random_table.setdefault(record["op"], []).append(record)
    if arguments.write:
        write_table(arguments.write, table, summary, random_table, ordinary, ranks_list, arguments)
    verdicts = [verdict(entries) for entries in random_table.values()]
    return 0 if is_good(summary, verdicts, names == all_names) else 1


if __name__ == "__main__":
    sys.exit(main())
