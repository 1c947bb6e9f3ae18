"""What the group layers needs Python for.

rows FOLDER N   ordered.parquet and shuffled.parquet: the same N keys, with captions of 100 bytes
annotate        annotate, with a function that returns a constant, and a Loader over the same samples

annotate prints JSON. Both read in storage order and look at a byte of each sample. They take turns,
five times each, and the best of each counts.
"""

import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

BATCH, SAMPLES, SIZE, SHARD = 256, 16_000, 100_000, 64 << 20  # long enough that the start of processes hardly counts
FIELDS = {"img": "bytes"}


def rows(folder, n):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, order in ("ordered", np.arange(n)), ("shuffled", np.random.default_rng(1).permutation(n)):
        with pq.ParquetWriter(Path(folder, name + ".parquet"), pa.schema([("id", pa.string()), ("caption", pa.string())])) as out:
            for some in np.array_split(order, max(1, n // 100_000)):
                out.write_table(
                    pa.table(
                        {"id": [f"{i:09d}" for i in some], "caption": [f"a photo of the thing with the number {i:063d}" for i in some]}
                    )
                )


def annotate():
    import shardtool

    def look(batch):
        return sum(len(value) for value in batch.payloads("img"))

    def constant(batch):
        look(batch)
        return {"caption": ["a photo"] * batch.size}

    def by_loader(data):
        seen = 0
        with shardtool.Loader(data, BATCH, fields=FIELDS, epochs=1, rank=0, world_size=1) as loader:
            for batch in loader:
                look(batch)
                seen += batch.size
        assert seen == SAMPLES

    def by_annotate(data):
        result = shardtool.annotate(data, "captions", constant, batch_size=BATCH, fields=FIELDS, progress=False)
        assert result["written"] == SAMPLES
        shutil.rmtree(data / "layers")

    folder = Path(tempfile.mkdtemp(prefix="bench-annotate-"))
    try:
        noise = random.Random(1).randbytes(SIZE + SAMPLES)
        with shardtool.Writer(folder / "photos", shard_size=SHARD) as w:
            for i in range(SAMPLES):
                w.write({"__key__": f"{i:08d}", "img": noise[i : i + SIZE]})
        best = {}
        for _ in range(5):
            for run in (by_loader, by_annotate):
                since = time.perf_counter()
                run(folder / "photos")
                best[run.__name__] = min(best.get(run.__name__, 1e9), time.perf_counter() - since)
        print(json.dumps({"Loader": SAMPLES / best["by_loader"], "Annotate": SAMPLES / best["by_annotate"]}))
    finally:
        shutil.rmtree(folder)


if sys.argv[1] == "rows":
    rows(sys.argv[2], int(sys.argv[3]))
else:
    annotate()
