"""Batches belong to the loop from delivery on: kept, dropped, written to, and what forked processes
see of them."""

from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, List

import pytest
from conftest import ROOT, SAMPLES, needs_proc, payload

import shardtool
from shardtool import Loader, Tuning
from shardtool._system import PORTABLE
from shardtool._wire.client import Client

FIELDS = {"tokens": ("uint8", (64,)), "bin": "view", "txt": "txt"}
NUMPY = Tuning(out="numpy", ring_memory="256KiB", prefetch=3)

given = pytest.mark.skipif(PORTABLE, reason="other systems have copies of batches")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of 20 KB: 200 MB in ten epochs."""
    url = tmp_path_factory.mktemp("given") / "out"
    rng = random.Random(4)
    with shardtool.Writer(url) as w:
        for i in range(1000):
            w.write({"__key__": f"{i:04d}", "x": i.to_bytes(8, "little") + rng.randbytes(20_472)})
    return url


def check(batch: Any) -> None:
    """A batch has exactly the packed samples."""
    want = [payload(i) for i in batch.numbers]
    assert batch["tokens"].tobytes() == b"".join(w["tokens"] for w in want)
    assert [bytes(v) for v in batch["bin"]] == [w["bin"] for w in want]
    assert batch["txt"] == [w["txt"].decode() for w in want]


def client_of(loader: Any) -> Client:
    client = loader._session.client
    assert client is not None
    return client  # type: ignore[no-any-return]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("memory")
def test_a_thousand_batches(small: Path) -> None:
    """More are kept than may be ahead; they are right after the child has ended, and released in
    any order while others come."""
    rng = random.Random(1)
    with Loader(small, 10, fields=FIELDS, shuffle=True, seed=1, tail="short", tuning=NUMPY) as loader:
        kept: List[Any] = []
        while len(kept) < 1000:
            kept += list(loader)
        for batch in kept:
            check(batch)
        for i in range(1000):
            del kept[rng.randrange(len(kept))]
            if i % 100 == 0:
                kept += list(loader)
        kept += list(loader)
        numbers = sorted(n for batch in kept[-100:] for n in batch.numbers)
        assert numbers == list(range(SAMPLES))
        del batch
    for batch in kept:
        check(batch)


@given
@needs_proc
def test_memory_falls(large: Path) -> None:
    """What the loop has dropped goes back to the system with the next batch."""

    def shared(pid: int) -> int:
        return int(re.findall(r"RssShmem:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0]) << 10

    with Loader(large, 10, fields=["x"], tuning=Tuning(out="numpy", prefetch=2)) as loader:
        kept = [batch for _ in range(10) for batch in loader]
        pids = (os.getpid(), client_of(loader).process.pid)
        assert sum(len(batch.data("x").tobytes()) for batch in kept) == 10 * 1000 * 20_480
        assert all(shared(pid) > 150 << 20 for pid in pids)
        random.Random(2).shuffle(kept)
        del kept[500:]
        assert next(iter(loader)).size == 10
        until(lambda: all(shared(pid) < 140 << 20 for pid in pids))
        kept.clear()
        assert next(iter(loader)).size == 10
        until(lambda: all(shared(pid) < 30 << 20 for pid in pids))
        for batch in loader:
            assert [int.from_bytes(p[:8], "little") for p in batch.payloads("x")] == batch.numbers


@pytest.mark.usefixtures("memory")
def test_written_to(small: Path) -> None:
    """A write to an array reaches no other batch, and not the data."""
    with Loader(small, 10, fields=FIELDS, tuning=NUMPY) as loader:
        kept = []
        for epoch in range(3):
            for i, batch in enumerate(loader):
                assert batch["tokens"].tobytes() == b"".join(payload(n)["tokens"] for n in batch.numbers)
                batch["tokens"][:] = i + epoch
                batch["bin"][0][:] = bytes(len(batch["bin"][0]))
                if i % 2:
                    kept.append((i + epoch, batch))
        for value, batch in kept:
            assert (batch["tokens"] == value).all() and not any(batch["bin"][0])
            assert [bytes(v) for v in batch["bin"][1:]] == [payload(n)["bin"] for n in batch.numbers[1:]]


@pytest.mark.usefixtures("memory")
def test_the_child_is_killed(small: Path) -> None:
    """Batches stay, and the loader goes on with another child."""
    with Loader(small, 10, fields=FIELDS, tuning=NUMPY) as loader:
        kept = [batch for _, batch in zip(range(50), loader)]
        os.kill(client_of(loader).process.pid, signal.SIGKILL)
        client_of(loader).process.wait()
        for batch in kept:
            check(batch)
        with pytest.raises(shardtool.ServerDiedError):
            kept += list(loader)
        kept += list(loader)
        del kept[::2], batch
        kept += list(loader)
        for batch in kept:
            check(batch)


@given
def test_a_small_array_keeps_no_batch(large: Path, small: Path) -> None:
    """An array is in the memory of its batch, unless that is many times as large."""
    with Loader(large, 10, fields={"x": ("uint8", (20_480,))}, tuning=NUMPY) as loader:
        kept = [next(iter(loader))["x"]]
        client = client_of(loader)
        assert len(client._live) == 1
        kept[0][:] = 1  # ours
    with Loader(small, 30, fields={"bin": "bytes", "cls": "int", "ragged.npy": "npy", "tokens": ("uint8", (64,))}, tuning=NUMPY) as loader:
        kept = [batch["cls"] for batch in loader]
        gc.collect()
        client_of(loader)._settle_dropped()
        assert not client_of(loader)._live and sum(map(len, kept)) == SAMPLES


def forked(body: Callable[[], Any]) -> Any:
    """Starts a fork that returns what a function does when it is told to go on: a function that
    tells it to, and returns the result."""
    (go, tell), (result, say) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)  # if the test fails
        try:
            os.read(go, 1)
            out = body()
        except BaseException as err:
            out = repr(err)
        os.write(say, json.dumps(out).encode())
        os._exit(0)
    os.close(go)
    os.close(say)

    def finish() -> Any:
        os.write(tell, b"x")
        os.close(tell)
        with os.fdopen(result, "rb") as f:
            out = json.load(f)
        os.waitpid(pid, 0)
        return out

    return finish


@pytest.mark.usefixtures("memory")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_forks(small: Path) -> None:
    """A forked process that keeps views reads the same bytes, however far the loop has gone since,
    and what it writes stays there. When it has ended, the memory is used again."""
    with Loader(small, 10, fields=FIELDS, tuning=NUMPY) as loader:
        it = iter(loader)
        for _ in range(2):
            batch = next(it)
            numbers, first, view = list(batch.numbers), batch["tokens"], batch["bin"][3]

            def look(first: Any = first, view: Any = view) -> Any:
                seen = [first.tobytes().hex(), bytes(view).hex()]
                first[:] = 0
                return seen

            fork, again = forked(look), forked(look)
            later = [next(it) for _ in range(3)]
            del batch, first, view, look
            later += [next(it) for _ in range(20)]
            want = [payload(n) for n in numbers]
            seen = [b"".join(w["tokens"] for w in want).hex(), want[3]["bin"].hex()]
            for _ in range(2):  # loops, in which memory is used again and again
                for batch in loader:
                    check(batch)
            client = client_of(loader)
            assert fork() == seen
            assert bool(client._owed) == (not client.private)
            assert again() == seen
            for batch in loader:
                check(batch)
            for batch in later:
                check(batch)
            client._unpin()
            assert not client._owed and not client._forks
            it = iter(loader)


@given
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_writes(small: Path) -> None:
    """What a process and its fork write to a batch, each does to its own; kept batches too whose
    child has ended."""
    with Loader(small, 10, fields=FIELDS, tuning=NUMPY) as loader:
        batch = next(iter(loader))
        array, was = batch["tokens"], batch["tokens"].copy()

        def write() -> bool:
            array[:] = 9
            return bool((array == 9).all())

        fork = forked(write)
        assert fork() and (array == was).all()
        fork = forked(write)
    assert fork() and (array == was).all()
    fork = forked(write)
    assert fork() and (array == was).all()
    array[:] = 3
    assert (array == 3).all()


@given
@pytest.mark.filterwarnings("ignore:.*fork")
def test_forks_leave_nothing(small: Path) -> None:
    """Forks at each step: neither descriptors nor memory stay."""
    with Loader(small, 10, fields=FIELDS, tuning=NUMPY) as loader:
        counts = []
        kept = next(iter(loader))
        for i in range(60):
            batch = next(iter(loader))
            assert forked(lambda batch=batch: batch.numbers)() == batch.numbers
            if i >= 10:
                counts.append((len(os.listdir("/proc/self/fd")), len(client_of(loader)._segments), len(client_of(loader)._owed)))
        assert max(counts) == min(counts) or max(c[2] for c in counts) <= 1, counts
        assert max(c[:2] for c in counts) == min(c[:2] for c in counts), counts
        check(kept)


@given
def test_no_memory(large: Path, tmp_path: Path) -> None:
    """Where the system has no more memory, the error says how much the program keeps; what it has
    stays right, and the loop goes on once it lets go of some."""
    # A file of a segment lies in TMPDIR with SHARDTOOL_PORTABLE=1: a small one there has an end.
    program = f"""
