"""Packs the samples of plain tars for other loaders, and reads data sets in batches with one of the loaders.

    python.py pack PEER KIND OUT TAR…                   prints the number of samples
    python.py read PEER KIND WORKERS EPOCHS OUT|TAR…    prints a line of JSON, of the epochs after the first
    python.py start PEER KIND OUT                       seconds to the first batch
    python.py ready PEER KIND OUT                       CPU for a batch that is ready when it is requested
    python.py wake                                      CPU for being woken by a message, and nothing else

Every loader delivers the same: lists of bytes, or one tensor per batch, in this process.
"""

import json
import os
import socket
import sys
import tarfile
import time
import warnings

SHAPE = (3, 224, 224)
FIELDS = {"text": "txt", "images": "jpg", "tensors": "u8"}
BATCH = {"text": 256, "images": 64, "tensors": 64}


def samples(files):
    """The payloads in plain tars."""
    for file in files:
        with tarfile.open(file, "r:") as tar:
            for member in tar:
                yield tar.extractfile(member).read()
                tar.members = []


def decoded(kind, payload):
    import numpy

    return numpy.frombuffer(payload, "uint8").reshape(SHAPE) if kind == "tensors" else payload


def as_tensor(payload):
    import torch

    return torch.frombuffer(bytearray(payload), dtype=torch.uint8).reshape(SHAPE)


# ---- packing ----
def pack_mosaicml(kind, out, files):
    from streaming import MDSWriter

    column = "ndarray:uint8:3,224,224" if kind == "tensors" else "bytes"
    count = 0
    with MDSWriter(out=out, columns={"x": column}, size_limit=64 << 20) as sink:
        for payload in samples(files):
            sink.write({"x": decoded(kind, payload)})
            count += 1
    return count


def litdata_samples(task):
    import torch

    kind, file = task
    for payload in samples([file]):
        yield {"x": torch.tensor(decoded(kind, payload)) if kind == "tensors" else payload}


def pack_litdata(kind, out, files):
    import contextlib

    from litdata import StreamingDataset, optimize

    with contextlib.redirect_stdout(sys.stderr):
        optimize(litdata_samples, [(kind, file) for file in files], output_dir=out, chunk_bytes="64MB", num_workers=1)
    return len(StreamingDataset(out))


# ---- reading: each gives a function that goes through an epoch of batches ----
def with_workers(workers):
    return {"num_workers": workers, "prefetch_factor": 4, "persistent_workers": True} if workers else {}


def read_webdataset(kind, workers, files):
    import webdataset

    data = webdataset.WebDataset(sorted(files), shardshuffle=False, empty_check=False).to_tuple(FIELDS[kind])
    if kind == "tensors":
        data = data.map_tuple(as_tensor)
    data = data.batched(BATCH[kind])
    loader = webdataset.WebLoader(data, batch_size=None, **with_workers(workers)) if workers else data
    return lambda: (batch[0] for batch in loader)


def read_mosaicml(kind, workers, files):
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    data = StreamingDataset(local=files[0], batch_size=BATCH[kind], shuffle=False)
    loader = DataLoader(data, batch_size=BATCH[kind], **with_workers(workers))
    return lambda: (batch["x"] for batch in loader)


def read_litdata(kind, workers, files):
    from litdata import StreamingDataLoader, StreamingDataset

    more = with_workers(workers) or {"prefetch_factor": 2}  # which torch 1.13 wants to be so without workers
    loader = StreamingDataLoader(StreamingDataset(files[0], shuffle=False), batch_size=BATCH[kind], **more)
    return lambda: (batch["x"] for batch in loader)


def loader_of(kind, workers, dataset, **more):
    import shardtool

    spec = ("uint8", SHAPE) if kind == "tensors" else "bytes"
    return shardtool.Loader(dataset, BATCH[kind], fields={FIELDS[kind]: spec}, shuffle=True, seed=1, tail="short",
                            order=shardtool.Order(shuffle_memory="128MiB"), tuning=shardtool.Tuning(workers=workers, **more))


