"""The programs of docs/other-formats.md, with the libraries that they name."""

from __future__ import annotations

import decimal
import functools
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from conftest import ROOT, run
from test_writer import read

np = pytest.importorskip("numpy")

PAGE = (ROOT / "docs" / "other-formats.md").read_text()
N = 2500
X = np.arange(N * 6, dtype="f4").reshape(N, 2, 3) if np is not None else None


def recipe(heading: str) -> str:
    """The program of a section."""
    if heading == "MosaicML Streaming":
        text = (ROOT / "docs" / "mosaicml.md").read_text()
    else:
        text = PAGE if heading == "HDF5" else PAGE.split(f"\n## {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", text, re.S)
    assert found is not None
    return found[1]


def rows(out: Path) -> List[Dict[str, Any]]:
    got = read(out)
    for row in got:
        row.pop("__key__")
    return got


def arrays(out: Path) -> None:
    got = rows(out)
    assert len(got) == N and all(np.array_equal(g["x"], X[i]) and g["label"] == i % 7 for i, g in enumerate(got))


def hdf5(_: Path) -> None:
    import h5py  # type: ignore[import-not-found,unused-ignore]

    with h5py.File("data.h5", "w") as f:
        f["x"], f["label"] = X, np.arange(N) % 7


def zarr(_: Path) -> None:
    import zarr  # type: ignore[import-not-found,unused-ignore]

    group = zarr.open_group("data.zarr", mode="w")
    for name, value in (("x", X), ("label", np.arange(N) % 7)):
        array = group.create_array(name, shape=value.shape, dtype=value.dtype, chunks=(100, *value.shape[1:]))
        array[:] = value


def netcdf(_: Path) -> None:
    import netCDF4  # type: ignore[import-not-found,unused-ignore]

    with netCDF4.Dataset("data.nc", "w") as f:
        f.createDimension("time", N)
        f.createDimension("x", 4)
        f.createVariable("time", "f8", ("time",))[:] = np.arange(N)
        f.createVariable("temperature", "f4", ("time", "x"))[:] = np.arange(N * 4).reshape(N, 4)


def check_netcdf(out: Path) -> None:
    got = rows(out)
    assert len(got) == N and got[7]["time"] == 7.0 and got[7]["temperature"].tolist() == [28.0, 29.0, 30.0, 31.0]


