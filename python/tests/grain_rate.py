"""Prints the rate of shardtool.grain.IterDataset as a share of the Loader's: python grain_rate.py
DATASET [BATCH [FIELD ...]]. Rounds alternate, and the figure is the median of the pairs."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, List, Optional

import shardtool
import shardtool.grain


def rate(batches: Any) -> float:
    """Returns samples a second over one epoch, from its second batch on."""
    it = iter(batches)
    next(it)
    since, count = time.perf_counter(), 0
    for batch in it:
        count += len(next(iter(batch.values())))
    return count / (time.perf_counter() - since)


def main(url: str, batch: int = 256, fields: Optional[List[str]] = None, rounds: int = 7) -> None:
    given: Any = {"shuffle": True, "seed": 7, "epochs": 1, "fields": fields}
    pairs = []
    for _ in range(rounds):
        with shardtool.Loader(url, batch, tuning=shardtool.Tuning(out="numpy"), map_batch=dict, **given) as loader:
            ours = rate(loader)
        grain = rate(shardtool.grain.IterDataset(url, batch, **given))
        pairs.append((grain, ours))
    print(f"samples/s: grain {statistics.median(p[0] for p in pairs):,.0f}, Loader {statistics.median(p[1] for p in pairs):,.0f}")
    print(f"grain / Loader: {statistics.median(g / o for g, o in pairs):.2f}, batches of {batch}, median of {rounds}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]), *([sys.argv[3:]] if sys.argv[3:] else []))
