"""Writes sources of rows by the libraries that own their formats, and reads them: make KIND OUT MIB, or read KIND SOURCE.

Reading gives each row as the library gives it to a program, and prints JSON, on its last line: rows, seconds and processor seconds.
"""

import csv
import io
import itertools
import json
import os
import random
import sys
import tarfile
import time
import zipfile

import measure

NAMES = {
    "Parquet": "x.parquet",
    "Arrow": "x.arrow",
    "JSON Lines": "x.jsonl",
    "JSON list": "x.json",
    "CSV": "x.csv",
    "TFRecord": "x.tfrecord",
}
NAMES |= {"tar": "x.tar", "zip": "x.zip", "npy": "x.npy", "Megatron": "x.idx"}


def rows(mib, small):
    """Rows of 3 KB of text, or of a few numbers and a short text, as many as take so much."""
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlucm", k=draw.randint(2, 9))) for _ in range(5000)]
    texts = [" ".join(draw.choices(words, k=5 if small else 460)) for _ in range(1000)]
    count = int(mib * 2**20 / (sum(map(len, texts)) / len(texts) + 30))
    for i in range(count):
        yield {"key": f"k{i:09d}", "n": i, "x": i / 8, "text": texts[i * 7 % 1000]}


def groups(mib, small, of):
    all = rows(mib, small)
    while part := list(itertools.islice(all, of)):
        yield part


def tables(mib, small):
    import pyarrow

    return (pyarrow.Table.from_pylist(part) for part in groups(mib, small, 100_000 if small else 5_000))


def make(kind, out, mib, small):
    if kind == "Parquet":
        import pyarrow.parquet

        sink = None
        for table in tables(mib, small):
            sink = sink or pyarrow.parquet.ParquetWriter(out, table.schema)
            sink.write_table(table)
        sink.close()
    elif kind == "Arrow":
        import pyarrow

        sink = None
        for table in tables(mib, small):
            sink = sink or pyarrow.ipc.new_file(out, table.schema)
            sink.write_table(table)
        sink.close()
    elif kind == "datasets":
        import datasets

        datasets.Dataset.from_generator(rows, gen_kwargs={"mib": mib, "small": small}, cache_dir=out + "-cache").save_to_disk(out)
    elif kind in ("JSON Lines", "JSON list"):
        with open(out, "w") as sink:
            sink.write("[" if kind == "JSON list" else "")
            for i, row in enumerate(rows(mib, small)):
                sink.write((",\n" if kind == "JSON list" else "\n") * (i > 0) + json.dumps(row))
            sink.write("]" if kind == "JSON list" else "\n")
    elif kind == "CSV":
        with open(out, "w", newline="") as sink:
            writer = csv.DictWriter(sink, ["key", "n", "x", "text"])
            writer.writeheader()
            writer.writerows(rows(mib, small))
    elif kind == "TFRecord":
        from tfrecord.writer import TFRecordWriter

        sink = TFRecordWriter(out)
        for r in rows(mib, small):
            sink.write(
                {"key": (r["key"].encode(), "byte"), "n": (r["n"], "int"), "x": (r["x"], "float"), "text": (r["text"].encode(), "byte")}
            )
        sink.close()
    elif kind == "MDS":
        from streaming import MDSWriter

        with MDSWriter(out=out, columns={"key": "str", "n": "int", "x": "float64", "text": "str"}, size_limit=64 << 20) as sink:
            for row in rows(mib, small):
                sink.write(row)
    elif kind in ("tar", "zip"):
        sink = tarfile.open(out, "w") if kind == "tar" else zipfile.ZipFile(out, "w")
        for row in rows(mib, small):
            content = row["text"].encode()
            if kind == "zip":
                sink.writestr(row["key"] + ".txt", content)
                continue
            info = tarfile.TarInfo(row["key"] + ".txt")
            info.size = len(content)
            sink.addfile(info, io.BytesIO(content))
            sink.members = []
        sink.close()
    elif kind == "folder":
        for i, row in enumerate(rows(mib, small)):
            if i % 1000 == 0:
                os.makedirs(f"{out}/{i // 1000:05d}")
            with open(f"{out}/{i // 1000:05d}/{row['key']}.txt", "w") as sink:
                sink.write(row["text"])
    elif kind == "npy":
        import numpy

        wide = 8 if small else 1536
        numpy.save(out, numpy.arange(mib << 19, dtype="u2")[: (mib << 19) // wide * wide].reshape(-1, wide))
    elif kind == "Megatron":
        import numpy
        import torch
        from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

        sink, wide = IndexedDatasetBuilder(out.replace(".idx", ".bin"), dtype=numpy.int32), 8 if small else 768
        for i in range((mib << 18) // wide):
            sink.add_document(torch.arange(i, i + wide), [wide])
        sink.finalize(out)


def read(kind, source):
    if kind == "Parquet":
        import pyarrow.parquet

        return (row for batch in pyarrow.parquet.ParquetFile(source).iter_batches() for row in batch.to_pylist())
    if kind == "Arrow":
        import pyarrow

        file = pyarrow.ipc.open_file(pyarrow.memory_map(source))
        return (row for i in range(file.num_record_batches) for row in file.get_batch(i).to_pylist())
    if kind == "datasets":
        import datasets

        return iter(datasets.load_from_disk(source))
    if kind == "JSON Lines":
        return map(json.loads, open(source))
    if kind == "JSON list":
        return iter(json.load(open(source)))
    if kind == "CSV":
        return csv.DictReader(open(source, newline=""))
    if kind == "TFRecord":
        from tfrecord.reader import tfrecord_loader

        return tfrecord_loader(source, None, {"key": "byte", "n": "int", "x": "float", "text": "byte"})
    if kind == "MDS":
        from streaming import StreamingDataset

        data = StreamingDataset(local=source, batch_size=1)
        return (data[i] for i in range(len(data)))
    if kind == "tar":
        import webdataset

        return iter(webdataset.WebDataset(source, shardshuffle=False))
    if kind == "zip":
        archive = zipfile.ZipFile(source)
        return (archive.read(name) for name in archive.namelist())
    if kind == "folder":
        return (open(f"{folder}/{name}", "rb").read() for folder, _, names in os.walk(source) for name in names)
    if kind == "npy":
        import numpy

        return (row.copy() for row in numpy.load(source, mmap_mode="r"))
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    file = IndexedDataset(source[: -len(".idx")])
    return (file[i] for i in range(len(file)))


def main():
    what, kind, where = sys.argv[1:4]
    if what == "make":
        where = os.path.join(where, NAMES.get(kind, "x"))
        make(kind, where, int(sys.argv[4]), sys.argv[5] == "small")
        print(json.dumps(where))
        return
    next(read(kind, where))  # imports and opens, before the clock starts
    begin, used = time.perf_counter(), measure.cpu()
    count = sum(1 for _ in read(kind, where))
    print(json.dumps({"rows": count, "seconds": time.perf_counter() - begin, "cpu": measure.cpu() - used}))


if __name__ == "__main__":
    main()
