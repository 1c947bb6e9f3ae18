"""Writes the folders here. Each is what its own library writes, or bytes laid out by its specification.

python -m pip install pyarrow h5py netCDF4 lmdb zarr fastavro tfrecord deltalake pylance array_record numpy datasets && python make.py
"""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import sqlite3
import struct
import tarfile
import zipfile

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.orc as po
import pyarrow.parquet as pq

R = os.path.dirname(os.path.abspath(__file__))


def d(n):
    os.makedirs(f"{R}/{n}", exist_ok=True)
    return f"{R}/{n}/"


T = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})


def w(p, b):
    os.makedirs(os.path.dirname(p), exist_ok=True)
    with open(p, "wb") as f:
        f.write(b)


x = d("hubclone/data")
w(R + "/hubclone/README.md", b"# hi")
pq.write_table(T, x + "train-0.parquet")
x = d("pq_noext")
pq.write_table(T, x + "part-0000")
pq.write_table(T, x + "part-0001")
x = d("spark")
pq.write_table(T, x + "part-0.snappy.parquet")
w(x + "_SUCCESS", b"")
w(x + ".part-0.crc", b"")
x = d("img2dataset")
for i in range(2):
    with tarfile.open(x + f"{i:05d}.tar", "w") as t:
        for n, b in (("a.jpg", b"j"), ("a.txt", b"t")):
            ti = tarfile.TarInfo(f"{i}{n}")
            ti.size = len(b)
            t.addfile(ti, io.BytesIO(b))
    pq.write_table(T, x + f"{i:05d}.parquet")
    w(x + f"{i:05d}_stats.json", b"{}")
x = d("gz_as_jsonl")
w(x + "a.jsonl", gzip.compress(b'{"a":1}\n{"a":2}\n'))
x = d("gz_as_tar")
with open(R + "/img2dataset/00000.tar", "rb") as f:
    b = f.read()
w(x + "a.tar", gzip.compress(b))
x = d("feather")
pf.write_feather(T, x + "a.feather")
x = d("arrow")
with pa.ipc.new_file(x + "a.arrow", T.schema) as f:
    f.write_table(T)
x = d("arrow_stream")
with pa.ipc.new_stream(x + "data-00000-of-00001.arrow", T.schema) as f:
    f.write_table(T)
x = d("orc")
po.write_table(T, x + "a.orc")
x = d("orc_noext")
po.write_table(T, x + "a")
import fastavro

x = d("avro")
with open(x + "a.avro", "wb") as f:
    fastavro.writer(
        f,
        fastavro.parse_schema(
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
        ),
        [{"a": 1}, {"a": 2}],
    )
from tfrecord.writer import TFRecordWriter

x = d("tfrecord")
f = TFRecordWriter(x + "a-00000-of-00001")
f.write({"image": (b"xyz", "byte"), "label": (3, "int")})
f.close()
import h5py

x = d("hdf5")
with h5py.File(x + "a.h5", "w") as f:
    f["x"] = np.arange(12).reshape(3, 4)
    f["y"] = np.arange(3)
x = d("hdf5_wrong_ext")
with h5py.File(x + "a.dat", "w") as f:
    f["x"] = np.arange(12).reshape(3, 4)
import netCDF4

x = d("netcdf4")
f = netCDF4.Dataset(x + "a.nc", "w")
f.createDimension("t", 3)
f.createVariable("v", "f4", ("t",))[:] = [1, 2, 3]
f.close()
x = d("netcdf3")
f = netCDF4.Dataset(x + "a.dat", "w", format="NETCDF3_CLASSIC")
f.createDimension("t", 3)
f.createVariable("v", "f4", ("t",))[:] = [1, 2, 3]
f.close()
x = d("sqlite")
if not os.path.exists(x + "a.db"):
    c = sqlite3.connect(x + "a.db")
    c.execute("create table t (a int, b text)")
    c.execute("insert into t values (1,'x')")
    c.commit()
    c.close()
