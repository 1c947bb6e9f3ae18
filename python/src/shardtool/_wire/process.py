"""A child process that runs the program, and what it writes to stderr."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import weakref
from typing import Optional, Sequence

from .._system import nameless
from ..errors import BinaryError, ServerDiedError
from . import program

logger = logging.getLogger("shardtool")


class Process:
    """The child process. It belongs to the process that started it: a fork forgets it."""

    def _spawn(self, *arguments: str, stdin: int, stdout: int, pass_fds: Sequence[int]) -> None:
        self.pid = os.getpid()
        self.binary = program.find()
        # Not a pipe, which nobody would drain. It is read when there is a reason.
        self._stderr = nameless("shardtool-stderr")
        fcntl.fcntl(self._stderr, fcntl.F_SETFL, os.O_APPEND)
        command = [self.binary, *arguments]
        try:
            self.process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=self._stderr, bufsize=0, pass_fds=pass_fds)
        except OSError as err:
            self._close_stderr()
            raise BinaryError(f"{self.binary} does not start: {err.strerror}") from err
        _alive.add(self)

    def _said(self, most: int = 64 << 10) -> str:
        """Returns the end of what the child wrote to stderr."""
        try:
            size = os.fstat(self._stderr).st_size
            return os.pread(self._stderr, most, max(0, size - most)).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _end(self, seconds: Optional[float]) -> bool:
        """Waits until the child has ended, and kills it after some seconds. Returns whether it
        ended by itself."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:  # a store that does not answer
            self.process.kill()
            self.process.wait()
            return False
        return True

    def _ended(self, what: str, seconds: Optional[float]) -> ServerDiedError:
        """Returns the error for a child that ended."""
        how = "it was killed"
        if self._end(seconds):
            status = self.process.returncode
            how = f"killed by signal {-status}" if status < 0 else f"exit code {status}"
            how += ": the out-of-memory killer does that, look at `dmesg`" if status == -9 else ""
        said = "\n".join(self._said().splitlines()[-20:])
        return ServerDiedError(
            f"shardtool's child process {self.process.pid}: {what} ({how})" + (f"; it said last:\n{said}" if said else "")
        )

    def _close_stderr(self) -> None:
        _alive.discard(self)
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1

    def forget(self) -> None:
        """In a forked process: leaves the child to the parent."""
        self._close_stderr()
        self.process.returncode = 0  # the parent waits for it


_alive: "weakref.WeakSet[Process]" = weakref.WeakSet()


def _after_fork() -> None:
    for process in list(_alive):
        process.forget()
    _alive.clear()


os.register_at_fork(after_in_child=_after_fork)
