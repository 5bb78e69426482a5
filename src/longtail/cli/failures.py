"""What a failure looks like from outside: one line on stderr and an exit code (reliability D12)."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from longtail.errors import LongtailError, MachineError, Stopped, UsageError
from longtail.run.escape import shown, terminal

LONGEST = 300  # characters of a message; the advice stands at its end, so the middle goes
# How torch says it, on an accelerator and on a processor.
NO_MEMORY = ("OutOfMemoryError", "DefaultCPUAllocator: can't allocate memory")
BROKEN_PIPE = 128 + 13  # what a program killed by SIGPIPE leaves


@dataclass
class Session:
    """What the error report has to know of the command that failed."""

    debug: bool = False
    folder: Path | None = None  # of the run, where a crash file belongs


class Terminated(BaseException):
    """SIGTERM outside of the training loop, which has its own handler and finishes the step first."""


def terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def report(error: BaseException, session: Session, arguments: Sequence[str]) -> int:
    """Prints what the user needs to know about `error` and returns the exit code."""
    if session.debug and not isinstance(error, typer.Exit):
        traceback.print_exception(error)
    match error:
        case typer.Exit():
            return error.exit_code
        case BrokenPipeError():
            _stop_printing()
            return BROKEN_PIPE
        case KeyboardInterrupt() | typer.Abort():
            return _interrupted(signal.SIGINT)
        case Terminated():
            return _interrupted(signal.SIGTERM)
        case SystemExit():
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        case Stopped():
            if is_main():
                _print(str(error))
            return error.exit_code
        case LongtailError():
            return _known(error)
        case _:
            return _known(_translated(error, session, arguments))


def _translated(error: BaseException, session: Session, arguments: Sequence[str]) -> LongtailError:
    """Errors of others, in our words: click's usage errors, the operating system's, and our own bugs."""
    format_message = getattr(error, "format_message", None)
    if callable(format_message):  # click's, whichever copy of click typer brings
        return UsageError(f"{_sentence(str(format_message()))}; {_help(error)} shows the usage", number=200)
    if isinstance(error, MemoryError) or any(
        sign in f"{type(error).__name__}: {error}" for sign in NO_MEMORY
    ):
        return MachineError(
            "the memory is exhausted; use a smaller batch_size, or smaller images", number=510
        )
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        where = f": {shown(os.fsdecode(error.filename))}" if isinstance(error.filename, str | bytes) else ""
        return MachineError(f"{what.lower()}{where}; mend that, then give the same command again", number=509)
    text = f"{type(error).__name__}: {str(error)[:100]}"
    try:
        where = f"; details in {shown(_crash_file(error, session, arguments))}"
    except LongtailError as trouble:
        where = f"; and no crash file could be written ({str(trouble)[:80]})"
    return LongtailError(f"internal error, {text}{where}; please report it")


def _known(error: LongtailError) -> int:
    # All processes read the same command line; what goes wrong later may be known to one of them alone.
    if is_main() or not isinstance(error, UsageError):
        who = "" if is_main() else f"process {os.environ['RANK']}: "
        _print(f"error[E{error.number}]: {_shortened(who + str(error))}")
    return error.exit_code


def is_main() -> bool:
    """Whether this process speaks for the run: always, unless torchrun started several."""
    return os.environ.get("RANK", "0") == "0"


def _interrupted(number: signal.Signals) -> int:
    if is_main():
        _print(f"stopped by {number.name}")
    return 128 + number


def _crash_file(error: BaseException, session: Session, arguments: Sequence[str]) -> Path:
    """The traceback and the command; no local variables, which may hold other people's data."""
    import platform
    import tempfile
    from importlib.metadata import version

    from longtail.run import fsio

    # Not into a folder that is no run yet: a run is only started in an empty one.
    run = session.folder if session.folder and (session.folder / "recipe.json").is_file() else None
    folder = run or Path(tempfile.mkdtemp(prefix="longtail-"))
    about = f"longtail {version('longtail')}, Python {platform.python_version()}, {platform.platform()}"
    lines = [about, repr(list(arguments)), "", *traceback.format_exception(error)]
    path = folder / (f"crash-{os.environ['RANK']}.txt" if "RANK" in os.environ else "crash.txt")
    fsio.write_file(path, "\n".join(lines).encode("utf-8", errors="backslashreplace"))
    return path


def _help(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return f"{getattr(context, 'command_path', 'longtail')} --help"


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text[:1].lower() + text[1:]


def _shortened(text: str) -> str:
    text = terminal(" ".join(text.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-(LONGEST // 2 - 5) :]}"


def _print(text: str) -> None:
    try:
        print(terminal(text), file=sys.stderr, flush=True)
    except OSError:  # nobody is listening any more
        _stop_printing()


def _stop_printing() -> None:
    """Sends what is still buffered nowhere, so that Python's own exit does not complain about the pipe."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except ValueError:  # closed already
            continue
