"""Writes the files in this folder: python -m pip install pyarrow==26.0.1 numpy && python make.py

The pictures are drawn here, a few pixels each, so that nobody's rights are touched.
"""

import datetime
import decimal
import json
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq


def png(side, colour):
    """A PNG of one colour."""

    def part(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes(colour) * side for _ in range(side))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def images(n):
    """As Hugging Face datasets writes images and class labels."""
    table = pa.table(
        {
            "image": pa.array(
                [None if i % 10 == 9 else {"bytes": png(1 + i % 5, (i, 255 - i, 7)), "path": None if i % 3 == 0 else f"photo.{i}.PNG"} for i in range(n)],
                pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
            ),
            "label": pa.array([i % 3 for i in range(n)], pa.int64()),
            "caption": pa.array([f"picture {i}, “größer” \U0001f600" for i in range(n)]),
        }
    )
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"},
        "caption": {"dtype": "string", "_type": "Value"},
    }
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def nested(n):
    """Lists, lists of lists, ragged ones, structs and maps."""
    return pa.table(
        {
            "id": pa.array([f"row-{i:03d}" for i in range(n)]),
            "vector": pa.array([[0.5 * k for k in range(i % 4)] for i in range(n)], pa.list_(pa.float32())),
            "matrix": pa.array([[[r * 10 + c for c in range(3)] for r in range(1 + i % 3)] for i in range(n)], pa.list_(pa.list_(pa.int32()))),
            "fixed": pa.array([[i, -i] for i in range(n)], pa.list_(pa.int16(), 2)),
            "ragged": pa.array([[[1] * k for k in range(1 + i % 3)] for i in range(n)], pa.list_(pa.list_(pa.uint8()))),
            "holes": pa.array([[1, None] if i % 2 else [1, 2] for i in range(n)], pa.list_(pa.int64())),
            "words": pa.array([["a", "b\"c"][: i % 3] for i in range(n)], pa.list_(pa.string())),
            "box": pa.array([{"x": i, "tags": ["t"] * (i % 2), "at": None} for i in range(n)], pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string())), ("at", pa.float64())])),
            "map": pa.array([[("k", i), ("l", None)] for i in range(n)], pa.map_(pa.string(), pa.int32())),
            "nothing": pa.nulls(n),
        }
    )


def scalars(n):
    """Times, decimals, dictionaries, large and fixed types."""
    day = datetime.date(2024, 2, 29)
    moment = datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)
    return pa.table(
        {
            "day": pa.array([day + datetime.timedelta(days=i) for i in range(n)], pa.date32()),
            "when": pa.array([moment + datetime.timedelta(seconds=i) for i in range(n)], pa.timestamp("us")),
            "utc": pa.array([moment + datetime.timedelta(seconds=i) for i in range(n)], pa.timestamp("ns", tz="UTC")),
            "time": pa.array([datetime.time(1, 2, 3, i) for i in range(n)], pa.time64("us")),
            "price": pa.array([decimal.Decimal(i) / 100 - 1 for i in range(n)], pa.decimal128(12, 2)),
            "huge": pa.array([decimal.Decimal(10**30 + i) for i in range(n)], pa.decimal256(50, 3)),
            "colour": pa.array([["red", "green", None][i % 3] for i in range(n)]).dictionary_encode(),
            "half": pa.array([i / 4 for i in range(n)], pa.float16()),
            "large": pa.array([f"large {i}" for i in range(n)], pa.large_string()),
            "view": pa.array([b"\0" * (i % 3) for i in range(n)], pa.large_binary()),
            "flag": pa.array([i % 2 == 0 for i in range(n)]),
            "tiny": pa.array([i - 100 for i in range(n)], pa.int8()),
            "wide": pa.array([2**64 - 1 - i for i in range(n)], pa.uint64()),
        }
    )


if __name__ == "__main__":
    pq.write_table(images(60), "images.parquet", row_group_size=25, compression="snappy")
    pq.write_table(nested(60), "nested.parquet", row_group_size=20, compression="zstd", data_page_version="2.0")
    pq.write_table(scalars(60), "scalars.parquet", row_group_size=30, compression="gzip", write_page_checksum=True)
    pq.write_table(scalars(60), "legacy.parquet", use_deprecated_int96_timestamps=True, compression="brotli", version="1.0")
    pq.write_table(
        scalars(60).select(["half", "tiny", "large", "wide", "price"]),
        "split.parquet",
        use_dictionary=False,
        compression="lz4",
        column_encoding={"half": "BYTE_STREAM_SPLIT", "tiny": "DELTA_BINARY_PACKED", "large": "DELTA_BYTE_ARRAY", "wide": "BYTE_STREAM_SPLIT", "price": "BYTE_STREAM_SPLIT"},
    )
