"""Several iterators of one DataLoader, or of DataLoaders of one data set, that live at the same
time: each has its own place."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest
import torch
from torch.utils.data import DataLoader
from torch_help import expected, make

import shardtool

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def loop(dataset: Any, workers: int, **options: Any) -> "DataLoader[Any]":
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


def seen(batches: Any) -> List[List[int]]:
    return [b["n"].tolist() for b in batches]


@pytest.fixture(params=[0, 2])
def workers(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_one_in_the_other(small: Path, workers: int) -> None:
    """The inner loops are the epochs after the outer one's, and the outer one goes on."""
    dataset = make(small, batch_size=250)
    dl = loop(dataset, workers)
    got, inner = [], []
    for batch in dl:
        got.append(batch["n"].tolist())
        inner.append(seen(itertools.islice(dl, 2) if len(got) == 2 else dl))
    want = [expected(small, epoch, batch_size=250) for epoch in range(6)]
    assert got == want[0]
    assert inner == [want[1], want[2][:2], want[3], want[4]]
    assert seen(dl) == want[5]
    dataset.close()


@pytest.mark.parametrize("pair", [(0, 2), (2, 0), (1, 2)])
def test_two_loaders_of_one_data_set(small: Path, pair: Tuple[int, int]) -> None:
    dataset = make(small, batch_size=250)
    outer, inner = (loop(dataset, n) for n in pair)
    want = [expected(small, epoch, batch_size=250) for epoch in range(7)]
    got = [(batch["n"].tolist(), seen(inner)) for batch in outer]
    assert [a for a, _ in got] == want[0] and [b for _, b in got] == want[1:5]
    assert seen(outer) == want[5]
    assert seen(inner) == want[6]
    dataset.close()


@pytest.mark.parametrize("same_seed", [False, True])
def test_side_by_side(small: Path, workers: int, same_seed: bool) -> None:
    """Two iterators that begin before either has a batch are the same epoch, once each: an epoch
    counts from its first batch on."""
    dataset = make(small)
    dl = loop(dataset, workers)
    for epoch in range(2):
        torch.manual_seed(1)
        one = iter(dl)
        if same_seed:
            torch.manual_seed(1)
        got = list(zip(one, dl))
        assert seen(a for a, _ in got) == seen(b for _, b in got) == expected(small, epoch)
    dataset.close()


def test_taken_in_turns(small: Path, workers: int) -> None:
    """Iterators that began one after another, and go on in any order."""
    dataset = make(small)
    dl = loop(dataset, workers)
    iterators: List[Iterator[Any]] = []
    got: List[List[List[int]]] = [[] for _ in range(4)]
    for i in range(4):
        iterators.append(iter(dl))
        for j in (i, *range(i)):
            got[j].append(next(iterators[j])["n"].tolist())
    for i in (2, 0, 3, 1):
        got[i] += seen(iterators[i])
    assert got == [expected(small, epoch) for epoch in range(4)]
    assert seen(dl) == expected(small, 4)
    dataset.close()


def test_abandoned(small: Path, workers: int) -> None:
    """An iterator of which no loop had a batch uses up nothing, whether it is gone or kept; one
    that was left has used its epoch."""
    dataset = make(small)
    dl = loop(dataset, workers)
    kept = iter(dl)
    iter(dl)
    assert seen(itertools.islice(dl, 3)) == expected(small, 0)[:3]
    left = iter(dl)
    next(left)
    assert seen(dl) == expected(small, 2)
    assert seen(left) == expected(small, 1)[1:]
    del kept, left
    gc.collect()
    assert seen(dl) == expected(small, 3)
    dataset.close()


def test_set_epoch_between(small: Path, workers: int) -> None:
    """An iterator keeps the place that it was made at."""
    dataset = make(small)
    dl = loop(dataset, workers)
    one = iter(dl)
    dataset.set_epoch(3)
    two = iter(dl)
    dataset.set_epoch(5)
    assert seen(two) == expected(small, 3)
    assert seen(one) == expected(small, 0)
    assert seen(dl) == expected(small, 5)
    dataset.close()


def test_persistent(small: Path) -> None:
    """A DataLoader with persistent workers has one iterator. Loops over another do not move it."""
    dataset = make(small)
    one, two = (loop(dataset, 2, persistent_workers=True) for _ in range(2))
    assert seen(one) == expected(small, 0)
    assert seen(two) == expected(small, 1)
    it = iter(one)
    assert it is one._iterator
    first = next(it)
    assert seen(two) == expected(small, 3)
    assert [first["n"].tolist(), *seen(it)] == expected(small, 2)
    assert seen(one) == expected(small, 4)
    dataset.close()


def test_many_loops_in_one(small: Path) -> None:
    """More iterators than there are places for their notes, while the first goes on."""
    from shardtool.torch import notes

    dataset = make(small)
    outer = iter(loop(dataset, 2))
    got = [next(outer)["n"].tolist() for _ in range(2)]
    inner = loop(dataset, 1)
    for epoch in range(1, 4):
        assert dataset._board is not None
        dataset._board.ticket += notes.SLOTS - 2  # as if other processes had started
        assert seen(inner) == expected(small, epoch)
        got.append(next(outer)["n"].tolist())
    assert got + seen(outer) == expected(small, 0)
    assert seen(inner) == expected(small, 4)
    dataset.close()


def unsendable(batch: shardtool.Batch) -> Any:
    return (n for n in batch.numbers)


def test_map_returns_what_cannot_be_sent(small: Path) -> None:
    """A worker that cannot send what ``map`` returned says so, and the loop does not wait."""
    dataset = make(small, map_batch=unsendable)
    with pytest.raises(shardtool.ConfigError, match="cannot send what `map` returned: TypeError"):
        next(iter(loop(dataset, 2)))
    dataset.close()
    dataset = make(small, map_batch=unsendable)
    assert [list(b) for b in loop(dataset, 0)] == expected(small, 0)
    dataset.close()
