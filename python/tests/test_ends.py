"""What is left when a loop ends otherwise than by its last batch: where the next one begins, and
when the child ends."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import SAMPLES, children

import shardtool
from shardtool import ConfigError, Loader, Order


def test_rank_without_samples(small: Path) -> None:
    """A rank that would never get a sample is refused before it waits for one for ever."""
    with (
        Loader(small, rank=0, world_size=8, order=Order(global_batch=4)) as loader,
        pytest.raises(ConfigError, match=r"rank 0 never gets a sample: a global batch of 4 .* ranks, 8: give a global batch of at least 8"),
    ):
        next(iter(loader))


def one_batch(small: Path) -> Any:
    loader = Loader(small, 10)
    for batch in loader:
        return loader, batch


def in_the_middle(small: Path) -> Any:
    loader = Loader(small, 10)
    it = iter(loader)
    return it, loader, next(it), loader.stats()


def iterator_alone(small: Path) -> Any:
    it = iter(Loader(small, 10))
    next(it)
    return it


def all_batches(small: Path) -> Any:
    loader = Loader(small, 100)
    assert sum(batch.size for batch in loader) == SAMPLES
    return loader


def failed(small: Path) -> Any:
    loader = Loader(small, 10, map_batch=lambda batch: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))
    return loader


def random_access(small: Path) -> Any:
    samples = shardtool.open(small)
    return samples, samples[3]


@pytest.mark.parametrize("use", [one_batch, in_the_middle, iterator_alone, all_batches, failed, random_access])
def test_child_ends_with_its_owner(small: Path, use: Callable[[Path], Any]) -> None:
    """The child ends when the last reference is dropped, without a garbage collection."""
    use(small)  # the import of torch keeps the frames that caused it
    gc.collect()
    gc.disable()
    try:
        owner = use(small)
        assert len(children()) == 1
        del owner
        assert children() == []
    finally:
        gc.enable()