x = d("npz")
np.savez(x + "a.npz", x=np.arange(3), y=np.arange(3.0))
np.savez(x + "b.npz", x=np.arange(3))
from array_record.python.array_record_module import ArrayRecordWriter

x = d("arrayrecord")
f = ArrayRecordWriter(x + "a.data", "group_size:1")
f.write(b"hello")
f.close()
x = d("recordio")
w(x + "a.rec", struct.pack("<II", 0xCED7230A, 5) + b"hello\0\0\0")
x = d("megatron")
w(x + "a.bin", np.arange(10, dtype="u2").tobytes())
w(
    x + "a.idx",
    b"MMIDIDX\0\0"
    + struct.pack("<QBQQ", 1, 8, 1, 2)
    + struct.pack("<i", 10)
    + struct.pack("<q", 0)
    + struct.pack("<qq", 0, 1),
)
x = d("mnist")
w(
    x + "train-images-idx3-ubyte",
    b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + bytes(24),
)
w(x + "train-labels-idx1-ubyte", b"\0\0\x08\x01" + struct.pack(">I", 2) + bytes(2))
x = d("mnist_gz")
w(
    x + "train-images-idx3-ubyte.gz",
    gzip.compress(b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + bytes(24)),
)
x = d("cifar_bin")
w(x + "data_batch_1.bin", bytes(3073 * 2))
w(x + "batches.meta.txt", b"airplane\n")
x = d("cifar_py")
w(x + "data_batch_1", pickle.dumps({"data": np.zeros((2, 3072), "u1")}, 2))
w(x + "batches.meta", pickle.dumps({"a": 1}, 2))
x = d("zips")
with zipfile.ZipFile(x + "a.zip", "w") as z:
    z.writestr("a.txt", "a")
with zipfile.ZipFile(d("zip_csv") + "a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a.csv", "a,b\n1,2\n")
    z.writestr("README.md", "# hi")
with zipfile.ZipFile(d("zip_zips") + "a.zip", "w") as z:
    z.write(x + "a.zip", "a.zip")
