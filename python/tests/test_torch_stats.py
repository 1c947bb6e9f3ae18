"""What loops over workers and prefetchers have waited for."""

from __future__ import annotations

import itertools
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import SAMPLES, payload
from torch.utils.data import DataLoader
from torch_help import make, numbers

import shardtool
from shardtool import Loader, Stats
from shardtool.torch import Prefetcher

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

BYTES = sum(len(p) for i in range(SAMPLES) for p in payload(i).values())


STARTED = time.perf_counter()


def slow(batch: shardtool.Batch) -> Any:
    time.sleep(0.02)
    return numbers(batch)


def consistent(stats: Stats) -> Stats:
    assert stats.wait == sum(stats.stalls) and min(stats.stalls) >= 0 and 0 <= stats.first_wait <= stats.wait + 1e-9
    assert stats.wait <= stats.elapsed + 1e-6 and stats.elapsed <= time.perf_counter() - STARTED
    return stats


@pytest.mark.parametrize(("workers", "persistent", "pin"), [(0, False, False), (1, False, False), (2, True, True), (2, False, False)])
def test_of_workers(small: Path, workers: int, persistent: bool, pin: bool) -> None:
    """All that was read is counted, over epochs whose workers have ended; the wait is the
    loop's."""
    dataset = make(small, map_batch=slow, rank=0, world_size=1)
    assert consistent(dataset.stats()) == Stats(rank=0, world_size=1)
    dl = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent)
    begin = time.perf_counter()
    waited = 0.0
    for epoch in range(1, 3):
        it, n = iter(dl), 0
        while True:
            at = time.perf_counter()
            batch = next(it, None)
            waited += time.perf_counter() - at
            if batch is None:
                break
            n += 1
            if n == 5:
                middle = consistent(dataset.stats())
                assert 10 * (epoch - 1) + 5 <= middle.batches + 5 * (workers > 0) and middle.wait <= waited + 1e-6
        del it
        stats = consistent(dataset.stats())
        assert (stats.batches, stats.samples, stats.bytes) == (10 * epoch, SAMPLES * epoch, BYTES * epoch)
        assert (stats.rank, stats.world_size) == (0, 1) and stats.wait <= waited + 1e-6 and stats.elapsed <= time.perf_counter() - begin
    assert stats.stalls.map > 0  # the workers', in which the loop had to wait
    assert pickle.loads(pickle.dumps(dataset)).stats().batches == 0
    dataset.close()


def test_left(small: Path) -> None:
    """If an iteration was left, its reads count."""
    dataset = make(small)
    for n in range(1, 3):
        list(itertools.islice(DataLoader(dataset, batch_size=None, num_workers=2), 3))
        assert consistent(dataset.stats()).batches >= n


def test_of_a_prefetcher(small: Path) -> None:
    """The loop waits less than the thread that reads ahead."""
    with Loader(small, 100, fields=[], map_batch=slow, tail="short") as loader, Prefetcher(loader, "cpu") as batches:
        assert consistent(batches.stats()).batches == 0
        waited = 0.0
        it = iter(batches)
        while True:
            at = time.perf_counter()
            batch = next(it, None)
            waited += time.perf_counter() - at
            if batch is None:
                break
            stats = consistent(batches.stats())
            assert stats.wait <= waited
        assert consistent(batches.stats()).stalls.map > 0  # of the thread, which maps
        assert consistent(batches.stats()).batches == 10 and loader.stats().stalls.map >= 10 * 0.02
