"""A program that writes, for tests that kill it: DATASET SAMPLES PAUSE."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict

import shardtool


def sample(i: int) -> Dict[str, Any]:
    """Sample i. A field that only early samples have must be typed after a resume too."""
    made: Dict[str, Any] = {"text": f"sample {i} " * (1 + i % 50), "cls": i % 7, "meta": {"i": i}}
    if i < 10:
        made["early"] = 1.5
    return made


def main() -> None:
    url, samples, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with shardtool.Writer(url, on_exists="resume", attrs={"label": "cls"}, shard_size="64KiB", block_size="16KiB") as w:
        print(w.resume_from, flush=True)
        for i in range(w.resume_from, samples):
            w.write(sample(i))
            if pause and i % 100 == 0:
                w._flush()
                time.sleep(pause)
    assert w.result is not None
    print(w.result["digest"], flush=True)


if __name__ == "__main__":
    main()
