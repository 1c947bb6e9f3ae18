"""Reads shards by WebDataset on a number of processes: prints seconds and samples."""

import multiprocessing
import sys
import time

import webdataset


def read(files, ready, go, results):
    data = webdataset.WebDataset(files, shardshuffle=False, empty_check=False)
    ready.release()
    go.wait()
    n = 0
    for sample in data:
        n += 1
    results.put(n)


if __name__ == "__main__":
    count, files = int(sys.argv[1]), sorted(sys.argv[2:])
    context = multiprocessing.get_context("fork")
    ready, go, results = context.Semaphore(0), context.Event(), context.Queue()
    parts = [files[i::count] for i in range(count)]
    for part in parts:
        context.Process(target=read, args=(part, ready, go, results)).start()
    for _ in parts:
        ready.acquire()
    begin = time.perf_counter()
    go.set()
    total = sum(results.get() for _ in parts)
    print(time.perf_counter() - begin, total)
