"""The memory that batches lie in, and their bytes."""

from __future__ import annotations

import gc
import os
import pickle
import re
import time
from pathlib import Path
from typing import Any, List

import numpy
import pytest
from conftest import SAMPLES, payload

import shardtool
from shardtool import Loader, samples
from shardtool._read import copies
from shardtool._read.run import Run

# Lists of bytes among arrays, before and after them, and fields that some samples lack.
MIXED = {
    "bin": "bytes",
    "tokens": ("int32", (4, 4)),
    "extra": "bytes?",
    "txt": "txt",
    "json": "bytes",
    "ragged.npy": "npy",
    "cls": "int",
}


def check(batch: Any) -> None:
    """A batch has exactly the packed samples."""
    want = [payload(i) for i in batch.numbers]
    for name in ("bin", "json", "extra"):
        assert batch[name] == [w.get(name) for w in want]
        assert [None if p is None else bytes(p) for p in batch.payloads(name)] == [w.get(name) for w in want]
        assert bytes(batch.data(name)) == b"".join(w.get(name, b"") for w in want)
    assert batch["txt"] == [w["txt"].decode() for w in want]
    assert batch["tokens"].tobytes() == bytes(batch.data("tokens")) == b"".join(w["tokens"] for w in want)
    assert [bytes(p) for p in batch.payloads("tokens")] == [w["tokens"] for w in want]
    assert [a.tobytes() for a in batch["ragged.npy"]] == [w["ragged.npy"][128:] for w in want]
    assert batch["cls"].tolist() == [int(w["cls"]) for w in want]
    assert batch["tokens"].ctypes.data % 16 == 0


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("small_is", [0, 1 << 30])
@pytest.mark.parametrize("fields", [MIXED, {**MIXED, "bin": "txt", "extra": "txt?", "json": "json"}])
def test_kept(small: Path, monkeypatch: pytest.MonkeyPatch, small_is: int, fields: Any) -> None:
    """Batches that are kept stay as they were."""
    monkeypatch.setattr(copies, "_SMALL", small_is)
    direct = fields is MIXED
    with Loader(small, 30, fields=fields, tuning=shardtool.Tuning(out="numpy"), shuffle=True, seed=1, tail="short") as loader:
        kept: List[Any] = []
        for i, batch in enumerate(loader):
            if direct:
                check(batch)
                check(pickle.loads(pickle.dumps(batch)))
            if i % 3 == 0:
                kept.append(batch)
            elif i % 3 == 1:
                kept.append((batch["tokens"][1:, 2], batch["tokens"][1:, 2].copy()))
        assert sum(1 for _ in kept) > 20
    for thing in kept:
        if isinstance(thing, tuple):
            assert (thing[0] == thing[1]).all()
        elif direct:
            check(thing)
        else:
            assert thing["tokens"].tobytes() == b"".join(payload(i)["tokens"] for i in thing.numbers)


def test_values_are_the_users(small: Path) -> None:
    """What is done to a list does not touch the payloads."""
    with Loader(small, SAMPLES, fields=["bin"]) as loader:
        (batch,) = loader
        batch["bin"].clear()
        assert batch["bin"] == [] and [bytes(p) for p in batch.payloads("bin")] == [payload(i)["bin"] for i in range(SAMPLES)]


def test_pool() -> None:
    """Memory is reused when nothing refers to it, in any way, and at most two pieces are kept."""
    pool, size = copies.Pool(), 1 << 20
    first = pool.take(size)
    place = numpy.frombuffer(first, "u1").ctypes.data
    view = numpy.frombuffer(first, "u1")[10:20].reshape(2, 5)
    del first
    second = pool.take(size)
    assert numpy.frombuffer(second, "u1").ctypes.data != place  # the view still refers to it
    view[:] = 7
    del view
    third = pool.take(size - 5000)  # nearly the same
    assert numpy.frombuffer(third, "u1").ctypes.data == place
    many = [pool.take(size) for _ in range(5)]
    del many, second, third
    gc.collect()
    pool._settle()
    assert len(pool._free) == 2 and not pool._live
    large = pool.take(8 * size)
    assert len(large) >= 8 * size and len(pool._free) == 1
    assert len(pool.take(100)) == 100


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is in /proc, which only Linux has")
@pytest.mark.parametrize("way", ["Loader", "open"])
def test_a_large_sample_is_in_memory_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """While this process has a sample, the child has it in the shared memory only."""
    size = 96 << 20
    with shardtool.Writer(tmp_path / "out") as w:
        w.write({"__key__": "a", "bin": os.urandom(1 << 20) * (size >> 20)})
    held = []

    def watched(client: Any) -> None:
        status = Path(f"/proc/{client.process.pid}/status")
        end = time.monotonic() + 300  # the child frees it a moment later
        while True:
            held.append(int(re.findall(r"RssAnon:\s*(\d+) kB", status.read_text())[0]) << 10)
            if held[-1] < size or time.monotonic() > end:
                return
            time.sleep(0.01)

    taken, sample = Run._taken, samples._take
    monkeypatch.setattr(Run, "_taken", lambda self, *a: (watched(self.client), taken(self, *a))[1])
    monkeypatch.setattr(samples, "_take", lambda client, frame: (watched(client), sample(client, frame))[1])
    if way == "open":
        with shardtool.open(tmp_path / "out") as ds:
            assert len(ds[0]["bin"]) == size
    else:
        with shardtool.Loader(tmp_path / "out", 1, epochs=1) as loader:
            assert [len(batch["bin"][0]) for batch in loader] == [size]
    assert 0 < held[-1] < size, held
