"""readme_test.py FACT ROOT BUILD_DIR: what README.md and the other papers show is true.

A block of ```console shows a command behind `$ `, and below it all that the command prints; a line
`...` stands for lines that are left out. Commands of our programs are run; others are not.
"""

import pathlib
import re
import shlex
import subprocess
import sys

SKIPPED = 77

# Where the build has the programs that papers show, by what is typed. `./dev` builds them first.
PROGRAMS = {
    "tessera_plan": ["bin/tessera_plan"],
    "./dev demo": ["examples/tessera_demo"],
    "./dev tour": ["bin/tessera_plan", "--tour"],
    "plan_a_move": ["examples/plan_a_move"],
}


def papers(root):
    return sorted([*root.glob("*.md"), *root.glob("docs/*.md")])


def blocks(paper, language):
    """Yields (line number, text) of the fenced blocks of a language."""
    text = paper.read_text(encoding="utf-8")
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 1, match.group(1)


def command_of(line, build):
    """Returns the words to run for a line `$ ...`, or None when it is not one of our programs."""
    for typed, program in PROGRAMS.items():
        if line == f"$ {typed}" or line.startswith(f"$ {typed} "):
            words = [*program, *shlex.split(line[len(typed) + 3:])]
            return [str(build / words[0]), *words[1:]]
    return None


def is_shown(shown, printed):
    """True when `shown` is `printed`, where a line `...` in it may stand for any lines."""
    pattern = "".join(
        "(?:.*\n)*?" if line == "..." else re.escape(line + "\n") for line in shown.splitlines())
    return re.fullmatch(pattern, printed) is not None


def code_is_the_example(root, _):
    shown = [block for _, block in blocks(root / "README.md", "cpp")]
    for example in ("01_first_dtensor", "plan_a_move"):
        if (root / f"examples/{example}.cpp").read_text(encoding="utf-8") not in shown:
            yield f"README.md: no ```cpp block is examples/{example}.cpp as it is; copy the file there"
    shown = [block for _, block in blocks(root / "README.md", "python")]
    if (root / "examples/python/first_dtensor.py").read_text(encoding="utf-8") not in shown:
        yield "README.md: no ```python block is examples/python/first_dtensor.py; copy the file there"


def commands_print_what_is_shown(root, build):
    count = 0
    missing = set()
    for paper in papers(root):
        for number, block in blocks(paper, "console"):
            line, _, shown = block.partition("\n")
            command = command_of(line, build)
            if command is None or not shown:
                continue
            if not pathlib.Path(command[0]).exists():
                missing.add(command[0])
                continue
            run = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
            count += 1
            if not is_shown(shown, run.stdout):
                yield f"{paper.relative_to(root)}:{number}: `{line}` prints\n{run.stdout}"
    print(f"{count} commands were run; not built: {', '.join(sorted(missing)) or 'none'}")
    if count == 0 and missing:
        sys.exit(SKIPPED)
    if count == 0:
        yield "no paper shows a command; are the blocks still ```console?"


def links_lead_somewhere(root, _):
    for paper in papers(root):
        text = re.sub(r"^```\w*\n.*?^```$", "", paper.read_text(encoding="utf-8"),
                      flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if "://" not in target and not (paper.parent / target).exists():
                yield f"{paper.relative_to(root)}: a link leads to {target}, which does not exist"


if __name__ == "__main__":
    fact = {"code_is_the_example": code_is_the_example,
            "commands_print_what_is_shown": commands_print_what_is_shown,
            "links_lead_somewhere": links_lead_somewhere}[sys.argv[1]]
    problems = list(fact(*(pathlib.Path(argument).resolve() for argument in sys.argv[2:])))
    print("\n".join(problems) or "all true")
    sys.exit(1 if problems else 0)
