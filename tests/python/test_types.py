"""What a type checker says of a program that uses the package, and of the package."""

import os
import pathlib

import pytest

import tessera

api = pytest.importorskip("mypy.api")


def errors_in(folder, *arguments):
    # What mypy knows of torch is worth keeping from run to run.
    cache = os.environ.get("TESSERA_MYPY_CACHE", str(folder))
    text, errors, _ = api.run(["--cache-dir", cache, "--no-error-summary", *arguments])
    assert errors == ""
    return [line for line in text.splitlines() if "error:" in line]


def test_a_program_with_types(tmp_path):
    program = pathlib.Path(__file__).with_name("typed_program.py")
    assert errors_in(tmp_path, "--strict", "--follow-imports=silent", str(program)) == []
    wrong = tmp_path / "wrong.py"
    text = program.read_text()
    assert text.count("[Shard(0)]") == 2
    wrong.write_text(text.replace("[Shard(0)]", "Shard(0)"))
    found = errors_in(tmp_path, "--strict", "--follow-imports=silent", str(wrong))
    assert len(found) == 2 and "Shard" in found[0]


def test_the_package_has_no_errors(tmp_path):
    assert errors_in(tmp_path, str(pathlib.Path(tessera.__file__).parent.resolve())) == []
