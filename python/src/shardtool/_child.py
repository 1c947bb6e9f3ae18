"""The child process of a writer: frames to it, and its answers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import struct
import subprocess
import weakref
from typing import Any, Dict, List, Sequence, Union

from . import _binary
from .errors import BinaryError, ConfigError, ServerDiedError, ShardtoolError, from_body

logger = logging.getLogger("shardtool")

#: The version of the frames, and their kinds: see package receive of the program.
PROTOCOL = 1
BEGIN, LAYOUT, SAMPLES, COLUMNS, END, STATE = 1, 2, 3, 4, 5, 6

#: Size of the pipe. Fewer, larger writes leave more time to both processes.
_PIPE = 1 << 20
_F_SETPIPE_SZ = 1031

Buffer = Union[bytes, bytearray, memoryview]


class Child:
    """The process ``shardtool receive`` and the pipes to it."""

    def __init__(self, url: str, begin: Dict[str, Any]) -> None:
        if not hasattr(os, "memfd_create"):
            raise ConfigError("shardtool's Python package needs Linux")
        self.pid = os.getpid()
        binary = _binary.find()
        self._stderr = os.memfd_create("shardtool-stderr", os.MFD_CLOEXEC)
        fcntl.fcntl(self._stderr, fcntl.F_SETFL, os.O_APPEND)
        try:
            self.process = subprocess.Popen(
                [binary, "receive", "--", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0
            )
        except OSError as err:
            os.close(self._stderr)
            raise BinaryError(f"{binary} does not start: {err.strerror}") from err
        assert self.process.stdin is not None
        self._in = self.process.stdin.fileno()
        with contextlib.suppress(OSError):  # the limit of unprivileged users is reached
            fcntl.fcntl(self._in, _F_SETPIPE_SZ, _PIPE)
        self._over = False
        _children.add(self)
        self.send(BEGIN, [json.dumps(dict(begin, protocol=PROTOCOL)).encode()])

    def send(self, kind: int, parts: Sequence[Buffer]) -> None:
        """Sends a frame. Waits while the child is busy. Raises the child's error if it failed."""
        size = sum(map(len, parts))
        head = struct.pack("<Q", kind << 56 | size)
        many = 64  # parts that are joined: a copy takes less time than a system call for each
        data: List[Buffer] = [b"".join((head, *parts))] if size < _PIPE or len(parts) > many else [head, *parts]
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
        """Waits for an answer. Raises the error that it is."""
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
            raise from_body(body, int(body["code"]))
        return said

    def _failed(self) -> ShardtoolError:
        """The error for which the child stopped reading."""
        try:
            self.answers()
        except ShardtoolError as err:
            return err
        return self._died()

    def _died(self) -> ShardtoolError:
        status = self.process.wait()
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        if status == -9:
            how += ": the out-of-memory killer does that, look at `dmesg`"
        last = "\n".join(self._said().splitlines()[-20:])
        return ServerDiedError(f"shardtool's child process {self.process.pid} ended ({how})" + (f"; it said last:\n{last}" if last else ""))

    def _said(self) -> str:
        size = os.fstat(self._stderr).st_size
        return os.pread(self._stderr, min(size, 1 << 20), max(0, size - (1 << 20))).decode("utf-8", "replace")

    def close(self) -> None:
        """Ends the child: its input ends, without END nothing is published."""
        _children.discard(self)
        if self._stderr < 0 or self.pid != os.getpid():
            return
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:  # a store that does not answer
            process.kill()
            process.wait()
        process.stdout.close()
        for line in self._said().splitlines():
            if "level=WARN" in line:
                logger.warning("%s", line)
        os.close(self._stderr)
        self._stderr = -1

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
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1
        self.process.returncode = 0  # the parent waits for it


_children: "weakref.WeakSet[Child]" = weakref.WeakSet()


def _after_fork() -> None:
    for child in list(_children):
        child.forget()
    _children.clear()


os.register_at_fork(after_in_child=_after_fork)
