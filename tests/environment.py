"""Virtual environments of the tests' Python programs, below the cargo target directory. They need Python 3.9 or newer with `venv`,
and PyPI on the first run."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fail(message):
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


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


def folder(name):
    """The folder of one program's artefacts."""
    work = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / name
    work.mkdir(parents=True, exist_ok=True)
    return work


def environment(work, requirements):
    """The virtual environment with the pinned packages, made anew when the pins or the interpreter change."""
    pins = requirements.read_text()
    stands_for = f"{sys.executable} {sys.version}\n{pins}"
    made, stamp = work / "venv", work / "venv" / "stands-for"
    if stamp.is_file() and stamp.read_text() == stands_for:
        return made
    run([sys.executable, "-m", "venv", "--clear", made], "cannot make a virtual environment")
    install = [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, "--requirement", requirements], f"cannot install {pins.strip()} from PyPI")
    stamp.write_text(stands_for)
    return made
