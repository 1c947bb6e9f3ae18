"""Compares annotate, with a function that returns a constant, and a Loader over the same samples: [SAMPLES] [BYTES] [SHARD].

Both read in storage order and look at a byte of each sample. They take turns, five times each, and the best of each counts. Prints JSON.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import shardtool

BATCH = 256
FIELDS = {"img": "bytes"}


def look(batch):
    return sum(len(value) for value in batch.payloads("img"))


def constant(batch):
    look(batch)
    return {"caption": ["a photo"] * batch.size}


def by_loader(data, n):
    seen = 0
    with shardtool.Loader(data, BATCH, fields=FIELDS, epochs=1, rank=0, world_size=1, tuning=shardtool.Tuning(copy=False)) as loader:
        for batch in loader:
            look(batch)
            seen += batch.size
    assert seen == n


def by_annotate(data, n):
    result = shardtool.annotate(data, "captions", constant, batch_size=BATCH, fields=FIELDS, progress=False, tuning=shardtool.Tuning(copy=False))
    assert result["written"] == n
    shutil.rmtree(data / "layers")


def main():
    n, size, shard = (int(a) for a in (*sys.argv[1:], *(4000, 100_000, 64 << 20)[len(sys.argv) - 1 :]))
    folder = Path(tempfile.mkdtemp(prefix="bench-annotate-"))
    try:
        noise = random.Random(1).randbytes(size + n)
        with shardtool.Writer(folder / "photos", shard_size=shard) as w:
            for i in range(n):
                w.write({"__key__": f"{i:08d}", "img": noise[i : i + size]})
        best = {}
        for _ in range(5):
            for run in (by_loader, by_annotate):
                since = time.perf_counter()
                run(folder / "photos", n)
                best[run.__name__] = min(best.get(run.__name__, 1e9), time.perf_counter() - since)
        rates = {name: round(n / seconds) for name, seconds in best.items()}
        print(json.dumps({"samples": n, "bytes": size, "shard": shard, **rates, "ratio": round(rates["by_annotate"] / rates["by_loader"], 3)}))
    finally:
        shutil.rmtree(folder)


main()
