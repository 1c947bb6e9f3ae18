"""What a data set's process and the DataLoader's workers tell each other beside the batches: where an iteration begins, and where it is.

It is a file of memory with notes. Each has one writer: the process that owns the data set, or a worker. Nothing
waits for anything here; notes that are being written are read again.
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

from ..errors import ShardtoolError
from ..stats import Stalls, Stats

#: What the owner asked for: {"asked": number of the request, "state": where to begin, "ranks": rank and world size}.
MAIN = 0
#: The iteration begun last: see relay.
ITERATION = 1
#: Where worker 0 listens.
RELAY = 2
#: How many batches loops have got: see loop.
LOOPS = 3
#: How a StatefulDataLoader resumes the iteration that its workers are started for: see loop.
RESUMES = 4
#: What all workers that read have counted: see Board.add.
STATS = 5


def restored_by(worker: int) -> int:
    """The note of a worker with the state that it was given for the iteration after the one that ITERATION tells of."""
    return 6 + 2 * worker


def left_by(worker: int) -> int:
    """The note of a worker that ended in order, without ever having asked for a batch."""
    return 7 + 2 * worker


_SPAN = 1 << 30  # offsets; memory is taken only for what is written
_head = struct.Struct("<II")  # length, CRC-32


class Board:
    """The notes. It travels to processes that multiprocessing starts, by fork or otherwise; a plain pickle of it is refused."""

    def __init__(self) -> None:
        #: The process that owns it, which is the parent of the workers that use it.
        self.owner = os.getpid()
        #: What the members of one data set have in common, and others cannot know.
        self.secret = secrets.token_hex(16)
        #: Counts the processes that it was handed to, so that workers of one iterator know each other.
        self.ticket = 0
        #: What the owner knows of loops, by ticket and turn: see loop.
        self.loops: Dict[Tuple[int, int], Tuple[int, str]] = {}
        self._fd = os.memfd_create("shardtool-board", os.MFD_CLOEXEC)

    def __getstate__(self) -> Dict[str, Any]:
        if context.get_spawning_popen() is None:
            raise TypeError("a board goes to processes that multiprocessing starts, and nowhere else")
        return {**self.__dict__, "_fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fd = state["_fd"].detach()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Bound above, as names of this module may be gone: at the end of the process other modules' objects outlive it.
        fd, self._fd = getattr(self, "_fd", -1), -1
        if isinstance(fd, int) and fd >= 0:
            close(fd)

    def write(self, note: int, value: Dict[str, Any]) -> None:
        """Replaces a note. Only its writer does."""
        data = json.dumps(value).encode()
        os.pwrite(self._fd, _head.pack(len(data), zlib.crc32(data)) + data, note * _SPAN)

    def add(self, note: int, more: Stats) -> None:
        """Adds to figures that many processes count in one note."""
        with contextlib.suppress(OSError, ShardtoolError):  # figures are no reason to fail
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, note * _SPAN)
            try:
                self.write(note, (self.stats(note) + more).as_dict())
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, note * _SPAN)

    def stats(self, note: int) -> Stats:
        """Such figures."""
        said = self.read(note)
        return Stats(**{**said, "stalls": Stalls(**said["stalls"])}) if said else Stats()

    def read(self, note: int) -> Optional[Dict[str, Any]]:
        """A note; None if it was never written."""
        for _ in range(2000):
            head = os.pread(self._fd, _head.size, note * _SPAN)
            if len(head) < _head.size:
                return None
            length, crc = _head.unpack(head)
            if length == 0:
                return None  # what lies before a later note
            data = os.pread(self._fd, length, note * _SPAN + _head.size)
            if zlib.crc32(data) == crc and len(data) == length:
                value: Dict[str, Any] = json.loads(data)
                return value
            time.sleep(0.001)
        raise ShardtoolError(
            "a worker of the DataLoader was stopped while it wrote down where the iteration is: say where to"
            " go on, by load_state_dict or set_epoch"
        )
