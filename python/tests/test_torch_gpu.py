"""The prefetcher on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest
import torch
from conftest import SAMPLES, payload
from torch.utils.data import DataLoader
from torch_help import expected, make

import shardtool
from shardtool import Loader
from shardtool.torch import NamedBatch, Prefetcher

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
FIELDS = {"tokens": ("uint8", (64,)), "ragged.npy": "npy", "bin": "bytes"}


def want(first: int, count: int) -> torch.Tensor:
    return torch.stack([torch.frombuffer(bytearray(payload(i)["tokens"]), dtype=torch.uint8) for i in range(first, first + count)])


@pytest.mark.usefixtures("memory")
def test_on_the_device(small: Path) -> None:
    """All tensors have the right bytes, on any stream of the loop; other values stay."""
    side = torch.cuda.Stream()
    with Prefetcher(Loader(small, 10, fields=FIELDS), "cuda", ahead=4) as batches:
        i = 0
        for batch in batches:
            assert isinstance(batch, NamedBatch) and batch["tokens"].is_cuda and all(t.is_cuda for t in batch["ragged.npy"])
            assert bytes(batch["bin"][0]) == payload(i)["bin"]
            assert torch.equal(batch["tokens"].cpu(), want(i, 10))
            i += 10
        assert i == SAMPLES
        with torch.cuda.stream(side):
            total = sum(int(b["tokens"].sum()) for b in batches)
        assert total == int(want(0, SAMPLES).long().sum())


def test_memory_is_not_written_too_early(small: Path) -> None:
    """While the loop's stream is slow, the prefetcher continues: batches that the loop has not
    reached stay unchanged."""
    with Prefetcher(Loader(small, 50, fields=FIELDS), "cuda", ahead=2) as batches:
        sums: List[torch.Tensor] = []
        for batch in batches:
            torch.cuda._sleep(20_000_000)
            sums.append(batch["tokens"].long().sum())
            del batch  # its memory goes back while the sum still waits
        assert [int(s) for s in sums] == [int(want(i, 50).long().sum()) for i in range(0, SAMPLES, 50)]


@pytest.mark.parametrize(("workers", "pinned"), [(0, False), (0, True), (2, True)])
def test_over_a_data_loader(small: Path, workers: int, pinned: bool) -> None:
    """Pinned by the DataLoader or by the prefetcher: the same batches, and the place."""
    loader = DataLoader(make(small), batch_size=None, num_workers=workers, pin_memory=pinned)
    with Prefetcher(loader, "cuda") as batches:
        got = []
        for batch in batches:
            assert batch["n"].is_cuda
            got.append(batch["n"].tolist())
            state: Any = batches.state_dict()
            if len(got) == 4:
                break
    assert got == expected(small, 0)[:4]
    with Prefetcher(DataLoader(make(small), batch_size=None, pin_memory=pinned), "cuda") as batches:
        batches.load_state_dict(state)
        assert [b["n"].tolist() for b in batches] == expected(small, 0)[4:]


def test_pin_memory_keeps_the_place(small: Path) -> None:
    for batch in DataLoader(make(small), batch_size=None, num_workers=1, pin_memory=True):
        assert batch["n"].is_pinned() and shardtool.torch.state_of(batch) == batch.state_dict()


def test_copies_overlap(small: Path) -> None:
    """The copy of the next batch does not wait for the work queued on the stream of the loop."""
    with Prefetcher(Loader(small, 100, fields=FIELDS), "cuda", ahead=1) as batches:
        it = iter(batches)
        first = next(it)
        torch.cuda._sleep(2_000_000_000)  # about a second
        busy = torch.cuda.Event()
        busy.record()
        reader = batches._thread
        assert reader is not None and reader._stream is not None
        ready = reader._queue.get(timeout=300)  # its copy has been started
        assert ready.event is not None  # type: ignore[union-attr]
        ready.event.synchronize()  # type: ignore[union-attr]
        assert not busy.query()
        reader._queue.put(ready)
        assert torch.equal(next(it)["tokens"].cpu(), want(100, 100)) and first["tokens"].is_cuda