def lmdb(_: Path) -> None:
    import lmdb  # type: ignore[import-not-found,unused-ignore]

    with lmdb.open("data.lmdb", map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(50):
            txn.put(b"k%03d" % i, b"value %d" % i)


def check_lmdb(out: Path) -> None:
    assert [(r["__key__"], r["data"]) for r in read(out)] == [(f"k{i:03d}", b"value %d" % i) for i in range(50)]


def test_tfrecord(tmp_path: Path) -> None:
    """What another library writes is packed by the command."""
    pytest.importorskip("tfrecord", reason="tfrecord is not installed", exc_type=ImportError)
    from tfrecord.writer import TFRecordWriter  # type: ignore[import-not-found,unused-ignore]

    w = TFRecordWriter(str(tmp_path / "data-00000-of-00001"))
    for i in range(50):
        w.write({"image": (b"image %d" % i, "byte"), "label": (i, "int")})
    w.close()
    run("pack", tmp_path / "data-00000-of-00001", tmp_path / "out")
    assert [(r["image.bin"], r["label.npy"].tolist()) for r in rows(tmp_path / "out")] == [(b"image %d" % i, [i]) for i in range(50)]


MANY = 10_000


def table() -> Any:
    """A table of the types that every kind of rows has."""
    import pyarrow as pa

    rng = np.random.default_rng(3)
    floats = rng.standard_normal(MANY)
    floats[::97] = 1e300
    return pa.table(
        {
            "i": rng.integers(-(1 << 63), (1 << 63) - 1, MANY),
            "f": floats,
            "s": [f"é{i}\n" * (i % 4) for i in range(MANY)],
            "t": [i % 3 == 0 for i in range(MANY)],
            "l": pa.array([list(range(i, i + 1 + i % 5)) for i in range(MANY)], pa.list_(pa.int64())),
            "label": [i % 10 for i in range(MANY)],
        }
    )


def from_parquet(folder: Path) -> Any:
    import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

    pq.write_table(table(), folder / "x.parquet", row_group_size=999)
    return pq.read_table(folder / "x.parquet").to_pylist()


def from_arrow(folder: Path) -> Any:
    import pyarrow as pa

    with pa.ipc.new_file(folder / "x.arrow", table().schema) as w:
        w.write_table(table(), 999)
    return pa.ipc.open_file(folder / "x.arrow").read_all().to_pylist()


def from_saved(folder: Path) -> Any:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed", exc_type=ImportError)
    datasets.Dataset(table()).save_to_disk(folder / "saved", num_shards=3)
    return list(datasets.load_from_disk(folder / "saved"))


def from_json(folder: Path) -> Any:
    (folder / "x.json").write_text(json.dumps(table().to_pylist()))
    return json.loads((folder / "x.json").read_text())


def from_npy(folder: Path) -> Any:
    np.save(folder / "x.npy", np.random.default_rng(4).standard_normal((MANY, 3, 2)).astype("f4"))
    return [{"": row} for row in np.load(folder / "x.npy")]


def from_tfrecord(folder: Path) -> Any:
    pytest.importorskip("tfrecord", reason="tfrecord is not installed", exc_type=ImportError)
    from tfrecord.reader import tfrecord_loader  # type: ignore[import-not-found,unused-ignore]
    from tfrecord.writer import TFRecordWriter

    w = TFRecordWriter(str(folder / "x.tfrecord"))
    for i in range(MANY):
        w.write({"b": (b"%d" % i * (1 + i % 4), "byte"), "n": ([i, -i], "int"), "f": ([i / 7], "float")})
    w.close()
    return list(tfrecord_loader(str(folder / "x.tfrecord"), None))


@pytest.mark.parametrize("made", [from_parquet, from_arrow, from_saved, from_json, from_npy, from_tfrecord])
def test_values(tmp_path: Path, made: Callable[[Path], Any]) -> None:
    """The values of 10,000 samples are those that the kind's own library reads."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed", exc_type=ImportError)
    want = made(tmp_path)
    source = next(tmp_path.iterdir())
    run("pack", source, tmp_path / "out")
    got = rows(tmp_path / "out")
    differences = 0
    for have, row in zip(got, want):
        have = {name.partition(".")[0] if "" not in row else "": value for name, value in have.items()}
        assert have.keys() == row.keys()
        for name, value in row.items():
            array = isinstance(have[name], np.ndarray)
            differences += not (
                np.array_equal(have[name], value) if array else have[name] == (bytes(value) if isinstance(value, np.ndarray) else value)
            )
    assert (len(got), len(want), differences) == (MANY, MANY, 0)


def webdataset(_: Path) -> None:
    from webdataset import TarWriter  # type: ignore[import-not-found,unused-ignore]

    with TarWriter("data-000000.tar") as w:
        for i in range(50):
            w.write({"__key__": f"s{i}", "txt": f"text {i}", "cls": i, "json": {"i": i}, "npy": X[i]})


def check_webdataset(out: Path) -> None:
    got = read(out)
    assert [(g["__key__"], g["txt"], g["cls"], g["json"]) for g in got] == [(f"s{i}", f"text {i}", i, {"i": i}) for i in range(50)]
    assert all(np.array_equal(g["npy"], X[i]) for i, g in enumerate(got))


def mds(_: Path) -> None:
    from streaming import MDSWriter  # type: ignore[import-not-found,unused-ignore]

    with MDSWriter(out="mds", columns={"x": "ndarray:float32:2,3", "text": "str", "label": "int", "raw": "bytes", "meta": "json"}) as w:
        for i in range(50):
            w.write({"x": X[i], "text": f"é{i}", "label": i, "raw": b"%d" % i, "meta": {"i": i}})


def check_mds(out: Path) -> None:
    got = rows(out)
    assert [g["x"].tolist() for g in got] == [X[i].tolist() for i in range(50)]
    assert [(g["text"], g["label"], g["raw"], g["meta"]) for g in got] == [(f"é{i}", i, b"%d" % i, {"i": i}) for i in range(50)]


@functools.lru_cache(None)
def pixels(b: bytes) -> Any:
    """The mode, size and pixels of a file of an image."""
    from PIL import Image

    with Image.open(io.BytesIO(b)) as opened:
        return opened.mode, opened.size, opened.tobytes()


def same(want: Any, got: Any) -> bool:
    """Whether a field is what MosaicML Streaming reads."""
    from PIL import Image

    if isinstance(want, Image.Image):
        return bool(pixels(got) == (want.mode, want.size, want.tobytes()))
    if isinstance(want, np.ndarray):
        return bool(got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes())
    if isinstance(want, decimal.Decimal):
        return decimal.Decimal(got) == want
    if isinstance(want, np.generic):  # nan is nan
        with np.errstate(over="ignore"):
            return bool(np.array_equal(want.dtype.type(got), want, equal_nan=want.dtype.kind == "f"))
    return bool(want == got)


def test_mds(tmp_path: Path) -> None:
    """The command packs what the library reads, 10,000 samples of all encodings."""
    pytest.importorskip("streaming", reason="streaming is not installed", exc_type=ImportError)
    from PIL import Image
    from streaming import MDSWriter
    from streaming.base.format.mds.reader import MDSReader  # type: ignore[import-not-found,unused-ignore]

    rng = np.random.default_rng(7)
    numbers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
    columns = {
        k: k for k in ["bytes", "str", "int", "str_int", "str_float", "str_decimal", "json", "pil", "jpeg", "png", "ndarray", *numbers]
    }
    columns.update(
        {"label": "int", "images": "list[pil]", "pictures": "jpegarray", "of_type": "ndarray:float32", "of_shape": "ndarray:uint8:2,3"}
    )

    @functools.lru_cache(None)
    def made(i: int, modes: Any) -> Any:
        mode = modes[i % len(modes)]
        pixel = {"1": 1, "I;16": 2}.get(mode, len(mode))
        return Image.frombytes(mode, (8, 4), rng.bytes(4 if mode == "1" else 32 * pixel))

    def image(i: int, modes: Any = ("L", "LA", "RGB", "RGBA", "1", "I;16")) -> Any:
        return made(i % 60, modes)

    @functools.lru_cache(None)
    def file(form: str, i: int) -> bytes:
        out = io.BytesIO()
        image(i, ("L", "RGB")).save(out, form)
        return out.getvalue()

    def saved(form: str, i: int) -> bytes:
        return file(form, i % 60)

    with MDSWriter(out=str(tmp_path / "mds"), columns=columns, size_limit=1 << 20, hashes=["sha1"]) as w:
        for i in range(10_000):
            dtype = numbers[i % len(numbers)]
            bits = rng.integers(0, 1 << 63, 12, "u8")
            row: Dict[str, Any] = {k: np.frombuffer(bits[j].tobytes(), k)[0] for j, k in enumerate(numbers)}
            row.update({"bytes": bits.tobytes()[: i % 96], "str": f"é{i}\n" * (i % 3), "int": int(bits[11]) - (1 << 62), "label": i % 10})
            row.update(
                {
                    "str_int": -(i**9),
                    "str_float": float(rng.standard_normal() * 10.0 ** (i % 40 - 20)),
                    "str_decimal": decimal.Decimal(i) / 7,
                }
            )
            row.update({"json": [{"a": [i, None]}, [i, 0.5], "text", i][i % 4], "pil": image(i), "images": [image(i), image(i + 1)]})
            row.update({"jpeg": saved("jpeg", i), "png": saved("png", i), "pictures": [saved("jpeg", i), saved("jpeg", i + 1)]})
            row["ndarray"] = np.frombuffer(bits.tobytes(), dtype)[: 2 + i % 5].reshape((2 + i % 5,) if i % 2 else (1, -1))
            row["of_type"] = rng.standard_normal((1 + i % 3, 2)).astype("f4")
            row["of_shape"] = rng.integers(0, 256, (2, 3)).astype("u1")
            w.write(row)
    run("pack", tmp_path / "mds", tmp_path / "out")

    names = {
        "bytes": "bytes.bin",
        "json": "json",
        "jpeg": "jpeg",
        "png": "png",
        "pil": "pil.png",
        "label": "label.cls",
        "ndarray": "ndarray.npy",
    }
    names.update(of_type="of_type.npy", of_shape="of_shape.npy")
    index = json.loads((tmp_path / "mds" / "index.json").read_text())
    got = iter(read(tmp_path / "out"))
    differences = n = 0
    for shard in index["shards"]:
        reader = MDSReader.from_json(str(tmp_path / "mds"), "", shard)
        for i in range(reader.samples):
            row, have, n = reader[i], next(got), n + 1
            pairs = [(v, have[names.get(k, k + ".txt")]) for k, v in row.items() if k not in ("images", "pictures")]
            pairs += [(v, have[f"images.{j}.png"]) for j, v in enumerate(row["images"])]
            pairs += [(v, have[f"pictures.{j}.jpg"]) for j, v in enumerate(row["pictures"])]
            differences += sum(not same(want, value) for want, value in pairs)
    assert (n, differences) == (10_000, 0) and len(index["shards"]) > 5 and next(got, None) is None


LIT = """
import litdata, numpy
def made(i):
    return {"x": numpy.full((2, 3), i, "f4"), "text": f"t{i}", "label": i, "raw": b"%d" % i}
if __name__ == "__main__":
    litdata.optimize(made, list(range(50)), output_dir="lit", chunk_bytes="1MB", num_workers=1)
"""


def lit(folder: Path) -> None:
    import litdata  # type: ignore[import-not-found,unused-ignore]  # noqa: F401

    (folder / "made.py").write_text(LIT)
    subprocess.run([sys.executable, "made.py"], check=True, capture_output=True)


def check_lit(out: Path) -> None:
    got = rows(out)
    assert sorted((g["text"], g["label"], g["raw"], g["x"].tolist()) for g in got) == sorted(
        (f"t{i}", i, b"%d" % i, [[float(i)] * 3] * 2) for i in range(50)
    )


def coco(_: Path) -> None:
    import json

    Path("coco/annotations").mkdir(parents=True)
    Path("coco/train").mkdir()
    for i in range(3):
        Path(f"coco/train/{i}.jpg").write_bytes(b"image %d" % i)
    text = {
        "images": [{"id": 10 + i, "file_name": f"{i}.jpg"} for i in range(3)],
        "annotations": [{"id": n, "image_id": 10 + n % 2, "bbox": [n, 0, 1, 1]} for n in range(5)],
        "categories": [{"id": 1, "name": "dot"}],
    }
    Path("coco/annotations/instances.json").write_text(json.dumps(text))


def check_coco(out: Path) -> None:
    got = rows(out)
    assert [g["jpg"] for g in got] == [b"image %d" % i for i in range(3)]
    assert [[a["id"] for a in g["json"]["annotations"]] for g in got] == [[0, 2, 4], [1, 3], []]


def voc(_: Path) -> None:
    for name in ("JPEGImages", "Annotations"):
        Path("voc", name).mkdir(parents=True)
    for i in range(3):
        Path(f"voc/JPEGImages/{i}.jpg").write_bytes(b"image %d" % i)
        Path(f"voc/Annotations/{i}.xml").write_bytes(b"<annotation>%d</annotation>" % i)


def check_voc(out: Path) -> None:
    assert [(g["jpg"], g["xml"]) for g in rows(out)] == [(b"image %d" % i, b"<annotation>%d</annotation>" % i) for i in range(3)]


RECIPES: "List[tuple[str, str, Callable[[Path], None], Callable[[Path], None], str]]" = [
    ("HDF5", "h5py", hdf5, arrays, ""),
    ("Zarr", "zarr", zarr, arrays, "data.zarr"),
    ("NetCDF", "netCDF4", netcdf, check_netcdf, ""),
    ("LMDB", "lmdb", lmdb, check_lmdb, "data.lmdb"),
    ("WebDataset", "webdataset", webdataset, check_webdataset, ""),
    ("MosaicML Streaming", "streaming", mds, check_mds, ""),
    ("LitData", "litdata", lit, check_lit, "lit"),
    ("COCO", "json", coco, check_coco, "coco"),
    ("Pascal VOC and YOLO", "json", voc, check_voc, "voc"),
]


def test_all_are_tested() -> None:
    assert [h for h in re.findall(r"^## (.*)$", PAGE, re.M) if h != "TFRecord"] == [
        r[0] for r in RECIPES[1:] if r[0] != "MosaicML Streaming"
    ]


@pytest.mark.filterwarnings("ignore")  # of those libraries
@pytest.mark.parametrize("heading, package, prepare, check, layout", RECIPES, ids=[r[0] for r in RECIPES])
def test_recipe(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    heading: str,
    package: str,
    prepare: Callable[[Path], None],
    check: Callable[[Path], None],
    layout: str,
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    if layout:  # pack recognizes what the library wrote
        for command in (["pack", layout, "packed"], ["doctor", layout]):
            refused = run(*command, check=False)
            assert refused.returncode == 2 and "docs/other-formats.md has the program that" in refused.stderr
    exec(compile(recipe(heading), heading, "exec"), {"__name__": "__main__"})
    check(tmp_path / "out")
    run("verify", tmp_path / "out", "--deep")
