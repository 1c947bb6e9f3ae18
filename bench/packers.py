"""Packs the files of a folder by WebDataset's ShardWriter or MosaicML's MDSWriter on a number of processes: prints seconds and samples."""

import multiprocessing
import os
import shutil
import sys
import time


def by_webdataset(files, out, compression):
    from webdataset import ShardWriter

    suffix = ".tar.gz" if compression == "gz" else ".tar"
    with ShardWriter(os.path.join(out, "train-%06d" + suffix), maxsize=256 << 20, maxcount=1 << 30, verbose=0) as sink:
        for path, key, field in files:
            with open(path, "rb") as f:
                sink.write({"__key__": key, field: f.read()})


def by_mosaicml(files, out, compression):
    from streaming import MDSWriter

    columns = {"key": "str", files[0][2]: "bytes"}
    chosen = None if compression == "none" else compression
    with MDSWriter(out=out, columns=columns, compression=chosen, size_limit=256 << 20) as sink:
        for path, key, field in files:
            with open(path, "rb") as f:
                sink.write({"key": key, field: f.read()})


def work(pack, files, out, compression, ready, go, done):
    os.makedirs(out)
    if pack == "webdataset":
        import webdataset  # noqa: F401  before the clock starts

        run = by_webdataset
    else:
        import streaming  # noqa: F401

        run = by_mosaicml
    ready.release()
    go.wait()
    run(files, out, compression)
    done.put(len(files))


def main():
    pack, count, compression, src, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
    files = []
    for folder, _, names in sorted(os.walk(src)):
        for name in sorted(names):
            key, _, field = name.partition(".")
            files.append((os.path.join(folder, name), os.path.join(os.path.relpath(folder, src), key), field))
    context = multiprocessing.get_context("fork")
    ready, go, done = context.Semaphore(0), context.Event(), context.Queue()
    for i in range(count):
        part = files[i * len(files) // count : (i + 1) * len(files) // count]
        context.Process(target=work, args=(pack, part, os.path.join(out, str(i)), compression, ready, go, done)).start()
    for _ in range(count):
        ready.acquire()
    begin = time.perf_counter()
    go.set()
    total = sum(done.get() for _ in range(count))
    print(time.perf_counter() - begin, total)
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
