"""Batches in polars, duckdb and pyarrow, and back. `make test-recipes` has them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, List

import pytest

import shardtool

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

N = 300


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("consumers") / "out"
    with shardtool.Writer(url, block_size="16KiB") as w:
        for i in range(N):
            w.write({
                "text": f"é{i}", "raw": bytes([i % 256]), "n": i, "f": i / 4, "tree": {"a": i}, "x": np.full((2, 3), i, "f4"),
                "ragged": np.arange(i % 4, dtype="i2"), "part": i if i % 3 else None,
            })  # fmt: skip
    return url


def tables(url: Path) -> List[Any]:
    with shardtool.Loader(url, 100, epochs=1, tuning=shardtool.Tuning(out="numpy")) as loader:
        return [batch.to_arrow() for batch in loader]


def written(url: Path, table: Any) -> None:
    """Writes a table, and checks a sample of it."""
    with shardtool.Writer(url) as w:
        w.write_table(table)
    with shardtool.open(url, tuning=shardtool.Tuning(out="numpy")) as samples:
        got = samples["000000007"]
        assert len(samples) == N and got["text"] == "é7" and got["n"] == 7 and got["part"] == 7
        assert samples["000000006"].get("part") is None and got["ragged"].tolist() == [0, 1, 2]
        assert np.ravel(got["x"]).tolist() == [7.0] * 6


COLUMNS = ["__key__", "text", "n", "part", "x", "ragged"]


def test_pyarrow(typed: Path, tmp_path: Path) -> None:
    compute = importlib.import_module("pyarrow.compute")
    table = pa.Table.from_batches(tables(typed))
    assert compute.sum(table["n"]).as_py() == N * (N - 1) // 2
    written(tmp_path / "out", table.select(COLUMNS))


def test_polars(typed: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.concat([polars.from_arrow(t) for t in tables(typed)])
    assert frame["n"].sum() == N * (N - 1) // 2 and frame["part"].null_count() == N // 3
    row = frame.filter(polars.col("__key__") == "000000007").row(0, named=True)
    assert row["text"] == "é7" and row["raw"] == b"\x07" and row["f"] == 1.75 and row["tree"] == '{"a":7}' and row["ragged"] == [0, 1, 2]
    written(tmp_path / "out", frame.select(COLUMNS))


def test_duckdb(typed: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    answers = []
    for batch in tables(typed):
        assert batch.num_rows == 100
        answers += duckdb.sql("select count(*), sum(n), count(part), max(text) from batch").fetchall()
    rows, numbers, parts, _ = zip(*answers)
    assert rows == (100, 100, 100) and sum(numbers) == N * (N - 1) // 2 and sum(parts) == N - N // 3
    whole = pa.Table.from_batches(tables(typed))  # duckdb finds it by its name
    assert whole.num_rows == N and duckdb.sql("select text from whole where __key__ = '000000007'").fetchall() == [("é7",)]
    written(tmp_path / "out", duckdb.sql(f"select {', '.join(COLUMNS)} from whole order by __key__"))
