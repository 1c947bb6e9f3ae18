"""Writes the samples of plain tars by a tool: MODE OUT PASSES KIND ARCHIVE…

Prints JSON, on its last line: seconds and processor seconds of this process and its children, samples, and bytes of their fields. The samples are in
memory before the clock starts, and have other keys in each pass.
"""

import contextlib
import json
import os
import resource
import shutil
import sys
import tarfile
import time


def load(archives):
    samples = []
    for name in archives:
        with tarfile.open(name) as tar:
            for member in tar:
                samples.append((member.name.partition(".")[0], tar.extractfile(member).read()))
    return samples


def by_write(samples, out, passes, kind, level="default"):
    import shardtool

    with shardtool.Writer(out, level=level) as w:
        for p in range(passes):
            for i, (key, data) in enumerate(samples):
                w.write({"__key__": f"{p}/{key}", kind: data, "cls": i % 10})


def by_fastest(samples, out, passes, kind):
    by_write(samples, out, passes, kind, "fastest")


def by_batch(samples, out, passes, kind):
    import numpy
    import shardtool

    with shardtool.Writer(out) as w:
        for p in range(passes):
            for lo in range(0, len(samples), 1000):
                part = samples[lo : lo + 1000]
                w.write_batch({"__key__": [f"{p}/{k}" for k, _ in part], kind: [d for _, d in part], "cls": numpy.arange(len(part)) % 10})


def by_table(samples, out, passes, kind, tables):
    import shardtool

    with shardtool.Writer(out) as w:
        for table in tables:
            w.write_table(table)


def tables_of(samples, passes, kind):
    import pyarrow as pa

    made = []
    for p in range(passes):
        for lo in range(0, len(samples), 1000):
            part = samples[lo : lo + 1000]
            columns = {"__key__": [f"{p}/{k}" for k, _ in part], kind: [d for _, d in part], "cls": [i % 10 for i in range(len(part))]}
            made.append(pa.table(columns))
    return made


def by_mosaicml(samples, out, passes, kind):
    from streaming import MDSWriter

    columns = {"key": "str", kind: "bytes", "cls": "int"}
    with MDSWriter(out=out, columns=columns, compression="zstd:1", size_limit=256 << 20) as sink:
        for p in range(passes):
            for i, (key, data) in enumerate(samples):
                sink.write({"key": f"{p}/{key}", kind: data, "cls": i % 10})


def by_webdataset(samples, out, passes, kind):
    from webdataset import ShardWriter

    os.makedirs(out)
    with ShardWriter(os.path.join(out, "train-%06d.tar.gz"), maxsize=256 << 20, maxcount=1 << 30, verbose=0) as sink:
        for p in range(passes):
            for i, (key, data) in enumerate(samples):
                sink.write({"__key__": f"{p}/{key}", kind: data, "cls": i % 10})


def identity(sample):
    return sample


def by_optimize(samples, out, passes, kind, inputs):
    import shardtool

    shardtool.optimize(identity, inputs, out, source="bench")


def by_litdata(samples, out, passes, kind, inputs):
    from litdata import optimize

    with contextlib.redirect_stdout(sys.stderr):
        optimize(identity, inputs, output_dir=out, chunk_bytes="64MB", num_workers=os.cpu_count(), compression="zstd")


def cpu():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main():
    mode, out, passes, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    samples = load(sys.argv[5:])
    if mode == "webdataset":
        samples = samples[: len(samples) // 4]  # gzip takes long
    more = []
    if mode == "table":
        more.append(tables_of(samples, passes, kind))
    if mode in ("optimize", "litdata"):
        more.append([{kind: data, "cls": i % 10} for p in range(passes) for i, (_, data) in enumerate(samples)])
    module = {"mosaicml": "streaming", "webdataset": "webdataset", "litdata": "litdata"}.get(mode, "shardtool")
    __import__(module)  # before the clock starts
    shutil.rmtree(out, ignore_errors=True)
    begin, used = time.perf_counter(), cpu()
    globals()["by_" + mode](samples, out, passes, kind, *more)
    took, used = time.perf_counter() - begin, cpu() - used
    size = passes * sum(len(d) for _, d in samples)
    print(json.dumps({"seconds": took, "cpu": used, "samples": passes * len(samples), "bytes": size}))
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
