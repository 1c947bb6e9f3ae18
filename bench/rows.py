"""Reads rows of 2,049 tokens (int16) into PyTorch tensors, at random, and prints a line of JSON.

rows.py pack SYSTEM JOB    writes the data of a system from the file of all rows
rows.py best SYSTEM JOB    reads with each of the system's settings: {"setting", "rate"} of the fastest
rows.py read SYSTEM JOB SETTING

JOB has "rows" (a file of rows), "packed" (our data set), "work" (a folder), "window" (bytes of our
shuffle window), "warm" and "seconds", and "cold": whether files leave the page cache before a
reading. A rate is rows a second, after "warm" seconds.
"""

import glob
import importlib.metadata
import json
import os
import sys
import time

import numpy
import torch

TOKENS = 2049


def rows_of(job):
    return numpy.memmap(job["rows"], dtype="<i2", mode="r").reshape(-1, TOKENS)


def folder(job, name):
    return os.path.join(job["work"], name)


def tensor(rows):
    return torch.from_numpy(numpy.stack(rows))


class Ours:
    """Stacked, shuffled in a window, verified."""

    settings = [{"batch": b, "copy": c} for b in (256, 1024, 4096) for c in (True, False)]

    def open(self, job, s):
        from shardtool import Loader, Order, Tuning

        order, tuning = Order(shuffle_memory=job["window"]), Tuning(copy=s["copy"])
        loader = Loader(job["packed"], s["batch"], shuffle=True, seed=1, order=order, tuning=tuning, fields={"tokens.npy": "npy"})
        while True:
            for batch in loader:
                yield batch["tokens.npy"]


class Take:
    """np.take on a memmap, of rows in random order."""

    settings = [{"batch": b, "how": h} for b in (256, 1024, 4096) for h in ("take", "take, sorted", "index")]

    def open(self, job, s):
        rows, batch, how = rows_of(job), s["batch"], s["how"]
        random = numpy.random.default_rng(1)
        while True:
            order = random.permutation(len(rows))
            for at in range(0, len(order), batch):
                which = order[at : at + batch]
                if how == "index":
                    yield torch.from_numpy(rows[which])
                    continue
                if how == "take, sorted":
                    which = numpy.sort(which)
                out = numpy.empty((len(which), TOKENS), "<i2")  # a loop keeps its batches
                numpy.take(rows, which, axis=0, out=out, mode="clip")
                yield torch.from_numpy(out)


def workers(*more):
    """Settings of a DataLoader."""
    return [{"workers": w, "batch": b} for w in (0, 1, 2) for b in (256, 1024)] + list(more)


def options(s):
    return {"num_workers": s["workers"], "prefetch_factor": 4, "persistent_workers": True} if s["workers"] else {"num_workers": 0}


class MosaicML:
    """MDS with ndarray columns, shuffled."""

    package = "mosaicml-streaming"
    settings = workers()

    def pack(self, job):
        from streaming import MDSWriter

        with MDSWriter(out=folder(job, "mds"), columns={"x": f"ndarray:int16:{TOKENS}"}, compression=None) as sink:
            for row in rows_of(job):
                sink.write({"x": numpy.asarray(row)})

    def open(self, job, s):
        from streaming import StreamingDataLoader, StreamingDataset

        source = StreamingDataset(local=folder(job, "mds"), batch_size=s["batch"], shuffle=True, shuffle_seed=1)
        loader = StreamingDataLoader(source, batch_size=s["batch"], collate_fn=gather, **options(s))
        while True:
            yield from loader


def gather(samples):
    return tensor([s["x"] for s in samples])


class LitData:
    """TokensLoader over chunks of 64 MB, shuffled."""

    package = "litdata"
    settings = workers()

    def pack(self, job):
        import litdata

        litdata.optimize(
            Tokens(job),
            list(range(8)),
            output_dir=folder(job, "litdata"),
            num_workers=1,
            start_method="fork",
            chunk_bytes="64MB",
            item_loader=litdata.TokensLoader(block_size=TOKENS),
        )

    def open(self, job, s):
        import litdata

        source = litdata.StreamingDataset(folder(job, "litdata"), shuffle=True, item_loader=litdata.TokensLoader(block_size=TOKENS))
        more = options(s)
        more.setdefault("prefetch_factor", 2)  # torch 1.13 wants it to be so without workers
        loader = litdata.StreamingDataLoader(source, batch_size=s["batch"], **more)
        while True:
            yield from loader


