"""Processes that fork, die, are interrupted, and end."""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, List

import pytest
from conftest import ROOT, SAMPLES, children, needs_proc
from test_given import client_of
from web import served

import shardtool
from shardtool import Loader, ServerDiedError, Tuning
from shardtool._read.copies import Pool
from shardtool._system import PORTABLE, started


def script(code: str, *args: object, **options: Any) -> "subprocess.Popen[str]":
    """A Python process with the package."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **options
    )


def until(what: Any, seconds: float = 300) -> None:
    """Waits for something to become true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    return not started(pid)


def test_nothing_starts_early(small: Path) -> None:
    loader = Loader(small, 10, shuffle=True)
    copy = pickle.loads(pickle.dumps(loader))
    assert loader.epoch == 0 and loader.state_dict() and repr(loader)
    assert children() == []
    assert next(iter(copy)).size == 10
    assert len(children()) == 1
    copy.close()


def test_child_killed(small: Path) -> None:
    """The error is raised, and then the same loader continues with a new child, after the last
    batch."""
    loader = Loader(small, 10, fields=[], tuning=shardtool.Tuning(prefetch=0))
    numbers: List[int] = []
    for _ in range(5):
        with pytest.raises(ServerDiedError, match="signal 9") as info:
            for batch in loader:
                numbers += batch.numbers
                if len(numbers) % 50 == 0:
                    assert loader._session.client is not None
                    os.kill(loader._session.client.process.pid, signal.SIGKILL)
        assert isinstance(info.value, shardtool.ShardtoolError)
    for batch in loader:
        numbers += batch.numbers
        if len(numbers) == SAMPLES // 2:
            state = loader.state_dict()
    assert numbers == list(range(SAMPLES))
    loader.close()
    with Loader(small, 25, fields=[]) as other:
        other.load_state_dict(state)
        assert sum(b.size for b in other) == SAMPLES // 2


