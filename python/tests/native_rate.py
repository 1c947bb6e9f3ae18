"""Prints how fast shardtool reads inputs that other libraries made, as a share of the rate of each
library: python native_rate.py [--size BYTES] [--rounds N] [--folder DIR] [KIND ...].

It makes an input of each kind, by default of 1 GB, with bounded memory, and removes it. The library
reads it in one process, up to the values of each sample in Python. The tests' program readsource,
which Go builds, reads it as a pack does, with every byte of each sample, and drops them. A whole
pack into uncompressed shards in memory follows: the rest of it is tar headers, checksums and
writing. Rounds alternate, and figures are medians. `--rounds 0` packs once, with the default
compression, into DIR, for the memory. SHARDTOOL_BINARY is the program, by default bin/shardtool.

A kind whose library is not installed is left out: pyarrow, datasets, mosaicml-streaming, tfrecord,
tensorflow-cpu, numpy, megatron-core, orjson, webdataset."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import io
import json
import os
import platform
import random
import resource
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

import numpy as np

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(7)
POOL = RNG.bytes(1 << 24)
TEXT = RNG.choice(list(b"etaoin shrdlu cmfwyp "), 1 << 24).astype("u1").tobytes().decode()


def slices(pool: Any, least: int, most: int, size: int) -> Iterator[Any]:
    """Parts of a pool, together of this size."""
    while size > 0:
        length = random.randrange(least, most)
        at = random.randrange(len(pool) - length)
        size -= length
        yield pool[at : at + length]


def images(size: int) -> Iterator[Any]:
    return slices(POOL, 10_000, 30_000, size)


def tables(size: int) -> Iterator[Any]:
    """Tables of 20,000 rows."""
    import pyarrow as pa

    texts, count = slices(TEXT, 1000, 3000, size), 0
    while part := [text for _, text in zip(range(20_000), texts)]:
        ids = np.arange(count, count + len(part))
        count += len(part)
        yield pa.table({"id": ids, "text": part, "label": ids % 10, "score": ids / 7})


def rows(batches: Any) -> int:
    return sum(len(batch.to_pylist()) for batch in batches)


def make_parquet(at: Path, size: int) -> None:
    import pyarrow.parquet as pq

    first = next(tables(1))
    with pq.ParquetWriter(at / "x.parquet", first.schema) as w:
        for table in tables(size):
            w.write_table(table)


def batches_of_parquet(at: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(at / "x.parquet", pre_buffer=True).iter_batches(1024, use_threads=True)


def make_arrow(at: Path, size: int, form: str = "new_file") -> None:
    import pyarrow as pa

    with getattr(pa.ipc, form)(at / "x.arrow", next(tables(1)).schema) as w:
        for table in tables(size):
            w.write_table(table, 1000)


def read_arrow(at: Path) -> int:
    import pyarrow as pa

    file = pa.ipc.open_file(pa.memory_map(str(at / "x.arrow")))
    return rows(file.get_batch(i) for i in range(file.num_record_batches))


def make_saved(at: Path, size: int) -> None:
    import datasets

    datasets.disable_progress_bars()
    make_arrow(at, size, "new_stream")
    datasets.Dataset.from_file(str(at / "x.arrow")).save_to_disk(at / "saved")
    (at / "x.arrow").unlink()


def read_saved(at: Path) -> int:
    import datasets

    return sum(len(batch["id"]) for batch in datasets.load_from_disk(at / "saved").iter(1000))


def make_hive(at: Path, size: int) -> None:
    import pyarrow.dataset as ds

    for i, table in enumerate(tables(size)):
        ds.write_dataset(table, at, format="parquet", partitioning=["label"], partitioning_flavor="hive",
                         basename_template=f"{i}-{{i}}.parquet", existing_data_behavior="overwrite_or_ignore")  # fmt: skip


def batches_of_hive(at: Path) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(at, partitioning="hive").to_batches(batch_size=1024)


def make_mds(at: Path, size: int) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(at), columns={"image": "bytes", "label": "int", "text": "str"}) as w:
        for i, image in enumerate(images(size)):
            w.write({"image": image, "label": i % 10, "text": f"text {i}"})


def read_mds(at: Path) -> int:
    from streaming.base.format.mds.reader import MDSReader

    count = 0
    for shard in json.loads((at / "index.json").read_text())["shards"]:
        reader = MDSReader.from_json(str(at), "", shard)
        count += sum("image" in reader[i] for i in range(reader.samples))
    return count


def make_tfrecord(at: Path, size: int) -> None:
    from tfrecord.writer import TFRecordWriter

    w = TFRecordWriter(str(at / "x.tfrecord"))
    for i, image in enumerate(images(size)):
        w.write({"image": (image, "byte"), "label": (i % 10, "int"), "text": (b"text %d" % i, "byte")})
    w.close()


def read_tfrecord(at: Path) -> int:
    from tfrecord.reader import tfrecord_loader

    return sum("image" in record for record in tfrecord_loader(str(at / "x.tfrecord"), None))


def make_tensorflow(at: Path, size: int) -> None:
    import tensorflow as tf

    def feature(value: bytes) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    with tf.io.TFRecordWriter(str(at / "x.tfrecord")) as w:
        for i, image in enumerate(images(size)):
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 10]))
            features = tf.train.Features(feature={"image": feature(image), "label": label, "text": feature(b"text %d" % i)})
            w.write(tf.train.Example(features=features).SerializeToString())


def read_tensorflow(at: Path) -> int:
    import tensorflow as tf

    one = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "text": tf.io.FixedLenFeature([], tf.string),
    }
    records = tf.data.TFRecordDataset(str(at / "x.tfrecord"), buffer_size=8 << 20).batch(64)
    parsed = records.map(lambda batch: tf.io.parse_example(batch, one), num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return sum(len(batch["image"]) for batch in parsed.as_numpy_iterator())


def write_array(out: Any, size: int) -> None:
    count = size // 4096
    np.lib.format.write_array_header_2_0(out, {"descr": "<f4", "fortran_order": False, "shape": (count, 1024)})
    for first in range(0, count, 1000):
        part = min(1000, count - first) * 4096
        at = random.randrange(len(POOL) - part) & -4
        out.write(POOL[at : at + part])


def make_npy(at: Path, size: int) -> None:
    with open(at / "x.npy", "wb") as out:
        write_array(out, size)


def read_npy(at: Path) -> int:
    return sum(len(row.copy()) > 0 for row in np.load(at / "x.npy", mmap_mode="r"))


def make_npz(at: Path, size: int) -> None:
    with zipfile.ZipFile(at / "x.npz", "w") as archive:  # as numpy.savez does, whose arrays are in memory
        with archive.open("x.npy", "w", force_zip64=True) as out:
            write_array(out, size)
        labels = io.BytesIO()
        np.save(labels, np.arange(size // 4096) % 10)
        archive.writestr("y.npy", labels.getvalue())


def read_npz(at: Path) -> int:
    arrays = np.load(at / "x.npz")
    return sum(len(x) > 0 for x, _ in zip(arrays["x"], arrays["y"]))


def make_megatron(at: Path, size: int) -> None:
    lengths = []
    with open(at / "x.bin", "wb") as out:
        for document in slices(POOL, 100, 4000, size):
            lengths.append(len(document) // 2)
            out.write(document[: len(document) // 2 * 2])
    ends = np.cumsum(lengths, dtype="i8")
    with open(at / "x.idx", "wb") as out:  # megatron/core/datasets/indexed_dataset.py
        out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        for part in (np.array(lengths, "i4"), 2 * (ends - lengths), np.arange(len(lengths) + 1)):
            out.write(part.tobytes())


def read_megatron(at: Path) -> int:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    data = IndexedDataset(str(at / "x"), mmap=True)
    return sum(data[i].copy().ndim for i in range(len(data)))


def make_jsonl(at: Path, size: int) -> None:
    with open(at / "x.jsonl", "w") as out:
        for i, text in enumerate(slices(TEXT, 1000, 3000, size)):
            out.write(json.dumps({"id": i, "text": text, "label": i % 10, "score": i / 7}) + "\n")


def read_jsonl(at: Path) -> int:
    import orjson

    with open(at / "x.jsonl", "rb", buffering=1 << 20) as lines:
        return sum("id" in orjson.loads(line) for line in lines)


def make_zip(at: Path, size: int) -> None:
    with zipfile.ZipFile(at / "x.zip", "w") as archive:
        for i, image in enumerate(images(size)):
            archive.writestr(f"d/{i:08}.jpg", image)
            archive.writestr(f"d/{i:08}.txt", f"text {i}")


def read_zip(at: Path) -> int:
    with zipfile.ZipFile(at / "x.zip") as archive:
        return sum(len(archive.read(member)) > 0 for member in archive.infolist()) // 2


def make_tar(at: Path, size: int) -> None:
    import webdataset

    with webdataset.TarWriter(str(at / "x.tar")) as w:
        for i, image in enumerate(images(size)):
            w.write({"__key__": f"{i:08}", "jpg": image, "txt": f"text {i}"})


def read_tar(at: Path) -> int:
    import webdataset

    return sum("jpg" in sample for sample in webdataset.WebDataset(str(at / "x.tar"), shardshuffle=False))


class Kind(NamedTuple):
    """A kind of input: what makes it and reads it, and with which library."""

    make: Callable[[Path, int], None]
    read: Callable[[Path], int]
    library: str
    module: str
    settings: str
    name: str = ""  # of the file that is packed


INDEXED = "megatron.core.datasets.indexed_dataset"
ARROW = ("pyarrow", "pyarrow.dataset")
KINDS = {
    "parquet": Kind(make_parquet, lambda at: rows(batches_of_parquet(at)), *ARROW, "iter_batches(1024), threads, pre_buffer; to_pylist"),
    "parquet-columns": Kind(make_parquet, lambda at: sum(map(len, batches_of_parquet(at))), *ARROW, "the same without to_pylist"),
    "arrow": Kind(make_arrow, read_arrow, *ARROW, "memory_map, batches of 1,000; to_pylist"),
    "saved": Kind(make_saved, read_saved, "datasets", "datasets", "load_from_disk, iter(1000)", "saved"),
    "mds": Kind(make_mds, read_mds, "mosaicml-streaming", "streaming", "MDSReader of each shard"),
    "tfrecord": Kind(make_tfrecord, read_tfrecord, "tfrecord", "tfrecord.reader", "tfrecord_loader"),
    "tfrecord-tf": Kind(make_tensorflow, read_tensorflow, "tensorflow-cpu", "tensorflow", "batch(64), parse_example, AUTOTUNE"),
    "npy": Kind(make_npy, read_npy, "numpy", "numpy", "mmap_mode, a copy of each row", "x.npy"),
    "npz": Kind(make_npz, read_npz, "numpy", "numpy", "load, which reads whole arrays", "x.npz"),
    "megatron": Kind(make_megatron, read_megatron, "megatron-core", INDEXED, "mmap, a copy of each document"),
    "jsonl": Kind(make_jsonl, read_jsonl, "orjson", "orjson", "loads of each line"),
    "zip": Kind(make_zip, read_zip, "python", "zipfile", "read of each member", "x.zip"),
    "hive": Kind(make_hive, lambda at: rows(batches_of_hive(at)), *ARROW, "dataset.to_batches, threads; to_pylist"),
    "tar": Kind(make_tar, read_tar, "webdataset", "webdataset", "WebDataset without decoding", "x.tar"),
}


def children() -> float:
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime


def pack(source: Path, out: Path, *flags: str) -> Tuple[float, int]:
    """Returns the seconds that a pack took, and its peak memory in MiB."""
    binary = os.environ.get("SHARDTOOL_BINARY", ROOT / "bin" / "shardtool")
    peak, began = 0, time.perf_counter()
    with subprocess.Popen([binary, "pack", source, out, "--quiet", *flags], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(0.005)
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                continue
            peak = max(peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    took = time.perf_counter() - began
    shutil.rmtree(out, ignore_errors=True)
    if process.returncode:
        raise SystemExit(f"pack of {source} exits {process.returncode}")
    return took, peak >> 10


def measure(kind: Kind, at: Path, size: int, rounds: int, reader: Path) -> str:
    importlib.import_module(kind.module)  # before the time is taken
    kind.make(at, size)
    size = sum(path.stat().st_size for path in at.rglob("*") if path.is_file())
    source = at / kind.name
    if rounds == 0:
        took, peak = pack(source, at.parent / "out")
        return f"packed {size / took / 1e6:4,.0f} MB/s with the default compression, {peak:4} MiB"
    figures = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        for _ in range(rounds):
            began, used = time.perf_counter(), time.process_time()
            count = kind.read(at)
            own, own_cpu, used = time.perf_counter() - began, time.process_time() - used, children()
            text = subprocess.run([reader, source], check=True, stdout=subprocess.PIPE).stdout.split()
            read, read_cpu = float(text[2]), children() - used
            if int(text[0]) != count:
                raise SystemExit(f"{kind.library} reads {count} samples, shardtool {int(text[0])}")
            packed, peak = pack(source, Path(memory) / "out", "--format", "tar")
            figures.append((size / own / 1e6, size / read / 1e6, own / read, own_cpu / read_cpu, size / packed / 1e6, peak))
    own, read, ratio, of_cpu, packed, peak = map(statistics.median, zip(*figures))
    rates = f"{own:6,.0f} MB/s, shardtool {read:6,.0f}, ratio {ratio:5.2f}, of CPU time {of_cpu:5.2f}"
    return f"{rates}; packed {packed:4,.0f} MB/s, {peak:4.0f} MiB"


def main(names: List[str], size: int, rounds: int, folder: str) -> None:
    with tempfile.TemporaryDirectory() as programs:
        reader = Path(programs) / "readsource"
        subprocess.run(["go", "test", "-c", "-o", reader, "./cmd/shardtool"], check=True, cwd=ROOT)
        for name in names or KINDS:
            kind = KINDS[name]
            version = platform.python_version()
            with tempfile.TemporaryDirectory(dir=folder) as at:
                (Path(at) / "in").mkdir()
                try:
                    if kind.library != "python":
                        version = importlib.metadata.version(kind.library)
                    figures = measure(kind, Path(at) / "in", size, rounds, reader)
                except ImportError as err:
                    version, figures = "", f"left out: {err}"
            print(f"{name:15} {kind.library} {version}: {figures} ({kind.settings})", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--size", type=float, default=1e9, help="bytes of each input (1e9)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3); 0: one pack with the default compression")
    parser.add_argument("--folder", help="where inputs are made (the system's folder of temporary files)")
    given = parser.parse_args()
    main(given.kinds, int(given.size), given.rounds, given.folder)
