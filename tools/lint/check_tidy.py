#!/usr/bin/env python3
"""check_tidy.py ROOT BUILD_DIR [JOBS]: clang-tidy has nothing to say about the sources below ROOT.

Checks what BUILD_DIR/compile_commands.json compiles; headers are checked where sources include them.
What was clean is not checked again while its text with all includes, and the configuration, stay the
same: BUILD_DIR/tidy-stamps/ holds a hash of them for each clean source.
"""

import concurrent.futures
import functools
import hashlib
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

FOLDERS = ("src", "tools", "bench", "tests", "examples")
CONFIG = ".clang-tidy"


def find_tool():
    """Returns clang-tidy, version 14 before any other, as the configuration is written for it."""
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        sys.exit("lint: clang-tidy is not installed; run ./dev setup")
    return tool


def check_config(tool, root):
    """Stops on a configuration that cannot be read: clang-tidy would go on with its defaults."""
    dump = subprocess.run([tool, "--dump-config"], cwd=root, capture_output=True, text=True)
    if dump.stderr:
        sys.exit(f"lint: clang-tidy cannot read its configuration:\n{dump.stderr}")


def our_entries(root, build):
    """Returns the compile commands of our own sources, by source."""
    entries = json.loads((build / "compile_commands.json").read_text())
    by_source = {pathlib.Path(entry["file"]).resolve(): entry for entry in entries}
    folders = {root / name for name in FOLDERS}
    return {s: by_source[s] for s in sorted(by_source) if folders & set(s.parents)}


@functools.cache
def version(tool):
    return subprocess.check_output([tool, "--version"])


def fingerprint(tool, root, source, entry):
    """Returns a hash of all that the answer depends on, or None when the source does not compile."""
    command = entry.get("arguments") or shlex.split(entry["command"])
    if "-o" in command:
        at = command.index("-o")
        command = command[:at] + command[at + 2:]
    text = subprocess.run(command + ["-E", "-C"], cwd=entry["directory"], capture_output=True)
    if text.returncode != 0:
        return None
    sha = hashlib.sha256(text.stdout)
    sha.update(repr((command, version(tool))).encode())
    for folder in source.parents:
        if root in (folder, *folder.parents) and (folder / CONFIG).exists():
            sha.update((folder / CONFIG).read_bytes())
    return sha.hexdigest()


def check_source(tool, root, build, source, entry):
    """Returns what clang-tidy has to say about one source, or "" when it is clean."""
    stamp = build / "tidy-stamps" / source.relative_to(root)
    key = fingerprint(tool, root, source, entry)
    if key is not None and stamp.exists() and stamp.read_text() == key:
        return ""
    tidy = subprocess.run(
        [tool, "-p", build, "--quiet", "--extra-arg=-Wno-unknown-warning-option", source],
        capture_output=True, text=True)
    if tidy.returncode != 0:
        return tidy.stdout or tidy.stderr or f"{source}: clang-tidy failed\n"
    if key is not None:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(key)
    return ""


def main(root, build, jobs):
    tool = find_tool()
    check_config(tool, root)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        answers = [
            pool.submit(check_source, tool, root, build, source, entry)
            for source, entry in our_entries(root, build).items()
        ]
        for answer in concurrent.futures.as_completed(answers):
            if answer.result():
                print(answer.result(), end="", flush=True)
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = [pathlib.Path(argument).resolve() for argument in sys.argv[1:3]]
    sys.exit(main(*arguments, int(sys.argv[3]) if len(sys.argv) > 3 else 2))
