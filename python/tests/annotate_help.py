"""A program that annotates, for tests that kill it: DATASET WORKERS PAUSE."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
import shardtool

FIELDS = {"n": "int", "text": "txt"}


def made(numbers: "List[int]") -> Dict[str, Any]:
    """Columns that carry the number of their sample; every tenth sample has nothing."""
    return {
        "caption": [None if n % 10 == 3 else f"caption of {n}" for n in numbers],
        "score": [None if n % 10 == 3 else n / 2 for n in numbers],
    }


class Slow:
    """made, which takes a while for a batch."""

    def __init__(self, pause: float) -> None:
        self.pause = pause

    def __call__(self, batch: shardtool.Batch) -> Dict[str, Any]:
        time.sleep(self.pause)
        return made(batch["n"].tolist())


def call(data: object, name: str = "captions", function: Any = None, **options: Any) -> Dict[str, Any]:
    """Annotates with what tests have in common."""
    given: Dict[str, Any] = {"batch_size": 15, "fields": FIELDS, "attrs": {"score": "score"}, **options}
    return shardtool.annotate(str(data), name, function or Slow(0), **given)


def content(layer: Path) -> List[Any]:
    """The objects of a layer."""
    return [(p.name, p.read_bytes()) for p in sorted(layer.iterdir()) if p.is_file() and not p.name.startswith(".")]


def write_base(data: Path, samples: int, mode: Any = "fail", first: int = 0) -> None:
    """Writes a data set of shards of about 32 samples."""
    with shardtool.Writer(data, shard_size="64KiB", block_size="16KiB", on_exists=mode) as w:
        for i in range(first, first + samples):
            w.write({"__key__": f"{i:06d}", "text": f"text {i} " * 20, "n": i})


def check(data: Path, name: str, samples: int, removed: "tuple[int, ...]" = ()) -> None:
    """Compares the fields of a layer with the samples that they belong to."""
    seen = 0
    fields = {"n": "int", "caption": "txt?", "score": "float?"}
    with shardtool.Loader(data, 64, layers=[name], fields=fields, epochs=1, shuffle=True) as loader:
        for batch in loader:
            want = made(batch["n"].tolist())
            assert list(batch["caption"]) == want["caption"]
            assert list(batch["score"]) == want["score"]
            seen += batch.size
    assert seen == samples - len(removed)


def main() -> None:
    data, workers, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    print("begun", flush=True)
    result = call(data, function=Slow(pause), workers=workers)
    print(result["digest"], result["resumed"], flush=True)


if __name__ == "__main__":
    import annotate_help  # whose functions have the same names in other programs

    annotate_help.main()
