"""One reader for all workers of a DataLoader: the batches of a Loader, for any workers."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
import torch
import torch.utils.data
from conftest import SAMPLES, children, in_groups, payload
from torch.utils.data import DataLoader
from torch_help import BOOK, expected, failing, make, numbers

import shardtool
from shardtool import ConfigError, Dataset, DecodeError, Loader
from shardtool.torch import NamedBatch, state_of

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def loop(dataset: Dataset, **options: Any) -> "DataLoader[Any]":
    return DataLoader(dataset, batch_size=None, **options)


@contextlib.contextmanager
def ended(it: Any) -> Iterator[Any]:
    """An iteration that fails. What the error's traceback holds is collected in an order in which
    torch waits seconds for its workers."""
    try:
        yield it
    finally:
        getattr(it, "_shutdown_workers", int)()


def seen(batches: Any) -> List[List[int]]:
    return [b["n"].tolist() for b in batches]


@pytest.mark.parametrize(
    ("method", "workers", "persistent", "ahead"),
    [("fork", 0, False, None)]
    + [("fork", n, p, a) for n in (1, 2, 4) for p in (False, True) for a in (2, 7)]
    + [("spawn", 1, False, 2), ("spawn", 2, True, 1), ("forkserver", 1, True, 2), ("forkserver", 2, False, 2)],
)
def test_the_same_batches(small: Path, method: str, workers: int, persistent: bool, ahead: Any) -> None:
    """Neither batches nor order depend on how many workers there are, how they are started, and how
    far they read ahead."""
    dataset = make(small)
    options: Dict[str, Any] = {}
    if workers:
        options = {"num_workers": workers, "multiprocessing_context": method, "persistent_workers": persistent, "prefetch_factor": ahead}
    batches = loop(dataset, **options)
    for epoch in range(3 if method == "fork" or persistent else 2):  # to start others takes seconds
        assert dataset.epoch == epoch
        assert len(batches) == len(expected(small, epoch))
        assert seen(batches) == expected(small, epoch)
    assert children() == [] or not workers
    dataset.close()


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("tail", ["short", "drop", "pad", "wrap"])
def test_resumed_from_each_batch(small: Path, workers: int, tail: str) -> None:
    """The state of a batch resumes after it, however far the workers had read, also across
    epochs."""
    options = {"tail": tail, "global_batch": 160, "seed": 5, "batch_size": None}
    with Loader(small, **in_groups(shuffle=True, fields=["txt"], **options)) as loader:  # type: ignore[arg-type]
        want = [b.numbers for _ in range(2) for b in loader]
    dataset = make(small, **options)
    dl = loop(dataset, num_workers=workers)
    states = [dataset.state_dict()]
    got = []
    for _ in range(2):
        for batch in dl:
            got.append(batch["n"].tolist())
            states.append(json.loads(json.dumps(batch.state_dict())))
    assert got == want
    dataset.close()
    for i in range(0, len(want), 3):
        dataset = make(small, **options)
        dataset.load_state_dict(states[i])
        rest = seen(itertools.chain(loop(dataset, num_workers=workers), loop(dataset, num_workers=workers)))
        assert rest[: len(want) - i] == want[i:]
        dataset.close()


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_epochs(small: Path, workers: int, persistent: bool) -> None:
    """set_epoch reaches workers that live on; an iteration that was left is over."""
    dataset = make(small)
    dl = loop(dataset, num_workers=workers, persistent_workers=persistent)
    dataset.set_epoch(2)
    assert dataset.epoch == 2
    assert seen(dl) == expected(small, 2)
    assert dataset.epoch == 3
    dataset.set_epoch(3)  # the next anyway
    assert seen(itertools.islice(dl, 3)) == expected(small, 3)[:3]
    assert seen(itertools.islice(dl, 2)) == expected(small, 4)[:2]
    dataset.set_epoch(4)  # anew
    assert seen(itertools.islice(dl, 1)) == expected(small, 4)[:1]
    dataset.set_epoch(0)
    for batch in itertools.islice(dl, 4):
        state = state_of(batch)
    dataset.load_state_dict(state)
    dataset.set_epoch(0)  # resumed in the middle of it: continues
    assert seen(dl) == expected(small, 0)[4:]
    assert seen(dl) == expected(small, 1)
    dataset.close()


@pytest.mark.parametrize(
    ("method", "workers", "persistent", "leaves"),
    # Of 4 batches, the last of which has 200 samples of the next epoch.
    [("fork", 1, False, (0, 3, 4)), ("fork", 2, True, (0, 1, 3, 4, 5)), ("fork", 3, False, (1, 3, 4)), ("spawn", 1, True, (3,))],
)
def test_left_late(small: Path, method: str, workers: int, persistent: bool, leaves: Tuple[int, ...]) -> None:
    """Workers have read to the end of the epoch, which is filled from the next. The start of the
    next depends on the batches that the loop has got, as it does without workers: after the last
    batch if that was delivered, else at its beginning."""
    options: Dict[str, Any] = {"tail": "wrap", "batch_size": 300}
    for leave in leaves:
        plain = make(small, **options)
        dataset = make(small, **options)
        dl = loop(dataset, num_workers=workers, multiprocessing_context=method, persistent_workers=persistent, prefetch_factor=4)
        want, got = iter(plain), iter(dl)
        for _ in range(leave):
            a, b = next(want, None), next(got, None)
            assert (a is None) == (b is None) and (a is None or a["n"].tolist() == b["n"].tolist())  # type: ignore[index]
        del got
        for _ in range(2):
            assert seen(dl) == seen(plain)
        plain.close()
        dataset.close()


def test_left_late_then_without_workers(small: Path) -> None:
    """The same if this process continues, and if it sets the epoch."""
    options: Dict[str, Any] = {"tail": "wrap", "batch_size": 300}
    for leave in (3, 4):
        dataset = make(small, **options)
        assert len(seen(itertools.islice(loop(dataset, num_workers=2, prefetch_factor=4), leave))) == leave
        with make(small, **options)._loader as plain:
            list(itertools.islice(plain, leave))
            want = [b["n"].tolist() for b in plain]
        assert seen(loop(dataset)) == want
        dataset.close()
        dataset = make(small, **options)
        list(itertools.islice(loop(dataset, num_workers=2, prefetch_factor=4), leave))
        dataset.set_epoch(1)
        assert seen(loop(dataset, num_workers=2)) == want
        dataset.close()


def test_loop_not_found(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the position of the loop is unknown, iterations still follow each other."""
    from shardtool.torch import dataset as module

    monkeypatch.setattr(module, "above", lambda _: None)
    dataset = make(small)
    dl = loop(dataset, num_workers=2, persistent_workers=True)
    assert seen(dl) == expected(small, 0)
    assert seen(itertools.islice(dl, 3)) == expected(small, 1)[:3]
    assert seen(loop(dataset, num_workers=1)) == expected(small, 2)
    deadline = time.monotonic() + 300
    while dataset.stats().batches < 23:  # the statistics of workers that are still running arrive a little later
        assert time.monotonic() < deadline
        time.sleep(0.02)
    stats = dataset.stats()
    assert stats.wait == sum(stats.stalls) and stats.elapsed > 0
    dataset.close()