PARENT = """
import sys, time, shardtool
loader = shardtool.Loader(sys.argv[1], 10)
it = iter(loader)
held = next(it)["txt"]
print("ready", flush=True)
if sys.argv[2] == "sleep":
    time.sleep(600)
if sys.argv[2] == "fork":
    import os
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
if sys.argv[2] == "raise":
    raise RuntimeError("in the loop")
if sys.argv[2] == "loop":
    n = 0
    try:
        while True:
            for batch in loader:
                n += 1
                if n == 3: print("looping", flush=True)
    except KeyboardInterrupt:
        state = loader.state_dict()
    at = batch.state_dict()
    assert state == at, (state, at)
    loader.load_state_dict(state)
    assert next(iter(loader)).size == 10
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("how", ["sleep", "fork"])
def test_parent_killed(small: Path, how: str) -> None:
    """However the parent ends, the child ends: also when a process that the parent forked lives
    on."""
    parent = script(PARENT, small, how, start_new_session=True)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    (serve,) = children(parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    until(lambda: gone(serve))
    if how == "fork":
        os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()


def test_signals_are_the_parents(small: Path) -> None:
    """The child survives signals that launchers send to all processes of a job."""
    with Loader(small, 10, fields=[], tuning=shardtool.Tuning(prefetch=0)) as loader:
        it = iter(loader)
        next(it)
        assert loader._session.client is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(loader._session.client.process.pid, number)
        assert sum(b.size for b in it) == SAMPLES - 10


def test_interrupted(small: Path) -> None:
    """Ctrl-C, to the whole group as a terminal sends it, at a random moment of the loop: the state
    is that of the last batch."""
    for _ in range(3):
        process = script(PARENT, small, "loop", start_new_session=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        assert process.stdout.readline() == "looping\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert out == "interrupted\n" and process.returncode == 0, err


def test_callbacks_take_no_interrupt(small: Path) -> None:
    """What runs when an object ends is no code in Python, in which Ctrl-C would be lost."""
    with Loader(small, 10, tuning=Tuning(out="numpy")) as loader:
        batch = next(iter(loader))
        pool = Pool()
        buffer = pool.take(1 << 20)
        client = client_of(loader)
        refs = [*client._live._refs.values(), *pool._live._refs.values()]
        assert len(refs) == (1 if client.private else 2) and batch.size and buffer
        assert all(isinstance(ref.__callback__, types.BuiltinFunctionType) for ref in refs)


def test_exception_in_the_loop(small: Path) -> None:
    """The process ends with its own error and nothing else."""
    process = script(PARENT, small, "raise")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1 and err.splitlines()[-1] == "RuntimeError: in the loop"
    assert err.count("Traceback") == 1 and "Warning" not in err, err
    loader = Loader(small, 10, fields=[])
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            1 / 0
    loader.load_state_dict(loader.state_dict())
    assert next(iter(loader)).numbers[0] == 10
    loader.close()


@pytest.mark.parametrize("held", ["", "held = [b['txt'] for b, _ in zip(loader, range(3))]", "it = iter(loader); next(it); del loader"])
def test_global_at_exit(small: Path, held: str) -> None:
    make = "import sys, shardtool\nloader = shardtool.Loader(sys.argv[1], 10)"
    process = script(f"{make}\nnext(iter(loader))\n{held}\nprint('end')", small)
    out, err = process.communicate(timeout=300)
    assert (out, err, process.returncode) == ("end\n", "", 0)


FORKED = """
import os, sys, json, shardtool
loader = shardtool.Loader(sys.argv[1], 10, fields={"txt": "bytes"})
it = iter(loader)
first = next(it)
def child(name, body):
    r, w = os.pipe()
    if os.fork() == 0:
        try:
            text = body()
        except BaseException as err:
            text = type(err).__name__ + ": " + str(err)
        os.write(w, json.dumps(text).encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        out[name] = json.load(f)
    os.wait()
out = {}
child("inherited", lambda: next(it).numbers)
child("own", lambda: next(iter(loader)).numbers)
child("view", lambda: bytes(first["txt"][0]).decode())
child("gone", lambda: (globals().update(first=None, it=None, loader=None), "fine")[1])
out["numbers"] = first.numbers + [n for b in it for n in b.numbers]
print(json.dumps(out))
loader.close()
"""


def test_fork(small: Path) -> None:
    """A forked process takes nothing from its parent's reader, and starts its own when it
    iterates."""
    process = script(FORKED, small)
    text, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    out = json.loads(text)
    assert out["inherited"].startswith("ClosedError: ") and "forked" in out["inherited"]
    assert out["own"] == list(range(10, 20))
    assert out["view"].startswith("document 0") and out["gone"] == "fine"
    assert out["numbers"] == list(range(SAMPLES))
    assert err == ""


def consume(loader: Loader, steps: int) -> Any:
    numbers = []
    for batch in loader:
        numbers += batch.numbers
        if len(numbers) >= 10 * steps:
            break
    state = loader.state_dict()
    loader.close()
    return numbers, state


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes(small: Path, method: str) -> None:
    """A loader that has iterated here continues in another process, and its state can be sent
    back."""
    loader = Loader(small, 10, fields=[])
    assert next(iter(loader)).numbers == list(range(10))
    with multiprocessing.get_context(method).Pool(1) as pool:
        numbers, state = pool.apply(consume, (loader, 4))
        assert numbers == list(range(10, 50))
        pool.close()
        pool.join()
    loader.load_state_dict(state)
    assert next(iter(loader)).numbers == list(range(50, 60))
    loader.close()


def stop(pid: int) -> None:
    """Stops a child, and waits until all its threads are."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_closed_by_another_thread(small: Path) -> None:
    """close wakes a thread that waits for a batch, which gets an error."""
    loader = Loader(small, 10, fields=[])
    it = iter(loader)
    next(it)
    assert loader._session.client is not None
    stop(loader._session.client.process.pid)
    out: List[Any] = []

    def wait() -> None:
        try:
            while True:
                next(it)
        except shardtool.ShardtoolError as err:
            out.append(err)

    thread = threading.Thread(target=wait)
    thread.start()
    pid = loader._session.client.process.pid
    timer = threading.Timer(0.5, os.kill, (pid, signal.SIGCONT))
    timer.start()
    loader.close()
    thread.join(300)
    timer.join()
    assert len(out) == 1 and isinstance(out[0], shardtool.ClosedError)


def test_closed_between_messages(small: Path) -> None:
    """The same, with the thread at any other place."""
    loader = Loader(small, 10, fields=[])
    next(iter(loader))
    client = loader._session.client
    assert client is not None
    loader.close()
    for call in (lambda: client.send(b""), client.receive, lambda: client.body(1), lambda: client.mapped(1), lambda: client.claim(1, 0)):
        with pytest.raises(shardtool.ClosedError):
            call()


def test_working_directory(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is that of the place where the loader was made."""
    monkeypatch.chdir(small.parent)
    with Loader("out/", 10, fields=[]) as loader, shardtool.open("out") as ds:
        monkeypatch.chdir("/")
        assert next(iter(loader)).size == 10 and len(ds) == SAMPLES
        assert loader.url == "out/"
    generation = next(small.glob("manifest-*.bin")).name[9:25]
    monkeypatch.chdir(small.parent)
    with Loader(f"out/@{generation}", 10, fields=[]) as loader:
        assert len(loader) == 100
    with Loader("out@0123456789abcdef", 10, fields=[]) as loader, pytest.raises(shardtool.NotFoundError, match="no generation"):
        iter(loader)


def test_two_readers(small: Path) -> None:
    with Loader(small, 10, fields=[], shuffle=True, seed=1) as a, Loader(small, 10, fields=[], shuffle=True, seed=1) as b:
        for x, y in zip(a, b):
            assert x.numbers == y.numbers
        assert len(children()) == 2


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_not_asked_for_what_is_there(small: Path, monkeypatch: pytest.MonkeyPatch, prefetch: int) -> None:
    """A slow loop does not wake the child for each batch; batches that it does not request are
    delivered all the same, each once."""
    from shardtool._wire.client import Client

    sent = []
    send = Client.send
    monkeypatch.setattr(Client, "send", lambda self, data: (sent.append(data), send(self, data))[1])
    with Loader(small, 10, fields=["txt"], shuffle=True, seed=1, tail="short", tuning=shardtool.Tuning(prefetch=prefetch)) as loader:
        numbers: List[int] = []
        it = iter(loader)
        client = loader._session.client
        assert client is not None
        before = len(sent)
        for _ in range(100):
            if prefetch:
                select.select([client._sock], [], [], 10)
            numbers += next(it).numbers
        assert sorted(numbers) == list(range(SAMPLES))
        asked = len(sent) - before
        assert asked < 75 if prefetch == 4 else 100 <= asked <= 101
        assert list(it) == []


@needs_proc
def test_the_child_gives_way(small: Path) -> None:
    """The loop's computations come before the child's."""
    with Loader(small, 10, fields=["txt"]) as loader:
        next(iter(loader))
        client = loader._session.client
        assert client is not None
        threads = [int(t) for t in os.listdir(f"/proc/{client.process.pid}/task")]
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert {os.getpriority(os.PRIO_PROCESS, t) for t in threads} == {min(ours + 3, 19)}


@needs_proc
def test_shared_memory_is_not_dev_shm(small: Path) -> None:
    """Segments are no files of /dev/shm, so its size, 64 MB in containers, does not matter."""
    before = set(os.listdir("/dev/shm"))
    with Loader(small, 200) as loader:
        held = list(loader)
        assert set(os.listdir("/dev/shm")) <= before
        maps = Path("/proc/self/maps").read_text()
        assert PORTABLE or "memfd:shardtool" in maps
        del held


HOLDER = """
import sys, os, shardtool
loader = shardtool.Loader(sys.argv[1], 1000)
held = []
while sum(len(memoryview(b.data(f))) for b in held for f in b) < 70 << 20:
    held += loader
assert len({b["txt"][0] == held[0]["txt"][0] for b in held}) == 1
print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
"""


@needs_proc
def test_small_dev_shm(small: Path, tmp_path: Path) -> None:
    """More than 64 MB of batches are held with a /dev/shm of 64 MB, as in containers. If this
    process may not mount one, it uses the existing one."""
    around = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]
    try:
        may = subprocess.run([*around, "true"], capture_output=True, timeout=300, check=False).returncode == 0
    except FileNotFoundError:
        may = False
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    command = [*(around if may else []), sys.executable, "-c", HOLDER, str(small)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 64 << 20 or not may


@needs_proc
def test_no_leak(small: Path) -> None:
    """100 loaders: neither descriptors, nor threads, nor children, nor maps stay."""

    def counts() -> Any:
        gc.collect()
        return (
            len(os.listdir("/proc/self/fd")),
            threading.active_count(),
            children(),
            Path("/proc/self/maps").read_text().count("/shardtool-" if PORTABLE else "memfd:shardtool"),
        )

    def cycle(i: int) -> None:
        loader = Loader(small, 10, fields=["txt"])
        it = iter(loader)
        kept = [next(it)["txt"] for _ in range(i % 4)]
        if i % 3:
            loader.close()
        del kept, it

    cycle(3)
    before = counts()
    for i in range(100):
        cycle(i)
    assert counts() == before


def test_slow_and_dead(small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The client waits for a slow store while the child sends heartbeats, and gives up on a child
    that sends nothing."""
    from shardtool._wire import client as client_module

    for silence in (2, 4, 8, 16):  # a child that a busy machine holds up is silent, too
        monkeypatch.setattr(client_module, "SILENCE", silence)
        with served(small, lambda: time.sleep(1.75 * silence)) as address, Loader(address, 10, fields=["txt"]) as loader:
            it = iter(loader)
            begin = time.monotonic()
            with contextlib.suppress(ServerDiedError if silence < 16 else ()):
                assert next(it).size == 10
                assert time.monotonic() - begin > 1.5 * silence  # longer than a silent child is given
                break
    monkeypatch.setattr(client_module, "SILENCE", 2)
    with Loader(small, 10, fields=["txt"], tuning=shardtool.Tuning(prefetch=0)) as loader:
        it = iter(loader)
        next(it)
        assert loader._session.client is not None
        pid = loader._session.client.process.pid
        stop(pid)
        with pytest.raises(ServerDiedError, match="did not respond for 2 s"):
            next(it)
        assert gone(pid)
        assert next(iter(loader)).numbers[0] == 10


def test_batches_travel(small: Path) -> None:
    """A pickled batch has its bytes and no others, and its state."""
    with Loader(small, 10, fields={"txt": "txt", "tokens": ("int32", (16,))}, tuning=shardtool.Tuning(out="numpy")) as loader:
        batch = next(iter(loader))
        text = pickle.dumps(batch)
        again = pickle.loads(text)
        assert len(text) < 20_000 and again != batch and len({batch, again}) == 2
        assert again["txt"] == batch["txt"] and (again["tokens"] == batch["tokens"]).all()
        assert again.sample_keys == batch.sample_keys and again.state_dict() == batch.state_dict() == loader.state_dict()


def test_errors_travel() -> None:
    """Errors cross processes: pickled, and made from a message alone as torch does."""
    from shardtool import errors

    for name in dir(errors):
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, errors.ShardtoolError):
            err = kind("what", shard="x", block=3, offset=9, key="k", field="f")
            again = pickle.loads(pickle.dumps(err))
            assert type(again) is kind and str(again) == "what" and vars(again) == vars(err)
            assert str(kind("alone")) == "alone"