def read_shardtool(kind, workers, files):
    """As the others: the batches are this process's own."""
    loader = loader_of(kind, workers, files[0])
    return lambda: (batch[FIELDS[kind]] for batch in loader)


def read_views(kind, workers, files):
    """Without a copy: tensors or bytes where the child has put them."""
    loader = loader_of(kind, workers, files[0], copy=False)
    if kind == "tensors":
        return lambda: (batch[FIELDS[kind]] for batch in loader)
    return lambda: ((batch.size, batch.data(FIELDS[kind])) for batch in loader)  # and payloads() where each is needed by itself


READERS = {"webdataset": read_webdataset, "mosaicml": read_mosaicml, "litdata": read_litdata, "shardtool": read_shardtool, "views": read_views}


def consume(kind, batches):
    """Counts batches, samples and bytes."""
    count = total = size = 0
    for batch in batches:
        count += 1
        if isinstance(batch, tuple):  # a number of samples, and all their bytes
            total, size = total + batch[0], size + len(batch[1])
        elif kind == "tensors":
            total, size = total + batch.shape[0], size + batch.numel()
        else:
            total, size = total + len(batch), size + sum(map(len, batch))
    return count, total, size


def read(peer, kind, workers, epochs, files):
    batches = READERS[peer](kind, workers, files)
    first = consume(kind, batches())
    took, cpu = [], []
    for _ in range(epochs):
        begin, used = time.perf_counter(), time.process_time()
        got = consume(kind, batches())
        took.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
        if got[1:] != first[1:]:
            raise SystemExit(f"{got} came in one epoch, {first} in another")
    return {"seconds": took, "cpu": cpu, "batches": first[0], "samples": first[1], "bytes": first[2]}


def start(kind, files):
    """Seconds from making a loader to its first batch, in a process that has imported what it needs."""
    import shardtool  # noqa: F401

    took = []
    for _ in range(5):
        begin = time.perf_counter()
        with loader_of(kind, 2, files[0], copy=False) as loader:
            for batch in loader:
                batch.data(FIELDS[kind])
                break
            took.append(time.perf_counter() - begin)
    return {"seconds": took[1:]}


def ready(peer, kind, files):
    """A loop that does something else between batches. Only the time of this thread while it takes one counts."""
    batches = READERS[peer](kind, 2, files)
    used = []
    for _ in range(2):
        it, cpu, count = iter(batches()), 0.0, 0
        while True:
            time.sleep(0.005)
            begin = time.thread_time()
            batch = next(it, None)
            cpu += time.thread_time() - begin
            if batch is None:
                break
            count += 1
        used.append(cpu)
    return {"seconds": used[1:], "cpu": used[1:], "batches": count, "samples": 0, "bytes": 0}


def wake(times=1000):
    """A process that sleeps until a message of 64 bytes arrives, repeatedly."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        for _ in range(times):
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:  # as a reader at work: its processor does not sleep
                pass
            theirs.send(bytes(64))
        os._exit(0)
    buffer = bytearray(64)
    begin = time.thread_time()
    for _ in range(times):
        ours.recv_into(buffer)
    used = time.thread_time() - begin
    os.waitpid(pid, 0)
    return {"seconds": [used], "cpu": [used], "batches": times, "samples": 0, "bytes": 0}


def main():
    warnings.simplefilter("ignore")
    what, peer, kind, *rest = sys.argv[1:] if len(sys.argv) > 3 else [sys.argv[1], "", ""]
    if what == "pack":
        os.makedirs(rest[0], exist_ok=True)
        print({"mosaicml": pack_mosaicml, "litdata": pack_litdata}[peer](kind, rest[0], rest[1:]))
    elif what == "start":
        print(json.dumps(start(kind, rest)))
    elif what == "ready":
        print(json.dumps(ready(peer, kind, rest)))
    elif what == "wake":
        print(json.dumps(wake()))
    else:
        print(json.dumps(read(peer, kind, int(rest[0]), int(rest[1]), rest[2:])))
    sys.stdout.flush()
    os._exit(0)  # workers of other loaders may not end by themselves


if __name__ == "__main__":
    main()
