"""Decoding in worker processes: shares of work out, images back in order, and no silence when one dies.

Each worker has its own pipe. It works through its shares in order and a thread of it sends the images, so it
runs ahead of the training step. All that lies in shared memory is the number of the image in hand: it names
the file when a process dies or hangs. (When a worker of torch's DataLoader dies, the error is raised by a
signal handler, in whatever line the main thread is at, and names no file.)
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.errors import DataError, LongtailError
from longtail.keys import Key

Method = Literal["fork", "spawn", "forkserver"]


@dataclass(frozen=True, eq=False)
class Share:
    """Images to decode. `places` are their places in the epoch's order, from which their draws follow."""

    key: Key | None
    places: NDArray[np.int64]
    indices: NDArray[np.int64]

    def part(self, first: int, step: int) -> Share:
        return Share(self.key, self.places[first::step], self.indices[first::step])


Work = Callable[[Share, Callable[[int], None]], Iterator[bytes]]  # told what it has in hand: an index


class _Worker(NamedTuple):
    process: Any  # the process class of a context has no public name
    connection: Connection
    in_hand: Any


class Team:
    """Worker processes, each doing every n-th image. Use it as a context: leaving it ends them."""

    def __init__(
        self,
        work: Work,
        where: Callable[[int], str],
        *,
        count: int,
        timeout: float,
        method: Method | None = None,
    ):
        if method is None and sys.platform == "linux":
            method = "fork"  # starts in milliseconds, copies no list of files, and needs no __main__ guard
        self.where, self.timeout = where, timeout
        self.members: list[_Worker] = []
        context: Any = multiprocessing.get_context(method)
        for _ in range(count):
            ours, theirs = context.Pipe()
            in_hand = context.RawValue("q", -1)
            # A forked child also holds our ends of the pipes so far. It closes them: else no pipe would end.
            inherited = [m.connection for m in self.members] + [ours]
            closes = inherited if context.get_start_method() == "fork" else []
            process = context.Process(target=_serve, args=(work, theirs, in_hand, closes), daemon=True)
            with warnings.catch_warnings():
                # Python warns of forking beside threads. The child uses none of them, and no lock of theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self.members.append(_Worker(process, ours, in_hand))

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.process.terminate()
            member.connection.close()
        for member in self.members:
            member.process.join(5)

    def ask(self, share: Share) -> None:
        """Image i of the share goes to worker i modulo the count."""
        for number, member in enumerate(self.members):
            try:
                member.connection.send(share.part(number, len(self.members)))
            except OSError as error:
                raise self._lost(member) from error

    def fetch(self, number: int, room: memoryview) -> None:
        """Puts image `number` of the oldest share into `room`."""
        member = self.members[number % len(self.members)]
        ready = wait([member.connection, member.process.sentinel], self.timeout)
        if not ready:
            raise DataError(
                f"{self._in_hand(member)}: no pixels after {self.timeout:g} s of reading and decoding; "
                "is the disk or network stuck?",
                number=320,
            )
        try:
            trouble = member.connection.recv()
            if trouble is None:
                member.connection.recv_bytes_into(room)
        except (EOFError, OSError) as error:
            raise self._lost(member) from error
        if trouble is not None:
            text, code = trouble
            raise DataError(text, number=code)

    def _lost(self, member: _Worker) -> DataError:
        member.process.join(1)
        code = member.process.exitcode
        how = "ended" if code is None else f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {-code}" + (" (out of memory?)" if code == -signal.SIGKILL else "")
        return DataError(f"{self._in_hand(member)}: the worker process that read it {how}", number=321)

    def _in_hand(self, member: _Worker) -> str:
        index = member.in_hand.value
        return self.where(index) if index >= 0 else "before the first image"


def _serve(work: Work, connection: Connection, in_hand: Any, closes: list[Connection]) -> None:
    """A worker's life: shares in, images out, until the pipe ends or the process is told to go."""
    # The main process decides when to stop; an inherited handler of its own must not run here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in closes:
        other.close()
    answers: queue.SimpleQueue[tuple[tuple[str, int] | None, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_send, args=(connection, answers), daemon=True).start()

    def hold(index: int) -> None:
        in_hand.value = index

    while True:
        try:
            share = connection.recv()
        except (EOFError, OSError):  # the main process is gone
            return
        try:
            for pixels in work(share, hold):
                answers.put((None, pixels))
        except LongtailError as error:
            answers.put(((str(error), error.number), b""))


def _send(connection: Connection, answers: queue.SimpleQueue[tuple[tuple[str, int] | None, bytes]]) -> None:
    while True:
        trouble, pixels = answers.get()
        try:
            connection.send(trouble)
            if trouble is None:
                connection.send_bytes(pixels)
        except OSError:  # the main process is gone: hold no lock of its for the rest of the share
            os._exit(0)
