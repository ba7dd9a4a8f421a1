"""wheel_test.py SOURCE_DIR BUILD_DIR [CMAKE_DEFINE=VALUE...]: the wheel, built, looked into, installed and used.

The wheel is built with the flags of the build that the test belongs to, so that ccache has its objects.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SKIPPED = 77


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], text=True, capture_output=True, **options)
    assert result.returncode == 0, f"{command}:\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def build(source, folder, defines, target):
    options = ["-C", f"build-dir={folder}", "-C", "cmake.build-type=RelWithDebInfo"]
    for define in defines:
        options += ["-C", f"cmake.define.{define}"]
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", target,
        *options, source)
    wheels = list(target.glob("*.whl"))
    assert len(wheels) == 1 and wheels[0].name.startswith("tessera-0.1.0-cp3"), wheels
    return wheels[0]


def check_contents(wheel, source):
    package = source / "python" / "tessera"
    expected = {f"tessera/{path.relative_to(package).as_posix()}" for path in package.rglob("*")
                if path.suffix in (".py", ".pyi") or path.name == "py.typed"}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    compiled = {name for name in names if name.endswith(".so")}
    assert names - compiled == expected, names ^ expected
    assert len(compiled) == 1 and next(iter(compiled)).startswith("tessera/_C."), compiled


def check_use(wheel, source, folder):
    site = folder / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", site, wheel)
    library = next((site / "tessera").glob("_C.*.so"))
    assert "$ORIGIN/../torch/lib" in run("readelf", "-d", library), "torch would not be found beside it"
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    where = run(sys.executable, "-c", "import tessera; print(tessera.__file__)", cwd=folder, env=environment)
    assert where.startswith(str(site)), where
    shown = run(sys.executable, source / "examples" / "python" / "first_dtensor.py", cwd=folder,
                env=environment)
    assert "DTensor(shape=(16, 32)" in shown, shown


def main():
    if importlib.util.find_spec("scikit_build_core") is None:
        print("skipped: scikit-build-core is not installed")
        sys.exit(SKIPPED)
    source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        temporary = pathlib.Path(name)
        wheel = build(source, folder, sys.argv[3:], temporary)
        check_contents(wheel, source)
        check_use(wheel, source, temporary)


if __name__ == "__main__":
    main()