class Tokens:
    """An eighth of the rows, for LitData: of tensors it needs dtype.itemsize, which torch 1.13 lacks."""

    def __init__(self, job):
        self.job = job

    def __call__(self, part):
        rows = rows_of(self.job)
        for row in rows[len(rows) * part // 8 : len(rows) * (part + 1) // 8]:
            yield numpy.array(row)


class Grain:
    """ArrayRecord with group_size:1, shuffled; threads read, workers if any batch."""

    package = "grain"
    settings = [
        {"threads": t, "batch": b, "workers": w} for t, b, w in ((16, 256, 0), (16, 1024, 0), (2, 256, 0), (16, 256, 1), (16, 256, 2))
    ]

    def pack(self, job):
        from array_record.python import array_record_module

        sink = array_record_module.ArrayRecordWriter(folder(job, "rows.arrayrecord"), "group_size:1")
        for row in rows_of(job):
            sink.write(row.tobytes())
        sink.close()

    def open(self, job, s):
        import grain

        source = grain.sources.ArrayRecordDataSource(folder(job, "rows.arrayrecord"))
        rows = grain.MapDataset.source(source).shuffle(seed=1).repeat().map(decode).batch(s["batch"])
        batches = rows.to_iter_dataset(grain.ReadOptions(num_threads=s["threads"], prefetch_buffer_size=500))
        if s["workers"]:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=s["workers"], per_worker_buffer_size=4))
        for batch in batches:
            yield torch.from_numpy(batch)


def decode(data):
    return numpy.frombuffer(data, "<i2")


class WebDataset:
    """Plain tars of a member for each row, shuffled in a buffer of 5,000."""

    package = "webdataset"
    settings = workers()

    def pack(self, job):
        import webdataset

        os.mkdir(folder(job, "webdataset"))
        with webdataset.ShardWriter(folder(job, "webdataset/%06d.tar"), maxsize=64 << 20, maxcount=1 << 30, verbose=0) as sink:
            for i, row in enumerate(rows_of(job)):
                sink.write({"__key__": f"{i:09d}", "i16": row.tobytes()})

    def open(self, job, s):
        import webdataset

        files = sorted(glob.glob(folder(job, "webdataset/*.tar")))
        source = webdataset.WebDataset(files, shardshuffle=len(files), empty_check=False, nodesplitter=webdataset.split_by_node)
        source = source.shuffle(5000).map(row_of).batched(s["batch"], collation_fn=tensor)
        loader = webdataset.WebLoader(source, batch_size=None, **options(s))
        while True:
            yield from loader


def row_of(sample):
    return numpy.frombuffer(sample["i16"], "<i2")


SYSTEMS = {"ours": Ours, "take": Take, "mosaicml": MosaicML, "litdata": LitData, "grain": Grain, "webdataset": WebDataset}


def forget(job):
    """Takes the files out of the page cache: what is read then is charged to this process."""
    for path in [job["rows"], *glob.glob(os.path.join(job["packed"], "*.tar*"))]:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def read(job, system, setting):
    if job["cold"]:
        forget(job)
    batches = system.open(job, setting)
    end = time.perf_counter() + job["warm"]
    while time.perf_counter() < end:
        batch = next(batches)
    assert batch.shape == (len(batch), TOKENS) and batch.dtype == torch.int16, batch
    rows, begin = 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < job["seconds"]:
        rows += len(next(batches))
    return rows / took


def apart(job, system, setting):
    """Reads in a fork of this process, which ends without the ends of loaders."""
    here, there = os.pipe()
    if os.fork() == 0:
        try:
            os.write(there, json.dumps(read(job, system, setting)).encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here) as f:
        out = f.read()
    os.wait()
    return json.loads(out) if out else 0.0


def main():
    system, job = SYSTEMS[sys.argv[2]](), json.loads(sys.argv[3])
    if sys.argv[1] == "pack":
        stdout, sys.stdout = sys.stdout, sys.stderr
        system.pack(job)
        sys.stdout = stdout
        return
    if sys.argv[1] == "read":
        print(json.dumps({"rate": read(job, system, json.loads(sys.argv[4]))}), flush=True)
        os._exit(0)
    rates = [apart(job, system, s) for s in system.settings]
    best = system.settings[rates.index(max(rates))]
    if max(rates) == 0:
        read(job, system, best)  # why none works
    package = getattr(system, "package", None)
    shown = ", ".join(f"{k} {v}" for k, v in best.items()) + f", of {len(rates)} settings"
    version = importlib.metadata.version(package) if package else ""
    print(json.dumps({"setting": json.dumps(best), "shown": shown, "version": version, "rate": max(rates)}))


if __name__ == "__main__":
    main()
