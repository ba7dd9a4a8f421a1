"""sources_test.py ROOT BUILD_DIR: no source is forgotten in the lists of the CMakeLists.txt files.

A test that no target compiles would pass for ever. Public headers must be listed too: those that are
not would be missing from the installation.
"""

import json
import pathlib
import sys

SKIPPED = 77

root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
database = build / "compile_commands.json"
if not database.exists():
    print("no compile_commands.json: configured without a preset")
    sys.exit(SKIPPED)


def sources_of(file):
    """The file itself, or those that a file of TESSERA_UNITY includes."""
    if file.parent.name != "Unity":
        return [file]
    lines = file.read_text().splitlines()
    return [pathlib.Path(line.split('"')[1]) for line in lines if line.startswith("#include")]


entries = json.loads(database.read_text())
compiled = {source.resolve() for entry in entries for source in sources_of(pathlib.Path(entry["file"]))}
consumer = root / "tests/install/consumer"
lists = " ".join(file.read_text() for file in (root / "src").rglob("CMakeLists.txt")).split()
listed = {word.rstrip('")').rsplit("/")[-1] for word in lists}
# What stands in for an engine is compiled only where that cannot be built.
stubs = {lists[i + 1].rstrip(")") for i, word in enumerate(lists[:-1]) if word == "STUB"}
forgotten = [
    source.relative_to(root)
    for folder in ("src", "tests", "bench", "tools", "examples")
    for source in sorted((root / folder).rglob("*.cpp"))
    if source not in compiled and consumer not in source.parents and source.name not in stubs
]

forgotten += [
    header.relative_to(root)
    for header in sorted((root / "include").rglob("*.h"))
    if header.name not in listed
]

for file in forgotten:
    print(f"{file}: not listed in any CMakeLists.txt")
sys.exit(1 if forgotten else 0)
