"""One process of a job that reads with Grain: continues a checkpoint, takes steps, saves another.

It prints the keys of the samples of each step.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any


def as_process(index: int, count: int) -> None:
    """Makes Grain take this process for one of a job of JAX: it asks JAX, which it can do
    without."""
    jax: Any = types.ModuleType("jax")
    jax.process_index, jax.process_count = (lambda: index), (lambda: count)
    sys.modules["jax"] = jax


def main(url: str, index: str, count: str, load: str, save: str, steps: str) -> None:
    import grain

    import shardtool
    import shardtool.grain

    as_process(int(index), int(count))
    ds = shardtool.grain.IterDataset(
        url, fields=["cls"], map_batch=keyed, shuffle=True, seed=5, epochs=1, order=shardtool.Order(global_batch=40)
    )
    it = iter(ds.map(lambda element: element["key"]))
    if load:
        shardtool.grain.restore(load, it)
    for _ in range(int(steps)):
        try:
            print(json.dumps(next(it)), flush=True)
        except StopIteration:
            break
    Path(save).mkdir(exist_ok=True)
    grain.checkpoint.CheckpointHandler().save(Path(save), it)
    it.close()


def keyed(batch: Any) -> Any:
    """Returns the keys of a batch, as a function ``map`` does."""
    return {"key": batch.sample_keys, "cls": batch["cls"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
