"""What the workers of a DataLoader deliver stays where the reader put it: the loop gets the values
of a Loader, and may keep them, drop them and write to them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import torch
import torch.utils.data
from conftest import SAMPLES, needs_proc, payload
from torch.utils.data import DataLoader
from torch_help import views

import shardtool
from shardtool import Batch, Dataset, Loader
from shardtool._system import PORTABLE
from shardtool.torch import lent

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*fork"),
    # Where a tensor was in transit, PyTorch opens ten files to count descriptors, and closes none.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

FIELDS: Dict[str, Any] = {
    "tokens": ("uint8", (64,)), "bin": "bytes", "txt": "txt", "json": "json", "cls": "int", "x.npy": "npy", "ragged.npy": "npy",
    "extra": "bytes?",
}  # fmt: skip

lends = pytest.mark.skipif(PORTABLE, reason="other systems have copies of batches")


def loop(dataset: Dataset, **options: Any) -> "DataLoader[Any]":
    return DataLoader(dataset, batch_size=None, **{"num_workers": 2, **options})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker lends three batches."""
    monkeypatch.setattr(lent, "_MOST", 3)


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    """Grows with each batch that is lent to this process."""
    out: List[Any] = []
    borrow = lent.Lender.borrow

    def counted(self: Any, message: Any) -> Any:
        out.append(message.slot)
        return borrow(self, message)

    monkeypatch.setattr(lent.Lender, "borrow", counted)
    return out


def plain(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), str(value.tolist())  # text, because some are no numbers
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def check(batch: Any) -> None:
    """A batch has exactly the packed samples."""
    want = [payload(i) for i in batch.numbers]
    assert batch["tokens"].numpy().tobytes() == b"".join(w["tokens"] for w in want)
    assert batch["bin"] == [w["bin"] for w in want]
    assert batch["txt"] == [w["txt"].decode() for w in want]
    assert batch["cls"].tolist() == [int(w["cls"]) for w in want]


