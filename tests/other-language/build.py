#!/usr/bin/env python3
"""Builds the primitive `greeter-py` as a WebAssembly component: `python3 build.py OUTPUT`.

It needs Python 3.9 or newer with `venv`, and PyPI on the first run: componentize-py is installed, in the version that
`requirements.txt` pins, into a virtual environment below the cargo target directory. A component whose sources have not changed
is not built again. Runs side by side wait for each other.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INTERFACE = ROOT / "wit" / "primitive.wit"
REQUIREMENTS = HERE / "requirements.txt"
APP = "greeter"

# The interfaces that the primitive uses. componentize-py imports a world whole, and the host refuses the import of a capability
# that the manifest does not ask for: the world that is built against is the published one without the other imports.
USED = ("documents", "log")


def fail(message):
    sys.exit(f"build.py: {message}")


def check_python():
    if sys.version_info < (3, 9):
        fail(f"Python 3.9 or newer is needed, this is {sys.version.split()[0]}")
    if any(importlib.util.find_spec(module) is None for module in ("venv", "ensurepip")):
        fail("Python's venv module is missing: `apt-get install python3-venv`")


def run(command, what, **options):
    """Runs a command; its output is shown only where it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        fail(f"{what}\n{done.stdout.strip()}")


def environment(work):
    """The virtual environment with the pinned tools, made anew when the pins or the interpreter change."""
    pins = REQUIREMENTS.read_text()
    stands_for = f"{sys.executable} {sys.version}\n{pins}"
    folder, stamp = work / "venv", work / "venv" / "stands-for"
    if stamp.is_file() and stamp.read_text() == stands_for:
        return folder
    run([sys.executable, "-m", "venv", "--clear", folder], "cannot make a virtual environment")
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, "--requirement", REQUIREMENTS], f"cannot install {pins.strip()} from PyPI")
    stamp.write_text(stands_for)
    return folder


def narrowed(interface):
    """The interface without the imports that the primitive does not use."""
    missing = [name for name in USED if not re.search(rf"^    import {name};$", interface, re.MULTILINE)]
    if missing:
        fail(f"{INTERFACE} has no import of {', '.join(missing)}")
    return re.sub(r"^    import (?!(?:%s);)[a-z-]+;\n" % "|".join(USED), "", interface, flags=re.MULTILINE)


def digest():
    sources = [Path(__file__), INTERFACE, REQUIREMENTS, HERE / f"{APP}.py"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def build(work):
    """Answers where the component is."""
    component = work / f"{APP}-{digest()}.wasm"
    if component.is_file():
        return component
    folder = environment(work)
    interface = work / "primitive.wit"
    interface.write_text(narrowed(INTERFACE.read_text()))
    part = work / f"{APP}.part"
    command = [folder / "bin" / "componentize-py", "--quiet", "--wit-path", interface, "--world", "primitive"]
    # The bytecode of an interpreter that is not the component's would only be in the way.
    command += ["componentize", APP, "--python-path", HERE, "--output", part]
    run(command, "componentize-py refuses", cwd=work, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    for older in work.glob(f"{APP}-*.wasm"):
        older.unlink()
    part.replace(component)
    return component


def main():
    if len(sys.argv) != 2:
        fail("usage: python3 build.py OUTPUT")
    output = Path(sys.argv[1]).absolute()
    check_python()
    work = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / "other-language"
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        component = build(work)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(component, output)


if __name__ == "__main__":
    main()