def late(batch: shardtool.Batch) -> Any:
    """Fails in the last batch, when the other workers are long through."""
    if batch.next_place[0] > batch.epoch:
        time.sleep(0.5)
        raise DecodeError("bad luck")
    return numbers(batch)


def test_last_batch_fails(small: Path) -> None:
    """The workers had reached the end of the epoch: the place must be set nevertheless."""
    dataset = make(small, map_batch=late)
    got = []
    with ended(iter(loop(dataset, num_workers=2, prefetch_factor=8))) as it, pytest.raises(DecodeError, match="bad luck"):
        for b in it:
            got.append(b["n"].tolist())
    assert got == expected(small, 0)[:-1]
    with ended(iter(loop(dataset, num_workers=2))) as it, pytest.raises(ConfigError, match="set the place"):
        next(it)
    dataset.close()


def test_fewer_batches_than_workers(small: Path) -> None:
    """Worker 0, which has the only batch, waits for workers that join after the end."""
    dataset = make(small, batch_size=1000)
    for epoch in range(5):
        assert seen(loop(dataset, num_workers=4)) == expected(small, epoch, batch_size=1000)


@pytest.mark.filterwarnings("ignore:the iteration has no batches")
def test_epochs_run_out(small: Path) -> None:
    dataset = make(small, epochs=1)
    dl = loop(dataset, num_workers=2)
    assert len(seen(dl)) == len(expected(small, 0))
    assert seen(dl) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_from_one_process_to_workers_and_back(small: Path, workers: int) -> None:
    """Iterations with and without workers follow each other."""
    dataset = make(small)
    assert seen(loop(dataset)) == expected(small, 0)
    assert seen(loop(dataset, num_workers=2)) == expected(small, 1)
    assert seen(loop(dataset)) == expected(small, 2)
    assert seen(itertools.islice(loop(dataset, num_workers=3), 2)) == expected(small, 3)[:2]
    assert seen(itertools.islice(loop(dataset, num_workers=workers), 2)) == expected(small, 4)[:2]
    assert seen(loop(dataset, num_workers=1)) == expected(small, 5)
    dataset.close()


