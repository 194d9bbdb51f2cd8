#!/usr/bin/env python3
"""Serves localstripe, a stateful emulation of Stripe's API, on a free port of 127.0.0.1 alone, and prints its address.

It is installed, in the version that `requirements.txt` pins, into a virtual environment below the cargo target directory. Its own
program listens everywhere and keeps its state in a file for all: this one does neither. Runs side by side wait for each other's
installation.
"""

import fcntl
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True

SERVE = "--serve"


def install():
    from environment import check_python, environment, folder

    check_python()
    work = folder("localstripe")
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = environment(work, HERE / "requirements.txt")
    python = str(made / "bin" / "python")
    os.execv(python, [python, "-B", str(Path(__file__).resolve()), SERVE])


def serve():
    import asyncio

    from aiohttp import web
    from localstripe import resources, server

    resources.Store.dump_to_disk = lambda self: None

    async def main():
        runner = web.AppRunner(server.app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


if __name__ == "__main__":
    serve() if sys.argv[1:] == [SERVE] else install()