import sys, shardtool
from shardtool._wire.client import Client
Client.private = False
loader = shardtool.Loader({str(large)!r}, 10, fields=["x"], tuning=shardtool.Tuning(out="numpy", prefetch=1))
kept = []
for attempt in range(2):
    try:
        while True:
            for batch in loader:
                kept.append(batch)
    except shardtool.ShardtoolError as err:
        print(str(err))
    assert all(int.from_bytes(p[:8], "little") == n for batch in kept for n, p in zip(batch.numbers, batch.payloads("x")))
    print(len(kept))
    kept.clear()
    batch = None
"""
    env = {**os.environ, "SHARDTOOL_PORTABLE": "1", "TMPDIR": str(tmp_path / "small"), "PYTHONPATH": str(ROOT / "python" / "src")}
    (tmp_path / "small").mkdir()
    around = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount -t tmpfs -o size=40m tmpfs {tmp_path}/small && exec "$@"', "sh"]
    try:
        may = subprocess.run([*around, "true"], capture_output=True, timeout=300, check=False).returncode == 0
    except FileNotFoundError:
        may = False
    if not may:
        pytest.skip("this process may not mount a file system")
    done = subprocess.run([*around, sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 4 and int(said[1]) > 50 and int(said[3]) > 50, done.stdout
    for text, count in ((said[0], int(said[1])), (said[2], int(said[3]))):
        kept = re.search(r"batches that the program keeps (\d+):", text)
        assert kept is not None and int(kept[1]) >= 205_000 * (count - 2), text


def test_copy_is_answered(small: Path) -> None:
    """The option that is gone says so, and changes nothing."""
    for value in (True, False):
        with pytest.warns(DeprecationWarning, match=r'copy=...\) has no effect: .* as "view"'):
            tuning = Tuning(copy=value, out="numpy")
        assert tuning == Tuning(out="numpy")
        with Loader(small, 10, fields={"bin": "bytes"}, tuning=tuning) as loader:
            assert type(next(iter(loader))["bin"][0]) is bytes
    try:
        raise shardtool.ShardtoolError("x")
    except (shardtool.HeldError, shardtool.ShardtoolError):  # programs that catch it go on
        pass


def test_views(small: Path) -> None:
    """The word gives memoryviews, by batches and samples, and None for a sample without the
    field."""
    fields = {"bin": "view", "extra": "view?"}
    with Loader(small, 100, fields=fields) as loader:
        for batch in loader:
            want = [payload(n) for n in batch.numbers]
            assert all(type(v) is memoryview for v in batch["bin"])
            assert batch["bin"] == [w["bin"] for w in want] and batch["extra"] == [w.get("extra") for w in want]
            assert batch["extra"].count(None) > 0
    with shardtool.open(small, fields=fields) as samples:
        assert type(samples[3]["bin"]) is memoryview and samples[3]["bin"] == payload(3)["bin"]
