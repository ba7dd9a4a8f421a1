#!/usr/bin/env python3
"""check_includes.py ROOT: the layers include one another in one direction only.

Prints `file:line: what is wrong` for each violation, and exits with 1 if there is one.
"""

import pathlib
import re
import sys

# What each layer may include besides itself.
CORE = ["base", "layout", "plan"]
LAYERS = {
    "base": [],
    "layout": ["base"],
    "plan": ["base", "layout"],
    "comm": CORE,
    "tensor": CORE + ["comm"],
    "nn": CORE + ["comm", "tensor"],
    "sharded": CORE + ["comm", "tensor", "nn"],
    "checkpoint": CORE + ["comm", "tensor", "nn"],
    "python": CORE + ["comm", "tensor", "nn", "sharded", "checkpoint"],
}

# Too heavy for public headers.
HEAVY = re.compile(
    r"torch/(torch|all|library|extension)\.h$|ATen/ATen\.h$|torch/csrc/distributed/")
STD = re.compile(r"[a-z0-9_]+$")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def check_ours(root, layer, is_public, target):
    """Yields what is wrong with including the file `target` of this repository."""
    parts = target.split("/")
    if parts[0] != "tessera":
        yield f'"{target}" is not a path from tessera/; write "tessera/<layer>/<file>"'
        return
    if is_public and not (root / "include" / target).exists():
        yield f'"{target}" is not a public header'
    if layer is None or len(parts) < 3 or parts[1] == layer:
        return
    if parts[1] not in LAYERS[layer]:
        allowed = ", ".join(LAYERS[layer] + [layer])
        yield f"layer {layer} may not include layer {parts[1]}; it may include: {allowed}"


def check_foreign(layer, is_public, target):
    """Yields what is wrong with including the header <target> of somebody else."""
    if layer in CORE and not STD.match(target):
        yield f"layer {layer} may include the standard library only, not <{target}>"
    elif is_public and HEAVY.match(target):
        yield f"<{target}> is too heavy for a public header; include it in sources"
    elif is_public and target.startswith("torch/nn/") and layer != "nn":
        yield f"only public headers of nn may include <{target}>"


def check_file(root, path):
    """Yields (line, what is wrong) for one file."""
    relative = path.relative_to(root)
    is_public = relative.parts[0] == "include"
    layer = relative.parts[2] if len(relative.parts) > 3 else None
    if layer is not None and layer not in LAYERS:
        yield 1, f"unknown layer {layer}; add it to LAYERS in check_includes.py"
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".h" and "#pragma once" not in lines:
        yield 1, "no `#pragma once`"
    for number, line in enumerate(lines, start=1):
        match = INCLUDE.match(line)
        if match is None:
            continue
        quote, target = match.groups()
        if quote == '"' or target.startswith("tessera/"):
            problems = check_ours(root, layer, is_public, target)
        else:
            problems = check_foreign(layer, is_public, target)
        for problem in problems:
            yield number, problem


def main(root):
    failed = False
    for folder in ["include/tessera", "src/tessera"]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            for number, problem in check_file(root, path):
                print(f"{path.relative_to(root)}:{number}: {problem}", file=sys.stderr)
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
