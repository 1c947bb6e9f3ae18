"""Loops over a DataLoader whose workers would have nothing to do: the loop takes the batches from
the reader."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from conftest import children, in_groups, needs_proc
from torch.utils.data import DataLoader
from torch.utils.data._utils.collate import default_convert
from torch_help import BOOK, numbers

import shardtool
from shardtool import Dataset, Loader
from shardtool.torch import Prefetcher
from shardtool.torch.loops import attached

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

#: Fields that need no Python.
FIELDS: Dict[str, Any] = {"txt": "txt", "cls": "int", "x.npy": "npy", "tokens": ("int32", (16,)), "bin": "bytes", "ragged.npy": "npy"}


def make(url: Path, **options: Any) -> Dataset:
    return Dataset(url, **in_groups(**{"batch_size": 100, "fields": FIELDS, **BOOK, **options}))


def loop(dataset: Any, workers: int = 2, **options: Any) -> "DataLoader[Any]":
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


def seen(batches: Any) -> List[List[int]]:
    return [b.numbers for b in batches]


def expected(url: Path, epoch: int, **options: Any) -> List[List[int]]:
    with Loader(url, **in_groups(**{"batch_size": 100, "fields": ["txt"], **BOOK, **options})) as loader:
        return [[b.numbers for b in loader] for _ in range(epoch + 1)][-1]


def alone(it: Any) -> bool:
    """Whether the loop of an iterator reads by itself."""
    found = attached(it)
    assert found is not None
    return found.alone is not None


def plainly(value: Any) -> Any:
    """A value that can be compared: tensors as bytes, because NaN differs from itself."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, bytes(value.numpy().tobytes())
    return [plainly(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_same_batches(small: Path, method: str, persistent: bool) -> None:
    """Values, types, order and places are those of a DataLoader without workers, also those of
    arrays of numpy, which torch converts."""
    epochs = 1 if method != "fork" and not persistent else 2  # to start others takes seconds
    for format in ("torch", "numpy") if method == "fork" else ("numpy",):
        dataset, plain = make(small, format=format), make(small, format=format)
        dl = loop(dataset, multiprocessing_context=method, persistent_workers=persistent)
        for _ in range(epochs):
            assert dataset.epoch == plain.epoch
            for got, want in itertools.zip_longest(dl, loop(plain, 0)):
                assert type(got) is type(want) and list(got) == list(want)
                assert got.state_dict() == want.state_dict() == dataset.state_dict()
                for name in want:
                    assert type(got[name]) is type(want[name])
                    assert plainly(got[name]) == plainly(want[name]), name
        assert dataset.stats().batches == plain.stats().batches == 10 * epochs
        assert dataset.stats().wait > 0
        assert not persistent or alone(dl._iterator)
        dataset.close()
        plain.close()


@needs_proc
def test_one_reader(small: Path) -> None:
    """It is the one of this process; no worker has another."""
    dataset = make(small)
    it: Any = iter(loop(dataset))
    for _ in range(3):
        next(it)
    assert alone(it) and len(it._workers) == 2
    assert [children(w.pid) for w in it._workers] == [[], []]
    assert len(children()) == 1
    del it
    dataset.close()


@pytest.mark.parametrize("tail", ["short", "drop", "pad", "wrap"])
def test_resumed_from_each_batch(small: Path, tail: str) -> None:
    options = {"tail": tail, "global_batch": 160, "seed": 5, "batch_size": None}
    want = [n for epoch in range(2) for n in expected(small, epoch, **options)]
    dataset = make(small, **options)
    dl = loop(dataset)
    states, got = [dataset.state_dict()], []
    for _ in range(2):
        for batch in dl:
            got.append(batch.numbers)
            states.append(batch.state_dict())
    assert got == want
    dataset.close()
    for i in range(0, len(want), 3):
        dataset = make(small, **options)
        dataset.load_state_dict(states[i])
        dl = loop(dataset, 1 + i % 2)
        assert seen(itertools.chain(dl, dl))[: len(want) - i] == want[i:]
        dataset.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs(small: Path, persistent: bool) -> None:
    """An iteration that was left is over; set_epoch is for the next one."""
    dataset = make(small)
    dl = loop(dataset, persistent_workers=persistent)
    assert seen(itertools.islice(dl, 3)) == expected(small, 0)[:3]
    assert seen(itertools.islice(dl, 1)) == expected(small, 1)[:1]
    dataset.set_epoch(1)
    assert seen(dl) == expected(small, 1)
    dataset.set_epoch(7)
    assert seen(dl) == expected(small, 7)
    assert dataset.epoch == 8 and len(dl) == 10
    dataset.close()


def test_several_iterators(small: Path) -> None:
    """Each goes on where it was, and with the place of its own epoch."""
    dataset = make(small, batch_size=250)
    dl = loop(dataset)
    got = [(batch.numbers, seen(dl)) for batch in dl]
    want = [expected(small, epoch, batch_size=250) for epoch in range(6)]
    assert [a for a, _ in got] == want[0] and [b for _, b in got] == want[1:5]
    assert seen(dl) == want[5]
    dataset.close()


def busy(dataset: Dataset) -> "List[DataLoader[Any]]":
    """DataLoaders whose workers read."""
    return [loop(dataset, collate_fn=lambda batch: default_convert(batch)), loop(dataset, timeout=100)]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("first", [False, True])
def test_after_workers_that_read(small: Path, which: int, first: bool) -> None:
    """Loops of both kinds over one data set continue one another."""
    dataset = make(small)
    kinds = [loop(dataset), busy(dataset)[which]]
    dls = kinds if first else kinds[::-1]
    for epoch in range(0, 6, 2):
        a, b = iter(dls[0]), iter(dls[1])
        assert [alone(a), alone(b)] == [first, not first]
        del a, b
        assert seen(itertools.islice(dls[0], 3)) == expected(small, epoch)[:3]
        assert seen(dls[1]) == expected(small, epoch + 1)
    dataset.close()


def test_the_same_seed_of_torch(small: Path) -> None:
    """Workers of an iterator that has the same seed read."""
    dataset = make(small)
    idle, reads = loop(dataset, persistent_workers=True), busy(dataset)[0]
    for epoch in range(0, 4, 2):
        torch.manual_seed(1)
        one = iter(idle)
        assert seen(itertools.islice(one, 2)) == expected(small, epoch)[:2]
        torch.manual_seed(1)
        assert seen(reads) == expected(small, epoch + 1)
        del one
    dataset.close()


class Around(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return iter(self.dataset)


def test_work_for_workers(small: Path) -> None:
    """What needs Python, and what the loop cannot do in their place, stays with them."""
    for options in ({"map_batch": numbers}, {"fields": {"json": "json"}}, {"fields": {"txt": len}}, {"fields": {"cls": "int?"}}):
        dataset = make(small, **options)
        it = iter(loop(dataset))
        assert not alone(it)
        first: Any = next(it)
        assert len(first) == 1
        del it
        dataset.close()
    dataset = make(small)
    for kind in busy(dataset):
        it = iter(kind)
        assert not alone(it) and next(it).numbers
        del it
    dataset.close()
    assert seen(loop(Around(make(small)))) == expected(small, 0)


def test_a_reader_that_was_opened_to_look_is_closed(small: Path) -> None:
    """Where the data has a type that needs Python, the process of the loop keeps no reader."""
    for fields in (None, ["json"]):
        dataset = make(small, fields=fields)
        it = iter(loop(dataset))
        assert not alone(it) and children() == []
        assert seen(it) == expected(small, 0)
        assert isinstance(next(iter(loop(dataset)))["json"][0], dict)


# Where a tensor was in transit, PyTorch opens ten files to count descriptors, and closes none.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_worker_killed(small: Path) -> None:
    """torch raises the error, and the last batch has the place."""
    dataset = make(small, batch_size=1)
    it: Any = iter(loop(dataset))
    got, state = [], None
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal"):
        for batch in it:
            got.append(batch.numbers)
            state = batch.state_dict()
            if len(got) == 20:
                os.kill(it._workers[1].pid, signal.SIGKILL)
            if len(got) > 20:
                time.sleep(0.01)
    it._shutdown_workers()
    assert state is not None and 20 <= len(got) < 1000
    dataset.load_state_dict(state)
    assert got + seen(loop(dataset)) == expected(small, 0, batch_size=1)
    dataset.close()


@needs_proc
def test_reader_killed(small: Path) -> None:
    """The next iteration continues after the last batch."""
    dataset = make(small, prefetch=1)
    it = iter(loop(dataset))
    got = [next(it).numbers]
    with pytest.raises(shardtool.errors.ServerDiedError):
        for batch in it:
            got.append(batch.numbers)
            for pid in children():
                os.kill(pid, signal.SIGKILL)
    del it
    assert got + seen(loop(dataset)) == expected(small, 0)
    dataset.close()


def broken(worker: int) -> None:
    raise ZeroDivisionError


def test_worker_that_cannot_begin(small: Path) -> None:
    dataset = make(small)
    it: Any = iter(loop(dataset, worker_init_fn=broken))
    with pytest.raises(ZeroDivisionError):
        next(it)
    it._shutdown_workers()
    dataset.close()


def test_batches_stay(small: Path) -> None:
    """Batches of an iterator that is gone keep their values."""
    dataset = make(small)
    kept = list(loop(dataset))
    dataset.close()
    want = make(small)
    for got, batch in zip(kept, loop(want, 0)):
        assert torch.equal(got["tokens"], batch["tokens"]) and got["bin"] == batch["bin"]
    want.close()


PROGRAM = """
import sys, torch, shardtool
from torch.utils.data import DataLoader
if __name__ == "__main__":
    dataset = shardtool.Dataset(sys.argv[1], 10, fields={"txt": "txt"}, epochs=0)
    for batch in DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[2]):
        print(len(batch["txt"]), flush=True)
"""


@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_parent_killed(small: Path, tmp_path: Path, method: str) -> None:
    """Reader and workers end with the process of the loop."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(Path(shardtool.__file__).parents[1])}
    with subprocess.Popen([sys.executable, program, small, method], stdout=subprocess.PIPE, start_new_session=True, env=env) as job:
        assert job.stdout is not None and job.stdout.readline() == b"10\n"
        (reader,) = children(job.pid)
        job.kill()
    until = time.monotonic() + 300
    while True:
        left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _group(p) == job.pid]
        if not left and not Path(f"/proc/{reader}").exists():
            break
        assert time.monotonic() < until, left
        time.sleep(0.05)


def _group(process: Path) -> int:
    try:
        fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        return -1 if fields[0] == "Z" else int(fields[2])
    except OSError:
        return -1


def test_interrupted_while_it_looks(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before torch forks its workers is not lost."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    dataset = make(small)
    monkeypatch.setattr(Dataset, "_alone", interrupted)
    it: Any = iter(loop(dataset))
    with pytest.raises(KeyboardInterrupt):
        next(it)
    it._shutdown_workers()


def test_prefetched(small: Path) -> None:
    """A Prefetcher around such a DataLoader keeps the place of the loop."""
    with Prefetcher(loop(make(small)), "cpu") as batches:
        got = seen(itertools.islice(batches, 4))
        state = batches.state_dict()
    with Prefetcher(loop(make(small)), "cpu") as batches:
        batches.load_state_dict(state)
        assert got + seen(batches) == expected(small, 0)


def test_refused(small: Path) -> None:
    """Errors are those of a DataLoader without workers, and name what they did."""
    for workers in (0, 2):
        with pytest.raises(shardtool.NotFoundError, match="no data set"):
            next(iter(loop(make(small.parent), workers)))
        with pytest.raises(shardtool.ConfigError, match="batch_size=None"):
            next(iter(DataLoader(make(small), num_workers=workers)))
