"""Writes the files here: one table of all encodings of MDS, in shards of all kinds, and what the library reads.

python -m pip install mosaicml-streaming==0.13.0 && python make.py
"""

import decimal
import io
import json
import os
import shutil
from typing import Any, Dict

import numpy as np
from PIL import Image
from streaming import MDSWriter
from streaming.base.format.mds.reader import MDSReader

R = os.path.dirname(os.path.abspath(__file__))
N = 24
rng = np.random.default_rng(1)
COLUMNS = {
    **{k: k for k in ("bytes", "str", "int", "str_int", "str_float", "str_decimal", "json", "pil", "jpeg", "jpegarray", "png", "ndarray")},
    **{k: k for k in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")},
    "label": "int64",
    "list_pil": "list[pil]",
    "list_jpeg": "list[jpeg]",
    "list_png": "list[png]",
    "of_type": "ndarray:float32",
    "of_shape": "ndarray:int16:2,3",
}
MODES = ("L", "RGB", "RGBA", "LA", "1", "I;16")
DTYPES = "uint8 int8 uint16 int16 float16 uint32 int32 float32 uint64 int64 float64".split()
FLOATS = (0.1, -1.5, 1e30, 1e-7, float("nan"), float("inf"), 16777216.0)


def image(mode: str, i: int) -> Image.Image:
    size = (5 + i % 3, 4)
    if mode == "I;16":
        return Image.frombytes(mode, size, rng.integers(0, 65536, size[0] * size[1], "u2").tobytes())
    if mode == "1":
        return Image.fromarray(rng.integers(0, 2, size[::-1]).astype("u1") * 255).convert("1")
    return Image.frombytes(mode, size, rng.bytes(size[0] * size[1] * len(mode)))


def packed(mode: str, form: str, i: int) -> bytes:
    out = io.BytesIO()
    image(mode, i).save(out, form)
    return out.getvalue()


def opened(b: bytes) -> Image.Image:
    return Image.open(io.BytesIO(b))


def sample(i: int) -> Dict[str, Any]:
    ends = {k: (np.iinfo(k).min, np.iinfo(k).max, i)[i % 3] for k in DTYPES if "int" in k}
    dtype = DTYPES[i % len(DTYPES)]
    return {
        **ends,
        "int": -i if i % 2 else 1 << 62,
        "label": i % 5,
        **{k: FLOATS[i % len(FLOATS)] if k != "float16" or i % len(FLOATS) != 2 else 6.1e-5 for k in ("float16", "float32", "float64")},
        "str_int": 10**i * (-1) ** i,
        "str_float": FLOATS[i % len(FLOATS)],
        "str_decimal": decimal.Decimal(f"{i}.1000000000000000000001"),
        "bytes": rng.bytes(i),
        "str": "é\n" * (i % 4),
        "json": ({"a": [i, None]}, [i, 2], "text", i, None)[i % 5],
        "pil": image(MODES[i % len(MODES)], i),
        "jpeg": opened(packed("RGB", "jpeg", i)),
        "png": opened(packed("RGB", "png", i)),
        "jpegarray": [packed("RGB", "jpeg", k) for k in range(1 + i % 3)],
        "list_pil": [image("RGB", k) for k in range(i % 3)],
        "list_jpeg": [opened(packed("L", "jpeg", k)) for k in range(i % 3)],
        "list_png": [opened(packed("L", "png", k)) for k in range(i % 3)],
        "ndarray": (rng.standard_normal((1 + i % 3, 2)[: 1 + i % 2]) * 50).astype(dtype),
        "of_type": rng.standard_normal((1, 2 + i, 3)).astype("f4"),
        "of_shape": rng.integers(-9, 9, (2, 3)).astype("i2"),
    }


def write(name: str, rows: Any, columns: Dict[str, str] = COLUMNS, size_limit: int = 20_000, **options: Any) -> None:
    shutil.rmtree(os.path.join(R, name), ignore_errors=True)
    with MDSWriter(out=os.path.join(R, name), columns=columns, size_limit=size_limit, **options) as w:
        for row in rows:
            w.write(row)


def text(value: Any) -> Any:
    """What a value is, for values.json."""
    if isinstance(value, Image.Image):
        return [value.mode, *value.size, value.tobytes().hex()]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), value.tobytes().hex()]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list) and value and isinstance(value[0], Image.Image):
        return [text(v) for v in value]
    if isinstance(value, np.float16):  # whose text is rounded
        return repr(float(value))
    if isinstance(value, (np.generic, int, float, decimal.Decimal)) and not isinstance(value, bool):
        return str(value)
    return value


if __name__ == "__main__":
    rows = [sample(i) for i in range(N)]
    write("raw", rows, hashes=["sha1", "xxh64"])
    for compression in ("zstd", "gz", "bz2"):
        write(compression, rows, compression=compression, hashes=["md5"])
    few = {"x": "int", "y": "str"}
    write("br", [{"x": 1, "y": "a"}], few, compression="br")
    write("snappy", [{"x": 1, "y": "a"}], few, compression="snappy")
    write("pkl", [{"x": i, "y": {i}} for i in range(3)], {"x": "int", "y": "pkl"})
    shutil.rmtree(os.path.join(R, "streams"), ignore_errors=True)
    for k, name in enumerate(("web/en", "web/fr", "books")):
        write("streams/" + name, [{"x": 10 * k + i, "y": name} for i in range(4)], few, size_limit=150)
    out = []
    for shard in json.load(open(R + "/raw/index.json"))["shards"]:
        reader = MDSReader.from_json(R + "/raw", "", shard)
        out += [{k: text(v) for k, v in reader[i].items()} for i in range(reader.samples)]
    with open(R + "/values.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(v) for v in out) + "\n]\n")
