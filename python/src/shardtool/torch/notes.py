"""Notes that a data set's process and the DataLoader's workers exchange: where an iteration begins,
and how far it is.

The notes are in a file in memory. Each has one writer: the process that owns the data set, or a
worker. No reader waits; a note that is being written is read again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import struct
import time
import zlib
from multiprocessing import context, reduction
from typing import Any, Callable, Dict, Optional, Tuple

from .._system import nameless
from ..errors import ShardtoolError
from ..stats import Stats
from .lent import Lender

#: The owner's latest request: {"asked": its number, "state": where to begin, "ranks": rank and
#: world size}.
MAIN = 0
#: How many batches loops have received: see loops.
LOOPS = 1
#: The sum of the statistics of all workers that read: see Board.add.
STATS = 2

#: Each live iterator of a DataLoader has its own notes, found by the ticket of its worker 0. After
#: so many tickets, an iterator that lives on may lose its notes to another: see relay.
SLOTS = 64


def _of(ticket: int, which: int) -> int:
    return 8 + which * SLOTS + ticket % SLOTS


def asked_by(asked: int) -> int:
    """Returns the note with a request of the owner, as in MAIN, by its number."""
    return _of(asked, 0)


def relay_of(ticket: int) -> int:
    """Returns the note with the address of worker 0."""
    return _of(ticket, 1)


def iteration_of(ticket: int) -> int:
    """Returns the note of the iteration that an iterator began last: see relay."""
    return _of(ticket, 2)


def resumes_of(ticket: int) -> int:
    """Returns the note that says how a StatefulDataLoader resumes an iteration: see loops."""
    return _of(ticket, 3)


def left_by(ticket: int, worker: int) -> int:
    """Returns the note of a worker that exited normally without requesting a batch."""
    return _of(ticket, 4 + 2 * worker)


def restored_by(worker: int) -> int:
    """Returns the note with the state that a worker was given for the iteration after the
    newest."""
    return _of(0, 5 + 2 * worker)


_SPAN = 1 << 26  # bytes of a note; only pages that are written take memory
_head = struct.Struct("<II")  # length, CRC-32


class Board:
    """The notes. A board can be sent to processes that multiprocessing starts, in any way, but not
    pickled otherwise."""

    def __init__(self) -> None:
        #: The process that owns it, the parent of the workers that use it.
        self.owner = os.getpid()
        #: A secret that only the processes of one data set have.
        self.secret = secrets.token_hex(16)
        #: The number of processes that received it, by which workers of one iterator know each
        #: other.
        self.ticket = 0
        #: The owner's records of loops, by ticket and turn: see loops.
        self.loops: Dict[Tuple[int, int], Any] = {}
        #: Where the workers of the iterator that is starting them lend batches; None if it is not
        #: known.
        self.lender: Optional[Lender] = None
        #: The seed of that iterator if its loop reads by itself, see loops: its workers are idle.
        self.alone: Optional[int] = None
        self._fd = nameless("shardtool-board")

    def __getstate__(self) -> Dict[str, Any]:
        if context.get_spawning_popen() is None:
            raise TypeError("only processes that multiprocessing starts can receive a board")
        return {**self.__dict__, "_fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fd = state["_fd"].detach()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # A default argument, because the interpreter may have cleared this module at exit.
        fd, self._fd = getattr(self, "_fd", -1), -1
        if isinstance(fd, int) and fd >= 0:
            close(fd)

    def write(self, note: int, value: Dict[str, Any]) -> bytes:
        """Replaces a note. Only its writer may call this. Returns what the note begins with."""
        data = json.dumps(value).encode()
        head = _head.pack(len(data), zlib.crc32(data))
        os.pwrite(self._fd, head + data, note * _SPAN)
        return head

    def begins(self, note: int, head: bytes) -> bool:
        """Whether a note begins so: it is as it was written."""
        return os.pread(self._fd, _head.size, note * _SPAN) == head

    def add(self, note: int, more: Stats) -> None:
        """Adds to statistics that several processes sum in one note."""
        with contextlib.suppress(OSError, ShardtoolError):  # statistics must not make a job fail
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, note * _SPAN)
            try:
                self.write(note, (self.stats(note) + more).as_dict())
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, note * _SPAN)

    def stats(self, note: int) -> Stats:
        """Returns the statistics in a note."""
        said = self.read(note)
        return Stats._from_dict(said) if said else Stats()

    def read(self, note: int) -> Optional[Dict[str, Any]]:
        """Returns a note; None if it was never written."""
        for _ in range(2000):
            head = os.pread(self._fd, _head.size, note * _SPAN)
            if len(head) < _head.size:
                return None
            length, crc = _head.unpack(head)
            if length == 0:
                return None  # a gap before a later note
            data = os.pread(self._fd, length, note * _SPAN + _head.size)
            if zlib.crc32(data) == crc and len(data) == length:
                value: Dict[str, Any] = json.loads(data)
                return value
            time.sleep(0.001)
        raise ShardtoolError(
            "a worker of the DataLoader was killed while it recorded the place of the iteration: set the place with load_state_dict"
            " or set_epoch"
        )