x = d("jsonl_xz")
w(x + "a.jsonl.xz", lzma.compress(b'{"a":1}\n'))
x = d("jsonl_bz2")
w(x + "a.jsonl.bz2", bz2.compress(b'{"a":1}\n'))
x = d("json_gz")
w(x + "a.json.gz", gzip.compress(b'[{"a":1}]'))
x = d("tar_xz")
w(x + "a.tar.xz", lzma.compress(b))
x = d("lfs")
w(
    x + "data/a.parquet",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
)
x = d("lfs_img")
w(x + "a.jpg", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
import deltalake

if not os.path.exists(R + "/delta"):
    deltalake.write_deltalake(R + "/delta", T)
import lance

if not os.path.exists(R + "/lance"):
    lance.write_dataset(T, R + "/lance")
import lmdb

e = lmdb.open(R + "/lmdb")
t = e.begin(write=True)
t.put(b"a", b"b")
t.commit()
e.close()
import zarr

zarr.open_group(R + "/zarr", mode="w").create_array("x", shape=(3,), dtype="f4")[:] = [
    1,
    2,
    3,
]
zarr.open_group(R + "/zarr2", mode="w", zarr_format=2).create_array(
    "x", shape=(3,), dtype="f4"
)[:] = [1, 2, 3]
w(R + "/mds2/a/train/index.json", b'{"version":2,"shards":[]}')
w(R + "/mds2/a/train/shard.00000.mds", b"xx")
for k, name in enumerate(("a", "b")):  # as MDSWriter writes them
    columns = {"column_names": ["x"], "column_encodings": ["int"], "column_sizes": [8], "compression": None, "format": "mds", "hashes": [], "size_limit": 67108864, "version": 2}
    head = json.dumps(columns, sort_keys=True).encode()
    shard = struct.pack("<III", 1, 12 + len(head), 20 + len(head)) + head + struct.pack("<q", k)
    columns.update(raw_data={"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}, samples=1, zip_data=None)
    w(R + f"/mds_streams/{name}/shard.00000.mds", shard)
    w(R + f"/mds_streams/{name}/index.json", json.dumps({"version": 2, "shards": [columns]}).encode())
w(R + "/mds_json/index.json", b'{"version":2,"shards":[{"format":"json","version":2}]}')
w(R + "/mds_json/shard.00000.json", b'{"a":1}\n')
w(R + "/litdata/index.json", b'{"chunks":[],"config":{}}')
w(R + "/litdata/chunk-0-0.bin", b"x")
rows = datasets.Dataset.from_dict(
    {"text": ["a", "b", "c"], "label": [0, 1, 0]},
    features=datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}),
)
rows.save_to_disk(R + "/saved_one", num_shards=2)
datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(R + "/saved")
w(R + "/json_list/README.md", b"# hi")
w(R + "/json_list/dataset_infos.json", b'{"a":1}')
w(R + "/json_list/alpaca.json", b'[\n  {"text": "a"},\n  {"text": "b"}\n]\n')
w(R + "/json_pairs/1.jpg", b"j")
w(R + "/json_pairs/1.json", b'[{"box": [1, 2, 3, 4]}]')
w(R + "/json_pairs/2.json", b'[{"box": [1, 2, 3, 4]}]')
w(R + "/json_beside/info.json", b'[{"made": "2024"}]')
pq.write_table(T, R + "/json_beside/a.parquet")
w(R + "/two_kinds/a.csv", b"a,b\n1,2\n")
pq.write_table(T, R + "/two_kinds/b.parquet")
w(R + "/imagefolder/metadata.csv", b"file_name,label\na.jpg,1\n")
w(R + "/imagefolder/a.jpg", b"j")
w(R + "/imagefolder/b.jpg", b"k")
w(
    R + "/coco/annotations/instances.json",
    b'{"info":{},"images":[{"id":1}],"annotations":[],"categories":[]}',
)
w(R + "/coco/train/a.jpg", b"j")
w(R + "/voc/JPEGImages/a.jpg", b"j")
w(R + "/voc/Annotations/a.xml", b"<a/>")
w(R + "/voc/ImageSets/Main/train.txt", b"a\n")
w(R + "/yolo/images/train/a.jpg", b"j")
w(R + "/yolo/labels/train/a.txt", b"0 1 1 1 1")
w(R + "/nanogpt/train.bin", np.arange(100, dtype="u2").tobytes())
w(R + "/nanogpt/val.bin", np.arange(100, dtype="u2").tobytes())
w(
    R + "/safetensors/model.safetensors",
    struct.pack("<Q", 60)
    + (b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' + b" " * 7)
    + b"\0\0",
)
# files of samples
w(R + "/ok_images/a/1.jpg", b"j")
w(R + "/ok_images/a/1.json", b"{}")
w(R + "/ok_images/a/1.npy", b"")
np.save(R + "/ok_images/a/1.npy", np.arange(3))
w(R + "/ok_npz/1.jpg", b"j")
np.savez(R + "/ok_npz/1.npz", x=np.arange(3))
w(R + "/ok_csv/1.jpg", b"j")
w(R + "/ok_csv/1.csv", b"a,b\n")
w(R + "/ok_npy/1.npy", b"")
np.save(R + "/ok_npy/1.npy", np.arange(3.0))
w(R + "/ok_nii/1.nii.gz", gzip.compress(b"x"))
w(R + "/ok_text/1.txt", b"x")
w(R + "/ok_text/README.md", b"y")
w(R + "/ok_json/1.json", b'{"a":1}')
x = d("ok_xjsonl")
w(x + "a.jsonl", b'{"a":1}\n')
w(x + "README.md", b"x")
