"""Measures what runs in a child: time, processor time of all its processes, the most memory they had."""

import atexit
import contextlib
import glob
import os
import pickle
import select
import signal
import tempfile
import threading
import time
import traceback

TICK = os.sysconf("SC_CLK_TCK")
SAMPLE = 0.1  # seconds between two looks at the memory


class Failed(Exception):
    """The measured code failed; the text is the reason."""


def tree(pid):
    """A process and all its descendants."""
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        found.append(at)
        for path in glob.glob(f"/proc/{at}/task/*/children"):
            with contextlib.suppress(OSError), open(path) as f:
                todo += map(int, f.read().split())
    return found


def cpu():
    """Seconds of processor time of this process and of its descendants, including those that have ended."""
    used = time.process_time() + sum(os.times()[2:4])
    for pid in tree(os.getpid())[1:]:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
            used += sum(map(int, f.read().rpartition(")")[2].split()[11:15])) / TICK
    return used


def memory(pids):
    """MiB that processes hold together: private and shared memory, each page once, and no mapped files."""
    kib = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as f:
            kib += sum(int(line.split()[1]) for line in f if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return kib / 1024


def fetched():
    """Bytes that this process and its descendants have had read from a disk."""
    size = 0
    for pid in tree(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/io") as f:
            size += next(int(line.split()[1]) for line in f if line.startswith("read_bytes:"))
    return size


def forget(folder):
    """Drops files from the page cache."""
    os.sync()
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Group:
    """A control group of Linux, version 1 or 2, whose processes and the files that they read hold so many bytes of memory."""

    def __init__(self, most):
        old = "/sys/fs/cgroup/memory"
        at, name = (old, "memory.limit_in_bytes") if os.path.isdir(old) else ("/sys/fs/cgroup", "memory.max")
        self.folder = f"{at}/shardtool-bench-{os.getpid()}"
        try:
            os.mkdir(self.folder)
            self.write(name, most)
        except OSError as err:
            raise Failed(f"memory cannot be limited here: {err}") from err

    def write(self, name, value):
        with open(f"{self.folder}/{name}", "w") as f:
            f.write(str(value))

    def close(self):
        for _ in range(100):  # killed processes take a moment to leave
            with contextlib.suppress(OSError):
                return os.rmdir(self.folder)
            time.sleep(0.02)


def since_start():
    """Seconds since this process was started, including the start of its interpreter."""
    with open("/proc/self/stat") as f:
        began = int(f.read().rpartition(")")[2].split()[19]) / TICK
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def in_child(work, limit, most=0):
    """Runs work in a fork, which has what is imported here, and returns its result and the peak of memory in MiB.

    Failed when it raises, ends without a result, or takes longer than limit seconds. All processes that it started are ended.
    With most, they and the files that they read have so many bytes of memory.
    """
    group = Group(most) if most else None
    out, into = os.pipe()
    with tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            os.close(out)
            child(work, into, log, group)
        os.close(into)
        with contextlib.suppress(OSError):  # the child does it too: whoever is first
            os.setpgid(pid, pid)
        patience = 0  # with a child that is late, or when this process is terminated
        try:
            data, peak = watch(pid, out, time.monotonic() + limit)
            patience = 0 if data is None else 4
        finally:
            os.close(out)
            end(pid, patience)
            if group:
                group.close()
        if data is None:
            raise Failed(f"no result after {limit:.0f} s")
        ok, value = pickle.loads(data) if data else (False, None)
        if not ok:
            log.seek(0)
            raise Failed(value or "it ended: " + (last_line(log.read().decode(errors="replace")) or "it was killed, as where memory is short"))
    return value, peak


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def reason(err):
    """An error in one line. An error of a DataLoader's worker has its message in the last of many lines."""
    text = last_line(str(err)) if " worker process " in str(err) else str(err).partition("\n")[0]
    return text if " worker process " in str(err) else f"{type(err).__name__}: {text}"


def child(work, into, log, group):
    """The child's side: never returns."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    try:
        if group:
            group.write("cgroup.procs", os.getpid())
        result = True, work()
    except BaseException as err:
        traceback.print_exc()
        result = False, reason(err)
    with os.fdopen(into, "wb") as f:
        pickle.dump(result, f)
    # Loaders that hold shared memory give it back at the end of a process, and some wait for their workers there.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in tree(os.getpid())[1:]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    threading.Timer(3, os._exit, [0]).start()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    os._exit(0)


def watch(pid, out, deadline):
    """Reads a child's result, None if it is late, and looks at its memory until there is one."""
    data, peak = [], 0.0
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([out], [], [], min(SAMPLE, left))[0]:
            peak = max(peak, memory([os.getpid(), *tree(pid)]))
            continue
        part = os.read(out, 1 << 20)
        if not part:
            return b"".join(data), peak
        data.append(part)
    return None, peak


def end(pid, patience):
    """Waits for a child some seconds, and ends it and all of its group."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG)[0] == 0:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
