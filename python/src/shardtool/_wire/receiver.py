"""The child process of a writer: frames to it, and its answers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import select
import struct
import subprocess
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from .. import hints
from .._system import PORTABLE, nameless
from ..errors import ShardtoolError, from_body
from .process import Process, logger

#: The version of the frames, and their kinds: see package receive of the program.
PROTOCOL = 5
BEGIN, LAYOUT, SAMPLES, COLUMNS, END, STATE, SHARED, NUMBERS, SHARD, COMMIT = range(1, 11)

#: Size of the pipe. Fewer, larger writes leave more time to both processes.
_PIPE = 1 << 20
_F_SETPIPE_SZ = 1031

#: Slots of the memory that is shared with the child, and their size: frames are smaller, unless a
#: single value is larger. Bodies of fewer bytes than _SHARED_FROM pass through the pipe. The child
#: holds a slot until its samples are in blocks: with 4, encoders wait a quarter of the time.
_SLOTS, _SLOT, _SHARED_FROM = 16, 5 << 20, 32 << 10

#: The most parts of a body that are copied one by one: joining more of them takes less time.
_MANY = 64

Buffer = Union[bytes, bytearray, memoryview]


class _Memory:
    """Memory that is shared with the child. The body of a frame in it is copied once; a pipe copies
    it twice."""

    def __init__(self) -> None:
        self.file = nameless("shardtool-samples")
        try:
            os.ftruncate(self.file, _SLOTS * _SLOT)
            self._map = mmap.mmap(self.file, _SLOTS * _SLOT)
            #: The child writes the number of a slot to the pipe when it has taken the body.
            self._freed, self.free = os.pipe()
        except OSError:
            os.close(self.file)
            raise
        self._slots = list(range(_SLOTS))
        self._poll = select.poll()
        self._poll.register(self._freed, select.POLLIN)

    def described(self) -> Dict[str, int]:
        """The member of BEGIN."""
        return {"file": self.file, "free": self.free, "slots": _SLOTS, "size": _SLOT}

    def inherited(self) -> None:
        """Closes the descriptors that the child has. Only then does the pipe end with it."""
        os.close(self.file)
        os.close(self.free)

    def put(self, parts: Sequence[Buffer], ended: Callable[[], bool]) -> int:
        """Copies a body into a free slot, and returns its number; -1 if the child has ended. Waits
        while the child is busy. The slot that was freed last is in the processor's caches."""
        if not self._slots:
            # The pipe ends with the child, unless a thread forked while the child was started: such
            # a process has a copy of the other end.
            while not self._poll.poll(1000):
                if ended():
                    return -1
            freed = os.read(self._freed, _SLOTS)
            if not freed:
                return -1
            self._slots += freed
        slot = self._slots[-1]
        at = slot * _SLOT
        for part in parts if len(parts) <= _MANY else (b"".join(parts),):
            end = at + len(part)
            self._map[at:end] = part
            at = end
        self._slots.pop()
        return slot

    def close(self) -> None:
        """Closes what ``inherited`` leaves open."""
        if self._freed >= 0:
            os.close(self._freed)
            self._freed = -1
            self._map.close()


def _memory() -> Optional[_Memory]:
    """Returns None if the system has no memory to share, or only as a file; all frames then pass
    through the pipe."""
    try:
        return None if PORTABLE else _Memory()
    except OSError:
        return None


class Child(Process):
    """The process ``shardtool receive``, the pipes to it, and the memory that it shares."""

    def __init__(self, url: str, begin: Dict[str, Any]) -> None:
        self._memory: Optional[_Memory] = None  # until BEGIN has named it
        memory = _memory()
        shared = memory.described() if memory is not None else None
        pass_fds = (memory.file, memory.free) if memory is not None else ()
        try:
            self._spawn("receive", stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=pass_fds)
        except BaseException:
            if memory is not None:
                memory.close()
            raise
        finally:
            if memory is not None:
                memory.inherited()
        assert self.process.stdin is not None
        self._in = self.process.stdin.fileno()
        with contextlib.suppress(OSError):  # the limit of unprivileged users is reached
            fcntl.fcntl(self._in, _F_SETPIPE_SZ, _PIPE)
        self._over = False
        try:
            self.send(BEGIN, [json.dumps(dict(begin, dataset=url, protocol=PROTOCOL, shared=shared)).encode()])
        finally:
            self._memory = memory

    def send(self, kind: int, parts: Sequence[Buffer]) -> None:
        """Sends a frame. Waits while the child is busy. Raises the child's error if it failed."""
        size = sum(map(len, parts))
        if self._memory is not None and _SHARED_FROM <= size <= _SLOT and kind in (SAMPLES, COLUMNS):
            slot = self._memory.put(parts, lambda: self.process.poll() is not None)
            if slot < 0:
                raise self._failed()
            self._write([struct.pack("<QIIQ", SHARED << 56 | 16, slot, kind, size)])
            return
        head = struct.pack("<Q", kind << 56 | size)
        self._write([b"".join((head, *parts))] if size < _PIPE or len(parts) > _MANY else [head, *parts])

    def _write(self, data: Sequence[Buffer]) -> None:
        self._over = True  # a frame that an exception interrupts cannot be continued
        for part in data:
            view = memoryview(part)
            while view:
                try:
                    view = view[os.write(self._in, view) :]
                except BrokenPipeError:
                    raise self._failed() from None
        self._over = False

    def answer(self) -> Dict[str, Any]:
        """Waits for an answer. Raises it if it is an error."""
        assert self.process.stdout is not None
        chunks: List[bytes] = [self._rest]
        while b"\n" not in chunks[-1]:
            chunk = self.process.stdout.read(64 << 10)
            if not chunk:
                raise self._died()
            chunks.append(chunk)
        text, _, rest = b"".join(chunks).partition(b"\n")
        self._rest = rest
        return self._checked(json.loads(text))

    _rest = b""

    def answers(self) -> Dict[str, Any]:
        """Returns the last answer; the child ends after it."""
        assert self.process.stdout is not None
        text = self._rest + self.process.stdout.read()
        lines = text.splitlines()
        if not lines:
            raise self._died()
        return self._checked(json.loads(lines[-1]))

    def _checked(self, said: Dict[str, Any]) -> Dict[str, Any]:
        if said["kind"] == "error":
            body = said["error"]
            raise from_body(body, int(body["code"]), hints.writing)
        return said

    def _failed(self) -> ShardtoolError:
        """The error for which the child stopped reading."""
        try:
            self.answers()
        except ShardtoolError as err:
            return err
        return self._died()

    def _died(self) -> ShardtoolError:
        return self._ended("the child ended", None)

    def close(self) -> None:
        """Ends the child: its input ends, without END nothing is published."""
        if self._stderr < 0 or self.pid != os.getpid():
            return
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        self._end(10)
        process.stdout.close()
        for line in self._said(1 << 20).splitlines():
            if "level=WARN" in line:
                logger.warning("%s", line)
        self._close_stderr()
        if self._memory is not None:
            self._memory.close()

    @property
    def usable(self) -> bool:
        """Whether frames can be sent."""
        return not self._over

    def forget(self) -> None:
        """In a forked process: closes the copies of the pipes. They would keep the child waiting
        after the writer's process has ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if self._stderr >= 0 and self._memory is not None:
            self._memory.close()
        super().forget()
