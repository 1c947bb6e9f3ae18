"""Batches ahead of the loop, and the place of the loop all the same."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
import torch
from conftest import ROOT, SAMPLES, in_groups, payload
from torch.utils.data import DataLoader
from torch_help import BOOK, expected, failing, make, numbers

import shardtool
from shardtool import ConfigError, DecodeError, Loader
from shardtool._read.states import merge_states
from shardtool.torch import NamedBatch, Prefetcher


def over(kind: str, url: Path, **options: Any) -> Prefetcher:
    """A prefetcher over each supported loader."""
    if kind == "loader":
        return Prefetcher(
            Loader(url, **in_groups(**{"batch_size": 100, "fields": ["txt"], "map_batch": numbers, **BOOK, **options})),
            "cpu",
            ahead=3,
        )
    workers = int(kind[0])
    return Prefetcher(DataLoader(make(url, **options), batch_size=None, num_workers=workers, persistent_workers=kind.endswith("p")), "cpu")


def seen(batches: Any) -> List[List[int]]:
    return [b["n"].tolist() for b in batches]


KINDS = ["loader", "0 workers", "2 workers", "2 workers p"]


@pytest.mark.parametrize("kind", KINDS)
def test_epochs(small: Path, kind: str) -> None:
    """An iteration is an epoch; one that was left is over; set_epoch and the length are the
    loader's."""
    with over(kind, small) as batches:
        for epoch in range(2):
            assert batches.epoch == epoch
            assert [(b["n"].tolist(), len(batches))[0] for b in batches] == expected(small, epoch)
        assert len(batches) == 10 and batches
        assert seen(itertools.islice(batches, 4)) == expected(small, 2)[:4]
        assert seen(itertools.islice(batches, 9)) == expected(small, 3)[:9]
        batches.set_epoch(3)  # anew
        assert seen(itertools.islice(batches, 10)) == expected(small, 3)
        batches.set_epoch(1)
        assert batches.epoch == 1
        iter(batches)  # which delivers nothing
        assert seen(batches) == expected(small, 1)
        assert seen(batches) == expected(small, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_place(small: Path, kind: str) -> None:
    """The state is that of the loop, however far the thread has read, as Lightning and Accelerate
    save it."""
    want = [b for e in range(3) for b in expected(small, e)]
    for at in (0, 3, 10, 12):
        with over(kind, small) as batches:
            state = batches.state_dict()
            for i, _ in enumerate(itertools.chain(batches, batches), 1):
                if i > at:
                    break
                time.sleep(0.002)  # lets it read ahead
                state = batches.state_dict()
        with over(kind, small) as batches:
            batches.load_state_dict(state)
            assert batches.state_dict() == state
            got = seen(batches) + seen(batches)
            assert got == want[at : at + len(got)]
            batches.load_state_dict(state)
            assert seen(itertools.islice(batches, 1)) == want[at : at + 1]


@pytest.mark.parametrize("kind", ["loader", "0 workers", "2 workers"])
def test_error(small: Path, kind: str) -> None:
    """An error is raised after the batches before it; the next iteration is at the same place."""
    with over(kind, small, map_batch=failing, batch_size=20, shuffle=False, seed=None) as batches:
        for count in (25, 0):
            got = []
            with pytest.raises(DecodeError, match="bad luck"):
                for b in batches:
                    got.append(b["n"].tolist())
            assert got == [list(range(i, i + 20)) for i in range(0, 20 * count, 20)]
        batches.set_epoch(1)
        assert seen(itertools.islice(batches, 2))[1] == list(range(20, 40))


def test_batches_of_a_loader(small: Path) -> None:
    """Dicts of tensors, also where their memory is shared with the reader."""
    fields = {"tokens": ("uint8", (64,)), "cls": "int", "ragged.npy": "npy", "bin": "bytes"}
    with Prefetcher(Loader(small, 10, fields=fields, tuning=shardtool.Tuning(ring_memory="8MiB")), "cpu", ahead=4) as batches:
        i = 0
        for batch in batches:
            assert isinstance(batch, NamedBatch)
            assert batch["tokens"].shape == (10, 64) and bytes(batch["tokens"][3].numpy()) == payload(i + 3)["tokens"]
            assert batch["cls"].tolist() == [n % 10 for n in range(i, i + 10)]
            assert len(batch["ragged.npy"]) == 10 and bytes(batch["bin"][2]) == payload(i + 2)["bin"]
            assert batch.state_dict() == batches.state_dict()
            i += 10
        assert i == SAMPLES


def test_facts_meanwhile(small: Path) -> None:
    """What a program asks the loader while the thread waits for a batch does not end the child."""
    loader = Loader(small, **in_groups(**{"batch_size": 1, "fields": ["txt"], **BOOK}))
    with Prefetcher(loader, "cpu", ahead=3) as batches:
        count = 0
        for _ in batches:
            count += 1
            assert loader.info["samples"] == SAMPLES and loader.fields == ["txt"] and loader.metrics_url is None
        assert count == SAMPLES


def test_tuples(small: Path) -> None:
    """What a map returns may be anything; a Loader knows its place all the same, workers do not."""
    with Prefetcher(Loader(small, 100, fields=["cls"], map_batch=pair, shuffle=True, seed=3), "cpu") as batches:
        first = next(iter(batches))
        assert isinstance(first, tuple) and first[1] == 100
        assert batches.state_dict()["checkpoint"] is not None
    with Prefetcher(DataLoader(make(small, map_batch=pair), batch_size=None, num_workers=1), "cpu") as batches:
        next(iter(batches))
        with pytest.raises(shardtool.CheckpointError, match="return dicts"):
            batches.state_dict()
        with pytest.raises(ConfigError, match="return dicts"):
            iter(batches)


def pair(batch: shardtool.Batch) -> Any:
    return torch.tensor(batch.numbers), batch.size


def test_refused(small: Path) -> None:
    with pytest.raises(ConfigError, match="not list"):
        Prefetcher([1])
    with pytest.raises(ConfigError, match="the least is 1"):
        Prefetcher(Loader(small, 1), ahead=0)


def test_no_thread_stays(small: Path) -> None:
    """Left, dropped or closed: the thread ends."""

    def threads() -> List[str]:
        return [t.name for t in threading.enumerate() if t.name == "shardtool-prefetch"]

    batches = over("loader", small)
    for batch in batches:
        assert threads()
        break
    old = iter(batches)
    new = iter(batches)
    next(new)
    with pytest.raises(shardtool.ClosedError, match="another one began"):
        next(old)
    batches.close()
    assert not threads()
    with pytest.raises(shardtool.ClosedError):
        next(iter(batches))
    batches = over("loader", small)
    next(iter(batches))
    del batches, batch, old, new
    gc.collect()
    deadline = time.monotonic() + 300
    while threads():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_page(small: Path) -> None:
    """The first program of docs/pytorch.md, unchanged except for the data and the device."""
    text = (ROOT / "docs" / "pytorch.md").read_text().split("```python\n")[1].split("```")[0]
    for here, there in [("s3://bucket/train", str(small)), ('"cuda"', '"cpu"'), ("batches.epoch, 90", "batches.epoch, 2")]:
        assert here in text
        text = text.replace(here, there)
    shapes: List[Any] = []
    scope = {"train": lambda x, cls: shapes.append((tuple(x.shape), tuple(cls.shape)))}
    exec(text, scope)
    epoch = [64] * (SAMPLES // 64) + [SAMPLES % 64]
    assert shapes == [((n, 2, 3), (n,)) for n in 2 * epoch]
    with Loader(small, 64, shuffle=True, seed=7, fields=[]) as loader:
        loader.load_state_dict(scope["saved"])  # type: ignore[arg-type]
        assert loader.epoch == 2


def test_states_of_all_ranks(holes: Path) -> None:
    """A prefetcher, a data set and a loader take the states of all ranks after a step."""
    options = {"global_batch": 60, "shuffle": True, "seed": 5, "tail": "short", "fields": [], "on_error": "skip", "max_skipped": 0.5}
    states = []
    for rank in range(2):
        with Loader(holes, **in_groups(rank=rank, world_size=2, skip_group=False, **options)) as loader:
            states.append([loader.state_dict() for _ in loader][-2])
    for taker in (Prefetcher(Loader(holes, **in_groups(**options)), "cpu"), shardtool.Dataset(holes, **in_groups(**options))):
        taker.load_state_dict(states)
        assert taker.state_dict() == merge_states(states) not in states
        taker.close()


@pytest.mark.parametrize("kind", KINDS)
def test_trainer_asks_late(small: Path, kind: str) -> None:
    """A trainer that resumes may ask for its first batch when the thread has read it: what counts
    is whether the loader was given a place before."""
    scope: Dict[str, Any] = {"__name__": "transformers.trainer"}
    exec("class Trainer:\n    def train(self, wait, batches):\n        it = iter(batches)\n        wait()\n        return next(it)", scope)
    trainer = scope["Trainer"]()
    trainer.state, trainer.args = SimpleNamespace(global_step=3, epoch=0.3), SimpleNamespace(ignore_data_skip=True)
    want = expected(small, 0)
    with over(kind, small) as batches:
        it = iter(batches)
        assert [next(it)["n"].tolist() for _ in range(3)] == want[:3]
        state = batches.state_dict()
    for given in (None, state):
        with over(kind, small) as batches:

            def wait(batches: Any = batches) -> None:
                while batches._thread._queue.empty():
                    time.sleep(0.001)

            if given is not None:
                batches.load_state_dict(given)
                assert trainer.train(wait, batches)["n"].tolist() == want[3]
                continue
            with pytest.raises(ConfigError, match="the loader was given no state"):
                trainer.train(wait, batches)
