"""Starts `longtail` commands as processes of their own, by fork, so that torch is imported only once.

Reads one job per line ({"argv", "log", "die"}); answers with the process id, later with the exit code and the
seconds of processor time that were used.
`die` names a function and the number of its call at which the process kills itself with SIGKILL.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time

PRELOAD = ("longtail.cli.main", "longtail.cli.display", "longtail.engine.fit", "longtail.recipes.catalogue")


def main() -> None:
    for name in PRELOAD:
        importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(command(job))
        print(pid, flush=True)
        _, status, used = os.wait4(pid, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)


def command(job: dict[str, object]) -> int:
    log = os.open(str(job["log"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if job.get("die"):
        fatal(*job["die"])
    if job.get("slow"):
        slow(*job["slow"])
    sys.argv = ["longtail", *job["argv"]]
    try:
        importlib.import_module("longtail.cli.main").run()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def fatal(module: str, path: str, number: int, moment: str) -> None:
    """Kills this process at a call of a function: before it, or after it."""
    holder, name, real = found(module, path)
    calls = 0

    def dies(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*given, **named)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, dies)


def slow(module: str, path: str, seconds: float) -> None:
    holder, name, real = found(module, path)

    def sleeps(*given: object, **named: object) -> object:
        time.sleep(seconds)
        return real(*given, **named)

    setattr(holder, name, sleeps)


def found(module: str, path: str) -> tuple[object, str, object]:
    holder: object = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    return holder, name, getattr(holder, name)


if __name__ == "__main__":
    main()
