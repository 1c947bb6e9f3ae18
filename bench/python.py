"""Reads data sets in batches, as copies (shardtool) or as views.

    python.py read WAY KIND WORKERS EPOCHS OUT    prints a line of JSON, of the epochs after the first
    python.py start WAY KIND OUT                  seconds to the first batch
    python.py ready WAY KIND OUT                  CPU for a batch that is ready when it is requested
    python.py loop WAY KIND OUT                   rate of steps that compute, with a loader over alone
    python.py wake                                CPU for being woken by a message, and nothing else
"""

import itertools
import json
import os
import socket
import sys
import time
import warnings

SHAPE = (3, 224, 224)
FIELDS = {"text": "txt", "images": "jpg", "tensors": "u8", "tokens": "u16"}
BATCH = {"text": 256, "images": 64, "tensors": 64, "tokens": 64}


def loader_of(kind, workers, dataset, **more):
    import shardtool

    spec = {"tensors": ("uint8", SHAPE), "tokens": ("uint16", (2049,))}.get(kind, "bytes")
    out = {"out": "numpy"} if kind == "tokens" else {}
    return shardtool.Loader(dataset, BATCH[kind], fields={FIELDS[kind]: spec}, shuffle=True, seed=1, tail="short", **out,
                            order=shardtool.Order(shuffle_memory="128MiB"), tuning=shardtool.Tuning(workers=workers or None, **more))


def batches_of(way, kind, workers, files):
    """The batches of an epoch. As views, they are tensors or bytes where the child has put them."""
    loader = loader_of(kind, workers, files[0], copy=way != "views")
    if way == "views" and kind != "tensors":
        return lambda: ((batch.size, batch.data(FIELDS[kind])) for batch in loader)  # and payloads() where each is needed by itself
    return lambda: (batch[FIELDS[kind]] for batch in loader)


def consume(kind, batches):
    """Counts batches, samples and bytes."""
    count = total = size = 0
    for batch in batches:
        count += 1
        if isinstance(batch, tuple):  # a number of samples, and all their bytes
            total, size = total + batch[0], size + len(batch[1])
        elif kind == "tokens":
            total, size = total + batch.shape[0], size + batch.nbytes
        elif kind == "tensors":
            total, size = total + batch.shape[0], size + batch.numel()
        else:
            total, size = total + len(batch), size + sum(map(len, batch))
    return count, total, size


def read(peer, kind, workers, epochs, files):
    batches = batches_of(peer, kind, workers, files)
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
    batches = batches_of(peer, kind, 2, files)
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


def loop(kind, files, steps=100):
    """The rate of steps of 20 ms of one core, with a loader that gives each a batch, over their rate alone, in turn."""
    import numpy

    values, repeat = numpy.ones(10_000), 1

    def compute():
        begin = time.perf_counter()
        for _ in range(repeat):
            numpy.sin(values)
        return time.perf_counter() - begin

    repeat = round(0.02 / min(compute() for _ in range(100)))
    ratios = []
    for _ in range(5):
        alone = sum(compute() for _ in range(steps))
        with loader_of(kind, 0, files[0]) as loader:
            batches = itertools.chain.from_iterable(loader for _ in itertools.count())
            next(batches)  # the start of the child
            ratios.append(alone / sum(compute() for _ in zip(range(steps), batches)))
    return {"ratios": ratios}


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
    jobs = {
        "read": lambda: read(peer, kind, int(rest[0]), int(rest[1]), rest[2:]), "start": lambda: start(kind, rest),
        "ready": lambda: ready(peer, kind, rest), "loop": lambda: loop(kind, rest), "wake": wake,
    }
    print(json.dumps(jobs[what]()))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
