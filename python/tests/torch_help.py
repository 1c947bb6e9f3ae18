"""What the tests with torch have in common. Spawned workers import it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, List

import torch
from conftest import in_groups

from shardtool import Batch, Dataset, DecodeError, Loader

#: The order that the tests go through.
BOOK: Dict[str, Any] = {"shuffle": True, "seed": 3, "tail": "short"}


def numbers(batch: Batch) -> Any:
    """The samples' numbers."""
    return {"n": torch.tensor(batch.numbers)}


def failing(batch: Batch) -> Any:
    """Fails at sample 510."""
    if 510 in batch.numbers:
        raise DecodeError("bad luck", key="s0510")
    return numbers(batch)


def make(url: Path, **options: Any) -> Dataset:
    """The data set, 100 samples a batch."""
    return Dataset(url, **in_groups(**{"batch_size": 100, "fields": ["txt"], "map_batch": numbers, **BOOK, **options}))


@functools.cache
def expected(url: Path, epoch: int, **options: Any) -> List[List[int]]:
    """The batches of an epoch, as a plain Loader has them."""
    with Loader(url, **in_groups(**{"batch_size": 100, "fields": ["txt"], **BOOK, **options})) as loader:
        return [[b.numbers for b in loader] for _ in range(epoch + 1)][-1]


def views(batch: Batch) -> Any:
    """Parts of tensors, a list in another place, and a changed one."""
    tokens = batch["tokens"]
    return {
        "tokens": tokens, "part": tokens[:, 1:9], "turned": tokens.t(), "one": tokens[0, 0], "none": tokens[:0], "twice": 2 * batch["cls"],
        "bin": batch["bin"][::-1], "extra": batch["extra"], "text": batch["txt"], "txt": [*batch["txt"]], "json": batch["json"],
        "ragged.npy": batch["ragged.npy"],
    }  # fmt: skip
