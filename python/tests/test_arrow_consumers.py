"""Batches in polars, duckdb and pyarrow, and back. `make test-recipes` has them."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from conftest import run

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


def expression(rnd: random.Random, depth: int) -> Tuple[str, str]:
    """An expression of `where`, and as SQL. duckdb orders NaN above all numbers: it is told where
    IEEE 754 differs."""
    if depth and rnd.random() < 0.7:
        (a, sa), (b, sb) = expression(rnd, depth - 1), expression(rnd, depth - 1)
        if rnd.random() < 0.4:
            return f"not ({a})", f"not ({sa})"
        word = rnd.choice(["and", "or"])
        return f"({a}) {word} ({b})", f"({sa}) {word} ({sb})"
    name, value, other = rnd.choice(["n", "x"]), rnd.choice([-1, 0, 2.5, 5]), rnd.choice([1, 5])
    op = rnd.choice(["=", "!=", "<", "<=", ">", ">=", "in", "between", "is null", "is not null"])
    word = rnd.choice(["", "not "])
    if op in ("in", "between"):
        text = f"{name} {word}{op} " + (f"({value}, {other})" if op == "in" else f"{value} and {other}")
    else:
        text = f"{name} {op}" + ("" if "null" in op else f" {value}")
        if op in (">", ">=") and name == "x":
            return text, f"({text} and not isnan({name}))"
    return text, text


def test_where_as_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    parquet = importlib.import_module("pyarrow.parquet")
    rnd = random.Random(7)
    numbers = [None, -1, 0, 1, 2, 5, 7]
    floats = [None, float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 2.5, 5.0, -1.0]
    people = pa.table({"id": [f"k{i}" for i in range(N)], "n": pa.array([rnd.choice(numbers) for _ in range(N)], pa.int64()),
                       "x": pa.array([rnd.choice(floats) for _ in range(N)], pa.float64())})  # fmt: skip
    file = tmp_path / "people.parquet"
    parquet.write_table(people, file, row_group_size=40)
    run("pack", file, tmp_path / "out", "--key", "id", "--attr", "n=n", "--attr", "x=x", "--columns", "id")
    for i in range(120):
        where, sql = expression(rnd, 3)
        want = sorted(key for (key,) in duckdb.sql(f"select id from people where {sql}").fetchall())
        if not want:
            continue
        run("select", tmp_path / "out", "--where", where, "--name", f"v{i}")
        assert sorted(run("ls", f"{tmp_path / 'out'}#v{i}").stdout.split()) == want, where
        if i % 10 == 0:  # rows, whose groups have statistics
            run("pack", file, tmp_path / f"rows{i}", "--key", "id", "--columns", "id", "--where", where)
            assert sorted(run("ls", tmp_path / f"rows{i}").stdout.split()) == want, where
