"""Writes the files here: one table in the formats of Arrow, and in Parquet to compare with.

python -m pip install pyarrow numpy polars && python make.py
"""

import datetime
import decimal
import os
import random

import numpy as np
import polars
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

R = os.path.dirname(os.path.abspath(__file__))
N = 24
rng = random.Random(1)


def some(value):
    return [None if rng.random() < 0.15 else value(i) for i in range(N)]


def ragged(i):
    return [[1] * rng.randint(0, 3) for _ in range(3)]


struct = pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.list_(pa.struct([("k", pa.int8())])))])
image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
T = pa.table(
    {
        "id": [f"k{i:05d}" for i in range(N)],
        "text": some(lambda i: f"tëxt {i} " * rng.randint(0, 4)),
        "large": pa.array(some(lambda i: f"L{i}"), pa.large_string()),
        "view": pa.array(some(lambda i: "view " * rng.randint(0, 5)), pa.string_view()),
        "raw": pa.array(some(lambda i: rng.randbytes(rng.randint(0, 9))), pa.binary()),
        "fixed": pa.array(some(lambda i: rng.randbytes(7)), pa.binary(7)),
        "i8": pa.array(some(lambda i: rng.randint(-128, 127)), pa.int8()),
        "u64": pa.array(some(lambda i: rng.randint(0, 2**64 - 1)), pa.uint64()),
        "i64": pa.array(some(lambda i: rng.randint(-(2**63), 2**63 - 1)), pa.int64()),
        "f16": pa.array([np.float16(rng.random()) for _ in range(N)], pa.float16()),
        "f32": pa.array(some(lambda i: rng.random()), pa.float32()),
        "f64": pa.array(some(lambda i: rng.gauss(0, 1e30)), pa.float64()),
        "b": pa.array(some(lambda i: rng.random() < 0.5), pa.bool_()),
        "dec": pa.array(some(lambda i: decimal.Decimal(rng.randint(-(10**9), 10**9)).scaleb(-3)), pa.decimal128(20, 3)),
        "dec256": pa.array(some(lambda i: decimal.Decimal(-(10**45) + i)), pa.decimal256(50, 0)),
        "d32": pa.array(some(lambda i: datetime.date(1900, 1, 1) + datetime.timedelta(rng.randint(0, 90000))), pa.date32()),
        "us": pa.array(some(lambda i: rng.randint(-(10**15), 10**16)), pa.timestamp("us")),
        "time": pa.array(some(lambda i: rng.randint(0, 86399999)), pa.time32("ms")),
        "dict": pa.array(some(lambda i: f"c{i % 7}")).dictionary_encode(),
        "ids": pa.array(some(lambda i: list(range(rng.randint(0, 30)))), pa.list_(pa.int32())),
        "bools": pa.array(some(lambda i: [j % 2 == 1 for j in range(rng.randint(0, 9))]), pa.list_(pa.bool_())),
        "emb": pa.array(some(lambda i: [rng.random() for _ in range(4)]), pa.list_(pa.float32(), 4)),
        "mat": pa.array(some(lambda i: [[i, j] for j in range(rng.randint(0, 3))]), pa.list_(pa.list_(pa.int64()))),
        "ragged": pa.array(some(ragged), pa.list_(pa.list_(pa.int64()))),
        "holes": pa.array(some(lambda i: [1, None, 3][: rng.randint(0, 3)]), pa.list_(pa.int64())),
        "words": pa.array(some(lambda i: ["a" * rng.randint(0, 3), None, "é"][: rng.randint(0, 3)]), pa.list_(pa.string())),
        "struct": pa.array(some(lambda i: {"x": i, "y": None if i % 3 else "q", "z": [{"k": i}] * (i % 3)}), struct),
        "map": pa.array(some(lambda i: [("a", i), ("b", None)][: i % 3]), pa.map_(pa.string(), pa.int64())),
        "img": pa.array(some(lambda i: {"bytes": b"\x89PNG\r\n\x1a\n" + bytes([i]), "path": None}), image),
        "none": pa.nulls(N),
    }
)

pq.write_table(T, f"{R}/values.parquet", row_group_size=5)
for name, new, compression, rows in (
    ("file.arrow", ipc.new_file, None, 5),
    ("stream.arrows", ipc.new_stream, None, 7),
    ("lz4.arrow", ipc.new_file, "lz4", 4),
    ("zstd.arrows", ipc.new_stream, "zstd", 24),
):
    with new(f"{R}/{name}", T.schema, options=ipc.IpcWriteOptions(compression=compression)) as w:
        w.write_table(T, rows)
at = T.schema.get_field_index("dict")
plain = T.set_column(at, "dict", T["dict"].cast(pa.string()))
with ipc.new_file(f"{R}/plain.arrow", plain.schema) as w:
    w.write_table(plain, 5)
small = pa.table({"id": ["a", "b", "c"], "word": pa.array(["x", "y", "x"]).dictionary_encode(), "n": [[1, 2], [], [3]]})
with ipc.new_stream(f"{R}/small.arrows", small.schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as w:
    w.write_table(small)
    more = pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int32()), ["x", "y", "z"])
    w.write_batch(pa.record_batch([pa.array(["d", "e"]), more, pa.array([[4], [5]])], schema=small.schema))
both = pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])])
with ipc.new_file(f"{R}/union.arrow", pa.schema([("id", pa.string()), ("u", both.type)])) as w:
    w.write_batch(pa.record_batch([pa.array(["a", "b"]), both], names=["id", "u"]))
views = pa.table({"x": pa.array(["a" * 40, "b"], pa.string_view())})
with ipc.new_stream(f"{R}/views.arrows", views.schema, options=ipc.IpcWriteOptions(compression="zstd")) as w:
    w.write_table(views)
for name, column in (
    ("decimal32", pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.5")], pa.decimal32(5, 1))),
    ("nothing", pa.array([[], []], pa.list_(pa.int64(), 0))),
):
    t = pa.table({"id": ["0", "1"], "x": column})
    with ipc.new_file(f"{R}/{name}.arrow", t.schema) as w:
        w.write_table(t)
frame = polars.DataFrame({"id": ["a", "b", "c"], "n": [1, 2, 3], "x": [1.5, None, 2.0], "l": [[1, 2], [3], []]})
frame.write_ipc(f"{R}/polars.arrow", compression="zstd")
polars.DataFrame({"id": ["0", "1"], "x": polars.Series([1, 2], dtype=polars.Int128)}).write_ipc(f"{R}/int128.arrow")