def test_state_of_the_data_set(small: Path) -> None:
    """Without workers the data set knows the place. With workers its error names what does."""
    dataset = make(small)
    next(iter(loop(dataset)))
    with Loader(small, shuffle=True, seed=3, fields=["txt"], batch_size=100) as loader:
        loader.load_state_dict(dataset.state_dict())
        assert [b.numbers for b in loader] == expected(small, 0)[1:]
    list(loop(dataset, num_workers=1))
    with pytest.raises(ConfigError, match=r"batch\.state_dict\(\)"):
        dataset.state_dict()
    dataset.set_epoch(1)
    assert seen(itertools.islice(loop(dataset), 1)) == expected(small, 1)[:1]
    dataset.close()


def test_what_a_batch_is(small: Path) -> None:
    """A dict of tensors and lists, whose place survives the taking apart that others do."""
    fields = {"cls": "int", "x.npy": "npy", "txt": "txt", "bin": "bytes", "extra": "bytes?"}
    for workers in (0, 1):
        dataset = Dataset(small, 10, fields=fields)
        (batch, *_) = itertools.islice(loop(dataset, num_workers=workers), 1)
        assert isinstance(batch, NamedBatch) and list(batch) == list(fields)
        assert batch["cls"].tolist() == list(range(10)) and batch["cls"].dtype == torch.int64
        assert batch["x.npy"].shape == (10, 2, 3)
        assert batch["bin"] == [payload(i)["bin"] for i in range(10)]
        assert batch["extra"][:4] == [b"extra 0", None, None, b"extra 3"]
        assert (batch.epoch, batch.position, batch.size) == (0, 0, 10)
        for other in (copy.copy(batch), pickle.loads(pickle.dumps(batch)), {k: v for k, v in batch.items()}, type(batch)({**batch})):
            assert state_of(other) == batch.state_dict()
        with pytest.raises(shardtool.CheckpointError, match="has no place"):
            state_of({"cls": 1})
        dataset.close()
    # All fields; a map that does not return a dict.
    dataset = Dataset(small, 10, map_batch=numbers)
    assert next(iter(loop(dataset, num_workers=1))).keys() == {"n"}
    dataset = Dataset(small, 10)
    assert set(itertools.islice(loop(dataset, num_workers=2), 2).__next__()) == {*payload(0)}
    dataset = Dataset(small, 10, fields=[], map_batch=len)
    assert list(itertools.islice(loop(dataset, num_workers=1), 2)) == [0, 0]


