"""The programs of docs/other-formats.md, with the libraries that they name."""

from __future__ import annotations

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
    ("MosaicML Streaming", "streaming", mds, check_mds, "mds"),
    ("LitData", "litdata", lit, check_lit, "lit"),
    ("COCO", "json", coco, check_coco, "coco"),
    ("Pascal VOC and YOLO", "json", voc, check_voc, "voc"),
]


def test_all_are_tested() -> None:
    assert [h for h in re.findall(r"^## (.*)$", PAGE, re.M) if h != "TFRecord"] == [r[0] for r in RECIPES[1:]]


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
