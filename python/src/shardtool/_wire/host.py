"""One reader a host: the processes of a job on a host share one child. Whatever a process asks for,
it gets what it would get alone: who shares decides nothing but memory, reads and decoding."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from ..errors import BinaryError, ServerDiedError
from . import program
from .client import Client, Joined
from .process import logger

#: Seconds that a process looks for the child of its host before it reads alone.
_LOOKS = 10.0

#: The variables that tell a process its rank: those of one process.
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
    "JOB_COMPLETION_INDEX")  # fmt: skip

#: The variables that identify a job, where its launcher sets them.
_JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE")  # fmt: skip

#: Beginnings of the variables that change what a child does: settings and credentials.
_SETTINGS = ("SHARDTOOL_", "AWS_", "GOOGLE_", "AZURE_", "HF_", "HUGGING", "GO", "HTTP", "http", "NO_PROXY", "no_proxy", "SSL_", "TMPDIR",
    "HOME", "XDG_")  # fmt: skip


def environment() -> Dict[str, str]:
    """Returns the variables that tell this process its rank, for OPEN."""
    return {name: os.environ[name] for name in _RANKS if name in os.environ}


def connect(metrics: str) -> Client:
    """Returns a client of the child of this job on this host. The first process starts it."""
    if not sys.platform.startswith("linux"):
        logger.warning("host=True: processes share a reader on Linux alone; this one reads by itself")
        return Client(metrics)
    name, until, why = _name(metrics), time.monotonic() + _LOOKS, ""
    while time.monotonic() < until:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(name)
            except OSError as err:
                if err.errno != errno.EADDRINUSE:
                    why = str(err)
                    break
            else:
                listener.listen(512)
                return _Owner(metrics, listener)
        try:
            found = _join(name)
        except PermissionError as err:
            why = str(err)
            break
        if found is not None:
            return found
        time.sleep(0.02)  # it is about to listen, or has just ended
    logger.warning(
        "host=True: this process reads alone, which takes memory of its own: %s", why or "the reader of this host does not answer"
    )
    return Client(metrics)


def _join(name: bytes) -> Optional[Client]:
    """Returns a client of the child that listens; None if there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(name)
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.getuid():
            raise PermissionError(f"a process of another user, {pid}, has the name of this job's reader")
        return _Member(sock, pid)
    except (ConnectionError, ServerDiedError, BinaryError) as err:
        sock.close()
        if isinstance(err, BinaryError) and not isinstance(err.__cause__, ServerDiedError):
            raise  # it is another program
        return None
    except BaseException:
        sock.close()
        raise


def _name(metrics: str) -> bytes:
    """Returns the name of the socket: processes of a job have the same one, and others do not."""
    job: List[Any] = [os.environ.get(name) for name in _JOB]
    if not any(job):  # the launcher is all that is known of the job
        parent = os.getppid()
        with contextlib.suppress(OSError), open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as file:
            job += [parent, file.read().rpartition(")")[2].split()[19]]
    with contextlib.suppress(OSError):
        job.append(os.readlink("/proc/self/ns/pid"))
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(_SETTINGS))
    said = repr((os.getuid(), os.getcwd(), program.find(), program.package_version(), metrics, job, settings))
    return b"\0shardtool-" + hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:40].encode()


class _Owner(Client):
    """The client of the process that started the child. The child outlives it while others read."""

    def __init__(self, metrics: str, listener: socket.socket) -> None:
        self._listener = listener
        super().__init__(metrics)

    def _connect(self, options: List[str], *inherited: int) -> None:
        fd = fcntl.fcntl(self._listener.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
        try:
            super()._connect([*options, "--listen", str(fd)], fd, *inherited)
        finally:
            os.close(fd)
            del self._listener

    def _end(self, seconds: Optional[float]) -> bool:
        """Leaves a child that does not end to those who still read."""
        try:
            self.process.wait(0 if self._closed else seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(RuntimeError):  # the interpreter ends
                threading.Thread(target=self.process.wait, daemon=True).start()
            return False
        return True


class _Member(Joined):
    """The client of a process that found the child."""

    ended = "ended: it was killed, or ran out of memory"

    def __init__(self, sock: socket.socket, pid: int) -> None:
        super().__init__(sock, f"the reader of this host, which process {pid} started")
        self._hello()
