"""What only Linux has, and what takes its place on other systems."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

#: Whether to use only what every Unix has: on other systems, and where tests ask for it.
PORTABLE = sys.platform != "linux" or os.environ.get("SHARDTOOL_PORTABLE") == "1"


def nameless(name: str) -> int:
    """Returns the descriptor of a file that no folder has: in memory on Linux, where ``name`` is
    for people who look, and a temporary one elsewhere."""
    if not PORTABLE:
        return os.memfd_create(name, os.MFD_CLOEXEC)
    import tempfile  # takes milliseconds

    with tempfile.TemporaryFile() as f:
        return os.dup(f.fileno())


def address() -> str:
    """Returns an address for a Unix socket to listen at. On Linux the kernel chooses it and it
    leaves no file; elsewhere it is in a folder that only this user can open, and that ends with the
    process."""
    if not PORTABLE:
        return ""
    from multiprocessing import util

    path = os.path.join(util.get_temp_dir(), f"s{secrets.token_hex(4)}")
    if len(os.fsencode(path)) > 100:  # systems allow some 104 bytes
        import shutil
        import tempfile

        folder = tempfile.mkdtemp(prefix="shardtool-", dir="/tmp")
        util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=-100)
        path = os.path.join(folder, "s")
    return path


def close_listener(sock: socket.socket) -> None:
    """Closes a listening socket, and removes the file of its address, if it has one."""
    name = sock.getsockname() if sock.fileno() >= 0 else None
    sock.close()
    if isinstance(name, str) and name:  # bytes are a name that only the kernel has
        with contextlib.suppress(OSError):
            os.unlink(name)


def processors() -> int:
    """The number of processors that this process may use."""
    return (os.cpu_count() or 1) if PORTABLE else len(os.sched_getaffinity(0))


def started(pid: int) -> str:
    """Returns when a process started, to tell it from a later one with the same number; "" if it
    has ended."""
    try:
        if not PORTABLE:
            said = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            return "" if said[0] in "ZX" else said[19]
        ps = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
        done = subprocess.run(ps, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False)
        state, _, when = done.stdout.partition(" ")
        return "" if state.startswith("Z") else when.strip()
    except OSError:
        return ""


def end_with_parent() -> None:
    """From now on, this process ends when its parent does, however that ends."""
    parent = os.getppid()
    if not PORTABLE:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    else:

        def follow() -> None:
            while os.getppid() == parent:
                time.sleep(1)
            os._exit(1)

        threading.Thread(target=follow, name="shardtool-parent", daemon=True).start()
