"""Arrays and Hive partitions, compared with NumPy and pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import run

import shardtool

numpy = pytest.importorskip("numpy")
N = 10_000


def opened(url: Path) -> Any:
    return shardtool.open(url, tuning=shardtool.Tuning(out="numpy"))


@pytest.mark.parametrize("save", ["savez", "savez_compressed"])
def test_npz(tmp_path: Path, save: str) -> None:
    """Each array of a .npz file is a field, with the type and shape of its rows."""
    r = numpy.random.default_rng(1)
    arrays = {"x": r.normal(size=(N, 3, 4)).astype("f4"), "y": r.integers(0, 2**40, N), "b": r.random((N, 5)) < 0.5}
    getattr(numpy, save)(tmp_path / "a.npz", **arrays)
    run("pack", tmp_path / "a.npz", tmp_path / "out")
    with opened(tmp_path / "out") as data:
        rows = list(data)
    assert len(rows) == N
    for name, want in arrays.items():
        got = numpy.stack([numpy.asarray(row[name + ".npy"]) for row in rows])
        assert got.dtype == want.dtype and numpy.array_equal(got, want)


@pytest.mark.parametrize("dtype", [">f8", "<f2", "?", ">c16", "<i2"])
def test_npy(tmp_path: Path, dtype: str) -> None:
    """Rows of any type are equal to NumPy's, in either order of bytes."""
    a = (numpy.random.default_rng(2).normal(size=(1000, 2, 3)) * 100).astype(dtype)
    numpy.save(tmp_path / "a.npy", a)
    run("pack", tmp_path / "a.npy", tmp_path / "out")
    with opened(tmp_path / "out") as data:
        assert numpy.array_equal(numpy.stack([numpy.asarray(row["a.npy"]) for row in data]), a)


def test_hive(tmp_path: Path) -> None:
    """Columns of folders are those that pyarrow reads, whatever their values."""
    pa = pytest.importorskip("pyarrow")
    pq, dataset = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.dataset")
    r = numpy.random.default_rng(3)
    texts = ["a b", "x/y", "é", "=", None]
    table = pa.table({"v": numpy.arange(N), "year": r.integers(2000, 2010, N), "c": [texts[i] for i in r.integers(0, 5, N)]})
    pq.write_to_dataset(table, tmp_path / "table", partition_cols=["year", "c"])
    run("pack", tmp_path / "table", tmp_path / "out")
    want = {q["v"]: (q["year"], q["c"]) for q in dataset.dataset(tmp_path / "table", partitioning="hive").to_table().to_pylist()}
    with opened(tmp_path / "out") as data:
        got = {int(row["v.txt"]): (int(row["year.txt"]), row.get("c.txt")) for row in data}
    assert len(want) == N and got == want


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path as a URL, or in the home folder, names the data set; mixes have such paths too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with shardtool.Writer("~/a b") as writer:
        writer.write({"x": "1"})
    for url in (tmp_path / "a b", "~/a b", (tmp_path / "a b").as_uri(), {"sources": {"a": {"data": "~/a b"}}}):
        with shardtool.Loader(url, 1, epochs=1) as batches:
            assert [batch["x"] for batch in batches] == [["1"]], url
    with pytest.raises(shardtool.NotFoundError, match="no data set in"):
        shardtool.Loader("~/none", 1)
    with pytest.raises(shardtool.ConfigError, match="names the host"):
        next(iter(shardtool.Loader("file://host/a", 1)))
