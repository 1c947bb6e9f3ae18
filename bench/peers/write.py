"""Writes the samples of plain tars by a tool: MODE OUT PASSES KIND ARCHIVE…

Prints JSON, on its last line: seconds and processor seconds of this process and its children, samples, and bytes of their fields. The samples are in
memory before the clock starts, and have other keys in each pass.
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
import time

import data
import measure


def rows(samples, passes):
    """Key, data and class of every sample, pass after pass."""
    for p in range(passes):
        for i, (key, payload) in enumerate(samples):
            yield f"{p}/{key}", payload, i % 10


def by_write(samples, out, passes, kind, level="default"):
    import shardtool

    with shardtool.Writer(out, level=level) as w:
        for key, payload, cls in rows(samples, passes):
            w.write({"__key__": key, kind: payload, "cls": cls})


def batches(samples, passes, kind):
    """The samples in columns, a thousand at a time."""
    all = rows(samples, passes)
    while part := list(itertools.islice(all, 1000)):
        yield dict(zip(("__key__", kind, "cls"), map(list, zip(*part))))


def by_fastest(samples, out, passes, kind):
    by_write(samples, out, passes, kind, "fastest")


def by_batch(samples, out, passes, kind):
    import numpy
    import shardtool

    with shardtool.Writer(out) as w:
        for columns in batches(samples, passes, kind):
            w.write_batch({**columns, "cls": numpy.array(columns["cls"])})


def by_table(samples, out, passes, kind, tables):
    import shardtool

    with shardtool.Writer(out) as w:
        for table in tables:
            w.write_table(table)


def by_mosaicml(samples, out, passes, kind):
    from streaming import MDSWriter

    columns = {"key": "str", kind: "bytes", "cls": "int"}
    with MDSWriter(out=out, columns=columns, compression="zstd:1", size_limit=256 << 20) as sink:
        for key, payload, cls in rows(samples, passes):
            sink.write({"key": key, kind: payload, "cls": cls})


def by_webdataset(samples, out, passes, kind):
    from webdataset import ShardWriter

    os.makedirs(out)
    with ShardWriter(os.path.join(out, "train-%06d.tar.gz"), maxsize=256 << 20, maxcount=1 << 30, verbose=0) as sink:
        for key, payload, cls in rows(samples, passes):
            sink.write({"__key__": key, kind: payload, "cls": cls})


def identity(sample):
    return sample


def by_optimize(samples, out, passes, kind, inputs):
    import shardtool

    shardtool.optimize(identity, inputs, out, source="bench")


def by_litdata(samples, out, passes, kind, inputs):
    from litdata import optimize

    with contextlib.redirect_stdout(sys.stderr):
        optimize(identity, inputs, output_dir=out, chunk_bytes="64MB", num_workers=os.cpu_count(), compression="zstd")


def main():
    mode, out, passes, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    samples = [(f"{i:08d}", payload) for i, payload in enumerate(data.samples(sys.argv[5:]))]
    if mode == "webdataset":
        samples = samples[: len(samples) // 4]  # gzip takes long
    more = []
    if mode == "table":
        import pyarrow

        more.append([pyarrow.table(columns) for columns in batches(samples, passes, kind)])
    if mode in ("optimize", "litdata"):
        more.append([{kind: payload, "cls": cls} for _, payload, cls in rows(samples, passes)])
    module = {"mosaicml": "streaming", "webdataset": "webdataset", "litdata": "litdata"}.get(mode, "shardtool")
    __import__(module)  # before the clock starts
    shutil.rmtree(out, ignore_errors=True)
    begin, used = time.perf_counter(), measure.cpu()
    globals()["by_" + mode](samples, out, passes, kind, *more)
    took, used = time.perf_counter() - begin, measure.cpu() - used
    size = passes * sum(len(payload) for _, payload in samples)
    print(json.dumps({"seconds": took, "cpu": used, "samples": passes * len(samples), "bytes": size}))
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
