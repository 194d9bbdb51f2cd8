#!/usr/bin/env python3
"""Builds the primitive `greeter-py` as a WebAssembly component: `python3 build.py OUTPUT`.

It needs Python 3.9 or newer with `venv`, and PyPI on the first run: componentize-py is installed, in the version that
`requirements.txt` pins, into a virtual environment below the cargo target directory. A component whose sources have not changed
is not built again. Runs side by side wait for each other.
"""

import fcntl
import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True

from environment import ROOT, check_python, environment, fail, folder, run  # noqa: E402

INTERFACE = ROOT / "wit" / "primitive.wit"
REQUIREMENTS = HERE / "requirements.txt"
APP = "greeter"

# The interfaces that the primitive uses. componentize-py imports a world whole, and the host refuses the import of a capability
# that the manifest does not ask for: the world that is built against is the published one without the other imports.
USED = ("documents", "log")


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
    made = environment(work, REQUIREMENTS)
    interface = work / "primitive.wit"
    interface.write_text(narrowed(INTERFACE.read_text()))
    part = work / f"{APP}.part"
    command = [made / "bin" / "componentize-py", "--quiet", "--wit-path", interface, "--world", "primitive"]
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
    work = folder("other-language")
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        component = build(work)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(component, output)


if __name__ == "__main__":
    main()
