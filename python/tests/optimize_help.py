"""A program that optimizes, for tests that kill it: DATASET INPUTS WORKERS PAUSE [PARTS]."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import shardtool


def samples(i: int, pause: float = 0.0) -> "Iterator[Dict[str, Any]]":
    """From none to four samples of an input."""
    if pause:
        time.sleep(pause)
    for k in range(i % 5):
        made: Dict[str, Any] = {"__key__": f"{i:06d}/{k}", "text": f"sample {i} {k} " * (1 + i % 50), "cls": i % 7}
        if k == 3:
            made["last"] = 0.5 if i % 2 else 1
        yield made


class Slow:
    """samples, which takes a while."""

    def __init__(self, pause: float) -> None:
        self.pause = pause

    def __call__(self, i: int) -> "Iterator[Dict[str, Any]]":
        return samples(i, self.pause)


def content(url: Path) -> List[Any]:
    """The objects of a data set."""
    return [(p.name, p.read_bytes()) for p in sorted(url.iterdir()) if p.is_file() and not p.name.startswith(".")]


def main() -> None:
    url, inputs, workers, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    parts = int(sys.argv[5]) if len(sys.argv) > 5 else None
    print("begun", flush=True)
    result = shardtool.optimize(
        Slow(pause), range(inputs), url, workers=workers, fields={"last": "float"}, attrs={"label": "cls"}, shard_size="64KiB",
        block_size="16KiB", source="test", parts=parts,
    )  # fmt: skip
    print(result["digest"], result["resumed"], flush=True)


if __name__ == "__main__":
    main()