class IterableDatasetShard(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """What transformers and Accelerate have under this name."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        for element in self.dataset:  # noqa: UP028
            yield element


class Around(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """A data set over ours."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return map(dict, self.dataset)


@pytest.mark.parametrize("workers", [0, 1])
def test_refused(small: Path, workers: int) -> None:
    """What would silently be something else."""

    def refused(error: Any, words: str, batches: Any) -> None:
        with pytest.raises(error, match=words), ended(iter(batches)) as it:
            next(it)

    refused(ConfigError, "batch_size=None", DataLoader(make(small), num_workers=workers))
    refused(ConfigError, "once more", loop(IterableDatasetShard(make(small)), num_workers=workers))  # type: ignore[arg-type]
    refused(shardtool.NotFoundError, "no data set", loop(make(small.parent), num_workers=workers))
    with pytest.raises(shardtool.NotFoundError, match="no data set"):
        make(small / "none")
    assert seen(loop(Around(make(small)), num_workers=workers)) == expected(small, 0)  # type: ignore[arg-type]


def test_ranks_of_torch_distributed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in a new interpreter read for the rank of their parent, which their environment
    lacks."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    with Loader(small, shuffle=True, seed=3, fields=["txt"], order=shardtool.Order(global_batch=90), tail="short") as loader:
        want = [b.numbers for b in loader]
    dataset = make(small, batch_size=None, global_batch=90)
    assert len(want[0]) == 30
    dl = loop(dataset, num_workers=1, multiprocessing_context="forkserver")
    assert seen(itertools.islice(dl, 3)) == want[:3]


@pytest.mark.parametrize("rank", [0, 2])
def test_ranks(small: Path, rank: int) -> None:
    options = {"batch_size": None, "global_batch": 90, "rank": rank, "world_size": 3}
    with Loader(small, **in_groups(shuffle=True, seed=3, fields=["txt"], tail="short", **options)) as loader:  # type: ignore[arg-type]
        want = [b.numbers for b in loader]
    assert seen(loop(make(small, **options), num_workers=2)) == want


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_damage(damaged: Path, workers: int) -> None:
    """All batches before the damage are delivered, then the error with its place; then nothing of
    that iteration."""
    with Loader(damaged, 20, fields=["txt"]) as loader, pytest.raises(shardtool.CorruptError):
        want: List[List[int]] = []
        for b in loader:
            want.append(b.numbers)
    dataset = Dataset(damaged, 20, fields=["txt"], map_batch=numbers)
    got: List[List[int]] = []
    with ended(iter(loop(dataset, num_workers=workers))) as it:
        with pytest.raises(shardtool.CorruptError, match="shard"):
            for b in it:
                got.append(b["n"].tolist())
        assert got == want and 0 < len(got) < 50
        with pytest.raises(shardtool.ShardtoolError):
            next(it)
    dataset.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_map_fails(small: Path, workers: int) -> None:
    """The error is raised in turn, no batch follows it, and continuing needs a place if workers had
    read ahead."""
    dataset = make(small, map_batch=failing, batch_size=20, shuffle=False, seed=None)
    got = []
    with ended(iter(loop(dataset, num_workers=workers))) as it:
        with pytest.raises(DecodeError, match="bad luck"):
            for b in it:
                got.append(b["n"].tolist())
                state = b.state_dict()
        assert got == [list(range(i, i + 20)) for i in range(0, 500, 20)]
        with pytest.raises(shardtool.ShardtoolError):
            for _ in range(5):
                next(it)
    if workers:
        with ended(iter(loop(dataset, num_workers=workers))) as it, pytest.raises(ConfigError, match="set the place"):
            next(it)
        dataset.load_state_dict(state)
    with ended(iter(loop(dataset, num_workers=workers))) as it, pytest.raises(DecodeError):
        next(it)
    dataset.set_epoch(1)
    with ended(iter(loop(dataset, num_workers=workers))) as it:
        assert next(it)["n"].tolist() == list(range(20))
    dataset.close()


# Where a tensor was in transit, PyTorch opens ten files to count descriptors, and closes none.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("victim", [0, 1])
def test_worker_killed(small: Path, victim: int) -> None:
    """The DataLoader raises the error. The next iteration needs a place, and continues there."""
    dataset = make(small, map_batch=slow)
    it = iter(loop(dataset, num_workers=2))
    got = [next(it)["n"].tolist()]
    state = None
    # PyTorch raises EOFError or ConnectionError if the worker's tensors were in transit and its
    # death is not yet known.
    with pytest.raises((RuntimeError, EOFError, ConnectionError)) as info, ended(it):
        os.kill(it._workers[victim].pid, signal.SIGKILL)  # type: ignore[attr-defined]  # in here: a signal handler raises, sooner or later
        for batch in it:
            got.append(batch["n"].tolist())
            state = batch.state_dict()
    if isinstance(info.value, RuntimeError):
        assert "exited unexpectedly" in str(info.value) or "killed by signal" in str(info.value)
    assert got == expected(small, 0)[: len(got)] and len(got) < 10
    with ended(iter(loop(dataset, num_workers=2))) as it, pytest.raises(ConfigError, match="set the place"):
        next(it)
    if state is None:
        dataset.set_epoch(0)
        got = []
    else:
        dataset.load_state_dict(state)
    assert got + seen(loop(dataset, num_workers=2)) == expected(small, 0)


def slow(batch: shardtool.Batch) -> Any:
    time.sleep(0.05)
    return numbers(batch)


def test_no_worker_stays(small: Path) -> None:
    """However an iteration ends, its workers and their reader end."""

    def running() -> List[int]:
        out = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if b"shardtool\0serve" in (entry / "cmdline").read_bytes() and parent(entry) in workers:
                        out.append(int(entry.name))
                except (OSError, ValueError):
                    pass
        return out

    def parent(entry: Path) -> int:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])

    dataset = make(small)
    it = iter(loop(dataset, num_workers=2))
    next(it)
    workers = {w.pid for w in it._workers}  # type: ignore[attr-defined]
    (reader,) = running()
    with pytest.raises(ZeroDivisionError):
        for _ in it:
            1 / 0
    del it
    deadline = time.monotonic() + 300
    while any(Path(f"/proc/{pid}").exists() for pid in (reader, *workers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_loops_at_once(small: Path) -> None:
    """Each has its own epoch and its own reader; training and validation data do not meet."""
    dataset, other = make(small), make(small, seed=BOOK["seed"] + 1)
    a, b = iter(loop(dataset, num_workers=2)), iter(loop(other, num_workers=2))
    got = [(next(a)["n"].tolist(), next(b)["n"].tolist()) for _ in range(5)]
    assert [x for x, _ in got] == expected(small, 0)[:5]
    assert [y for _, y in got] != expected(small, 0)[:5]
    # A second iteration of the same, which begins during the first.
    c = iter(loop(dataset, num_workers=2))
    assert seen(itertools.islice(c, 3)) == expected(small, 1)[:3]
    assert seen(a) == expected(small, 0)[5:]
    assert seen(c) == expected(small, 1)[3:]


def test_same_seed(small: Path) -> None:
    """Iterators that torch gave the same seed do not meet either."""
    dataset = make(small)
    for epoch in range(3):
        torch.manual_seed(1)
        assert seen(loop(dataset, num_workers=2)) == expected(small, epoch)


def in_process(dataset: Dataset, workers: int) -> Any:
    return seen(itertools.islice(loop(dataset, num_workers=workers), 3)), seen(loop(dataset, num_workers=workers)), dataset.epoch


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_made_before_the_ranks(small: Path, method: str) -> None:
    """Processes that received a data set and then start their own workers share nothing."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    dataset = make(small)
    dataset.set_epoch(1)
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        for result in pool.map(in_process, [dataset, dataset], [2, 1]):
            assert result == (expected(small, 1)[:3], expected(small, 2), 3)
    assert seen(loop(dataset, num_workers=1)) == expected(small, 1)


def test_nothing_starts_early(small: Path) -> None:
    dataset = pickle.loads(pickle.dumps(make(small)))
    dl = loop(dataset, num_workers=1)
    assert dataset.epoch == 0 and children() == []
    assert len(dl) == 10 and children() == []
    assert sum(len(b["n"]) for b in dl) == SAMPLES