def as_it_is(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("map", [None, as_it_is, views], ids=["", "as it is", "views"])
def test_values(small: Path, method: str, map: Any, borrowed: List[Any]) -> None:
    """Values of all kinds are those of a Loader, of the same types."""
    options: Dict[str, Any] = {"fields": FIELDS, "shuffle": True, "seed": 2, "tail": "short", "map_batch": map}
    with Loader(small, 48, **options) as loader:
        want = [{name: plain(value) for name, value in batch.items()} for batch in loader]
    ways = (None, as_it_is) if method == "fork" else (None,)
    for collate in ways:
        got = list(loop(Dataset(small, 48, **options), multiprocessing_context=method, collate_fn=collate))
        assert [{name: plain(value) for name, value in batch.items()} for batch in got] == want

    assert len(borrowed) == (0 if PORTABLE else len(ways) * len(want))


def test_through_another_data_set(small: Path, borrowed: List[Any]) -> None:
    """What other code in a worker takes and sends is not lent."""
    want = [list(range(i, i + 50)) for i in range(0, SAMPLES, 50)]
    got = list(DataLoader(Around(Dataset(small, 50, fields=FIELDS)), batch_size=None, num_workers=2))
    assert [batch.numbers for batch in got] == want and not borrowed
    for batch in got:
        check(batch)


class Around(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """A data set over ours, which stores what it gets."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        yield from self.dataset


@pytest.mark.parametrize("persistent", [False, True])
def test_kept(small: Path, persistent: bool, few: None) -> None:
    """More are kept than are lent; they are right after the workers have ended, and dropped in any
    order while others come."""
    rng = random.Random(1)
    batches = loop(Dataset(small, 10, fields=FIELDS, shuffle=True, seed=1, tail="short"), persistent_workers=persistent)
    kept: List[Any] = []
    for _ in range(4):
        kept += list(batches)
        for batch in kept:
            check(batch)
        for _ in range(80):
            del kept[rng.randrange(len(kept))]
        del batch
    for batch in batches:
        check(batch)
        kept.append(batch)
        if len(kept) % 3:
            del kept[rng.randrange(len(kept))]
    del batches
    for batch in kept:
        check(batch)


_earlier: "List[Any]" = []


def remembers(batch: Batch) -> Any:
    """Keeps the tensors of a few batches in the worker, and looks at them later."""
    for numbers, tokens in _earlier:
        assert tokens.numpy().tobytes() == b"".join(payload(n)["tokens"] for n in numbers)
    _earlier.append((batch.numbers, batch["tokens"]))
    del _earlier[:-3]
    return batch


@pytest.mark.parametrize("map", [None, remembers], ids=["", "remembers"])
def test_written_to(small: Path, map: Any) -> None:
    """A write to a tensor reaches no other batch, and not the data. What map keeps in a worker
    stays as it is while the loop drops it."""
    kept = []
    batches = loop(Dataset(small, 10, fields=FIELDS, map_batch=map), persistent_workers=True)
    for epoch in range(3):
        for i, batch in enumerate(batches):
            check(batch)
            if map is None:
                batch["tokens"][:] = i % 50 + epoch
                if i % 2:
                    kept.append((i % 50 + epoch, batch))
    for value, batch in kept:
        assert bool((batch["tokens"] == value).all())


@lends
@needs_proc
def test_memory_falls(tmp_path: Path) -> None:
    """What the loop has dropped goes back to the system, while other batches come."""

    def shared() -> int:
        return int(re.findall(r"RssShmem:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) << 10

    with shardtool.Writer(tmp_path / "out") as w:
        for i in range(1000):
            w.write({"__key__": f"{i:04d}", "x": i.to_bytes(8, "little") + random.Random(i).randbytes(20_472)})
    batches = loop(Dataset(tmp_path / "out", 10, fields={"x": ("uint8", (20_480,))}), persistent_workers=True)
    kept = [batch for _ in range(8) for batch in batches]
    assert all(int.from_bytes(bytes(row[:8].tolist()), "little") == n for b in kept for row, n in zip(b["x"], b.numbers))
    assert sum(int(batch["x"].sum()) for batch in kept) and shared() > 120 << 20
    kept.clear()
    end = time.monotonic() + 300
    while shared() > 40 << 20:
        assert time.monotonic() < end
        for batch in batches:
            assert [int.from_bytes(bytes(row[:8].tolist()), "little") for row in batch["x"]] == batch.numbers
    del batches, batch


@lends
@needs_proc
@pytest.mark.parametrize("victim", ["worker 0", "worker 1", "child"])
def test_killed(small: Path, victim: str) -> None:
    """Batches stay, whoever is killed, and the next loop goes on."""
    dataset = Dataset(small, 10, fields=FIELDS, shuffle=True, seed=3, tail="short")
    it = iter(loop(dataset))
    kept = list(itertools.islice(it, 20))
    pids = [w.pid for w in it._workers]  # type: ignore[attr-defined]
    if victim == "child":
        (pid,) = (
            int(p.name)
            for p in Path("/proc").iterdir()
            if p.name.isdigit() and parent(p) == pids[0] and b"serve" in (p / "cmdline").read_bytes()
        )
    else:
        pid = pids[int(victim[-1])]
    # torch may say it when the workers are joined, too.
    with pytest.raises((shardtool.ShardtoolError, RuntimeError, EOFError, ConnectionError)), contextlib.closing(Ended(it)):
        os.kill(pid, signal.SIGKILL)
        kept += list(it)
    for batch in kept:
        check(batch)
    dataset.load_state_dict(kept[-1].state_dict())
    kept += list(loop(dataset))
    assert sorted(n for batch in kept for n in batch.numbers) == list(range(SAMPLES))
    for batch in kept:
        check(batch)


class Ended:
    def __init__(self, it: Any) -> None:
        self.close = it._shutdown_workers


def parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


@lends
def test_forks(small: Path) -> None:
    """A fork of the loop's process sees the batch that was there, while the loop goes on."""
    batches = loop(Dataset(small, 10, fields=FIELDS), persistent_workers=True)
    it = iter(batches)
    next(it)
    batch = next(it)
    go, tell = os.pipe()
    result, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)
        try:
            os.read(go, 1)
            check(batch)
            batch["tokens"][:] = 0
            out = "right"
        except BaseException as err:
            out = repr(err)
        os.write(say, json.dumps(out).encode())
        os._exit(0)
    del batch
    for other in it:
        check(other)
    for _ in range(3):
        for other in batches:
            check(other)
    os.write(tell, b"x")
    os.close(say)
    with os.fdopen(result, "rb") as f:
        assert json.load(f) == "right"
    os.waitpid(pid, 0)
    for end in (go, tell):
        os.close(end)


def test_pinned(small: Path) -> None:
    """The thread that pins receives batches, too."""
    batches = loop(Dataset(small, 50, fields=FIELDS, tail="short"), pin_memory=torch.cuda.is_available())
    got = list(batches)
    assert [n for batch in got for n in batch.numbers] == list(range(SAMPLES))
    for batch in got:
        check(batch)
