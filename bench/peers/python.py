"""Reads data sets in batches: arrays and bytes (shardtool), or views of bytes.

    python.py read WAY KIND WORKERS MEMORY DATASET    prints a line of JSON: the first epoch, its start included, and two more
    python.py start WAY KIND WORKERS MEMORY DATASET   seconds to the first batch
    python.py ready WAY KIND WORKERS MEMORY DATASET   CPU for a batch that is ready when it is requested
    python.py loop WAY KIND WORKERS MEMORY DATASET    rate of steps that compute, with a loader over alone
    python.py whole WAY KIND WORKERS MEMORY DATASET   CPU of all processes for a batch: of a Loader (loader), and of a DataLoader with two
                                                      workers that have nothing to do (workers) or a function to call (mapped)
    python.py wake                                    CPU for being woken by a message, and nothing else

MEMORY is the shuffle memory. Imports are not counted.
"""

import contextlib
import itertools
import json
import os
import socket
import sys
import time
import warnings

SHAPE = (3, 224, 224)
FIELDS = {"text": "txt", "images": "jpg", "tensors": "u8", "tokens": "u16", "phrases": "u16"}
BATCH = {"text": 256, "images": 64, "tensors": 64, "tokens": 64, "phrases": 64}


def loader_of(way, kind, workers, memory, dataset):
    import shardtool

    spec = {"tensors": ("uint8", SHAPE), "tokens": ("uint16", (2049,)), "phrases": ("uint16", (2049,))}.get(kind, "bytes")
    make = shardtool.Dataset if way in ("workers", "mapped") else shardtool.Loader
    return make(dataset, BATCH[kind], fields={FIELDS[kind]: spec}, shuffle=True, seed=1, tail="short",
                format="numpy" if way == "shardtool" and FIELDS[kind] == "u16" else None, map_batch=dict if way == "mapped" else None,
                order=shardtool.Order(shuffle_memory=memory), tuning=shardtool.Tuning(workers=int(workers) or None))


def epoch_of(loader, way, kind):
    """The batches of an epoch. As views, they are tensors or bytes where the child has put them."""
    if way == "views" and kind != "tensors":
        return ((batch.size, batch.data(FIELDS[kind])) for batch in loader)  # and payloads() where each is needed by itself
    return (batch[FIELDS[kind]] for batch in loader)


def consume(kind, batches):
    """Counts batches, samples and bytes."""
    count = total = size = 0
    for batch in batches:
        count += 1
        if isinstance(batch, tuple):  # a number of samples, and all their bytes
            total, size = total + batch[0], size + len(batch[1])
        elif kind in ("tokens", "phrases", "tensors"):
            total, size = total + batch.shape[0], size + batch.nbytes
        else:
            total, size = total + len(batch), size + sum(map(len, batch))
    return count, total, size


def read(way, kind, *data):
    took, cpu, got = [], [], set()
    begin, used = time.perf_counter(), time.process_time()
    with loader_of(way, kind, *data) as loader:
        for _ in range(3):
            got.add(consume(kind, epoch_of(loader, way, kind)))
            took.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - used)
            begin, used = time.perf_counter(), time.process_time()
        if len(got) > 1:
            raise SystemExit(f"epochs differ: {got}")
        batches, samples, _ = got.pop()
        return {"cold": took[0], "seconds": took[1:], "cpu": cpu[1:], "batches": batches, "samples": samples, "blocks": loader.stats().blocks}


def start(way, kind, *data):
    """Seconds from making a loader to its first batch, in a process that has imported what it needs."""
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        with loader_of(way, kind, *data) as loader:
            next(epoch_of(loader, way, kind))
            took.append(time.perf_counter() - begin)
    return {"seconds": took[1:]}


def ready(way, kind, *data):
    """A loop that does something else between batches. Only the time of this thread while it takes one counts."""
    loader = loader_of(way, kind, *data)
    for _ in range(2):
        it, cpu, count = epoch_of(loader, way, kind), 0.0, 0
        while True:
            time.sleep(0.005)
            begin = time.thread_time()
            batch = next(it, None)
            cpu += time.thread_time() - begin
            if batch is None:
                break
            count += 1
    return {"cpu": [cpu], "batches": count}


def whole(way, kind, *data):
    from measure import cpu

    batches = loader_of(way, kind, *data)
    if way != "loader":
        from torch.utils.data import DataLoader

        batches = DataLoader(batches, batch_size=None, num_workers=2, persistent_workers=True)
    used, got = [], set()
    for _ in range(5):
        begin = cpu()
        got.add(consume(kind, (batch[FIELDS[kind]] for batch in batches))[:2])
        used.append(cpu() - begin)
    (count, samples), = got
    return {"cpu": used[1:], "batches": count, "samples": samples}


def loop(*data, steps=60):
    """The rate of steps of 20 ms of one core, with a loader that gives each a batch, over their rate alone, in turn."""
    import numpy

    values, repeat = numpy.ones(10_000), 1

    def compute():
        begin = time.perf_counter()
        for _ in range(repeat):
            numpy.sin(values)
        return time.perf_counter() - begin

    repeat = round(0.02 / min(compute() for _ in range(100)))
    ratios, blocks = [], 0
    for _ in range(5):
        alone = sum(compute() for _ in range(steps))
        with loader_of(*data) as loader:
            batches = itertools.chain.from_iterable(loader for _ in itertools.count())
            next(batches)  # the start of the child
            ratios.append(alone / sum(compute() for _ in zip(range(steps), batches)))
            blocks += loader.stats().blocks
    return {"ratios": ratios, "blocks": blocks // 5, "batches": steps}


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
    return {"cpu": [used], "batches": times}


def main():
    warnings.simplefilter("ignore")
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  a training process has it
    import shardtool  # noqa: F401

    what, *rest = sys.argv[1:]
    print(json.dumps({"read": read, "start": start, "ready": ready, "loop": loop, "whole": whole, "wake": wake}[what](*rest)))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
