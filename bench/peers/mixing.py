"""Prints how well other systems mix data that is stored class by class, as `go test
./internal/order/uniformity -run TestTable -v` does for this one: VIF of a batch, of the part of one
of eight ranks, and of 16 batches together. It asks the libraries for their orders, and reads no
data.

    python bench/peers/mixing.py

MosaicML Streaming shuffles blocks of samples (py1e): by its default they have four million samples,
whose shards it keeps on local disk; otherwise here as many as the memory holds. Grain's MapDataset
and PyTorch's DistributedSampler permute all samples, which they read one by one.
"""

from __future__ import annotations

import functools
from typing import List, Optional

import numpy as np

CLASSES, RANKS, TOGETHER = 100, 8, 16
SHARD = 64 << 20


@functools.lru_cache
def torch_order(samples: int, size: int, memory: Optional[int]) -> np.ndarray:
    """The samples of all ranks in turn."""
    from torch.utils.data import DistributedSampler

    ranks = [np.fromiter(DistributedSampler(range(samples), RANKS, rank, seed=7), np.int64) for rank in range(RANKS)]
    return np.stack(ranks, axis=1).reshape(-1)


@functools.lru_cache
def grain_order(samples: int, size: int, memory: Optional[int]) -> np.ndarray:
    """As torch_order."""
    import grain

    data = grain.MapDataset.range(samples).shuffle(seed=7)
    return np.array([data[i] for i in range(samples)])


@functools.lru_cache
def mosaic_order(samples: int, size: int, memory: Optional[int]) -> np.ndarray:
    """As torch_order, before it is divided."""
    from streaming.base.shuffle import get_shuffle

    each = max(SHARD // size, 1)
    shards = np.array([min(each, samples - at) for at in range(0, samples, each)], np.int64)
    return get_shuffle("py1e", shards, 1, 7, 0, 4_000_000 if memory is None else max(memory // size, 1))


def divided(order: np.ndarray, batch: int, mosaic: bool) -> List[np.ndarray]:
    """The samples of each rank."""
    if not mosaic:
        return [order[rank::RANKS] for rank in range(RANKS)]
    from streaming.base.partition import get_partitions

    parts = get_partitions("relaxed", len(order), 1, 1, RANKS, 1, batch // RANKS)
    return list(np.append(order, -1)[parts][0].reshape(RANKS, -1))


def vif(batches: np.ndarray, samples: int) -> float:
    """The mean of (count - expected)² over its value for a uniform permutation."""
    n, drawn = batches.shape
    expected = drawn / CLASSES
    uniform = expected * (1 - 1 / CLASSES) * (samples - drawn) / (samples - 1)
    places = np.arange(n)[:, None] * CLASSES + batches * CLASSES // samples
    counts = np.bincount(places.reshape(-1), minlength=n * CLASSES)
    return float(np.mean((counts - expected) ** 2)) / uniform


def measured(ranks: List[np.ndarray], samples: int, batch: int) -> str:
    """The three figures."""
    each = batch // RANKS
    steps = min(map(len, ranks)) // each - 1  # the last one may be padded
    one = np.stack([rank[: steps * each].reshape(steps, each) for rank in ranks], axis=1)  # step, rank, sample
    whole = one.reshape(steps, -1)
    more = whole[: steps // TOGETHER * TOGETHER].reshape(-1, TOGETHER * batch)
    return ", ".join(f"{vif(batches, samples):.2f}" for batches in (whole, one.reshape(-1, each), more))


def main() -> None:
    """Prints the table."""
    print("| samples | order | memory | batches of 64 | 256 | 1,024 |\n|---|---|---|---|---|---|")
    for samples, size, text in ((200_000, 1000, "1 KB"), (200_000, 100_000, "100 KB")):
        orders = [("PyTorch", torch_order, None), ("Grain", grain_order, None), ("MosaicML", mosaic_order, None)]
        orders += [("MosaicML", mosaic_order, mib << 20) for mib in (2048, 64, 16)]
        for name, order, memory in orders:
            held = "all" if memory is None else f"{memory >> 20} MiB"
            of = order(samples, size, memory)
            row = [measured(divided(of, batch, order is mosaic_order), samples, batch) for batch in (64, 256, 1024)]
            print(f"| {samples:,} of {text} | {name} | {held} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
