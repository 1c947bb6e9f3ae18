"""The types that pack records, which Loader(url) and open(url) deliver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import ROOT, npy, run

import shardtool

numpy = pytest.importorskip("numpy")


def delivered(url: Path, **options: Any) -> Dict[str, Any]:
    tuning = shardtool.Tuning(out="numpy")
    with shardtool.Loader(url, batch_size=100, epochs=1, tuning=tuning, **options) as loader:
        (batch,) = loader
        return {name: batch[name] for name in batch}


def same(value: Any, want: Any) -> bool:
    if isinstance(want, list):
        return type(value) is list and value == want and [type(v) for v in value] == [type(v) for v in want]
    return isinstance(value, numpy.ndarray) and value.dtype == want.dtype and numpy.array_equal(value, want)


ROWS: List[Dict[str, Any]] = [
    {"s": "a", "n": 1, "m": 1, "x": 1, "l": [1, 2], "o": {"a": 1}, "t": True, "label": 3, "big": 1, "gone": 7},
    {"s": "007", "n": -2, "m": 1.5, "x": "q", "l": [3, 4], "o": {"a": 2}, "t": False, "label": 1, "big": 10**20, "gone": None},
]
INTS = numpy.array([1, -2], "i8")
WANT: Dict[str, Any] = {
    "s.txt": ["a", "007"], "n.txt": INTS, "m.txt": numpy.array([1, 1.5]), "x.txt": ["1", "q"], "l.npy": numpy.array([[1, 2], [3, 4]]),
    "o.json": [{"a": 1}, {"a": 2}], "t.txt": [True, False], "label.cls": numpy.array([3, 1]), "big.txt": [1, 10**20], "gone.txt": [7, None],
}  # fmt: skip


def test_json_lines(tmp_path: Path) -> None:
    """Types are those of all rows, in one run, in parts, and appended."""
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    run("pack", tmp_path / "a.jsonl", tmp_path / "one")
    for part in range(2):
        run("pack", tmp_path / "a.jsonl", tmp_path / "parts", "--parts", 2, "--part", part)
    run("commit", tmp_path / "parts", "--parts", 2)
    for i, row in enumerate(ROWS):
        (tmp_path / f"{i}.jsonl").write_text(json.dumps(row))
        run("pack", tmp_path / f"{i}.jsonl", tmp_path / "appended", *["--append"] * i)
    run("pack", tmp_path / "one", tmp_path / "again")
    for name in ("one", "parts", "appended", "again"):
        got = delivered(tmp_path / name)
        assert got.keys() == WANT.keys()
        for field, want in WANT.items():
            assert same(got[field], want), (name, field, got[field])
    assert shardtool.open(tmp_path / "one")[1]["big.txt"] == 10**20
    assert same(delivered(tmp_path / "one", fields=["n.txt"])["n.txt"], INTS)
    assert delivered(tmp_path / "one", fields={"n.txt": "bytes"}) == {"n.txt": [b"1", b"-2"]}


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("zip,n,f,w,e\n01234,1,1,a,1e3\n12345,-2,.5,b,2\n")
    run("pack", tmp_path / "a.csv", tmp_path / "out")
    got = delivered(tmp_path / "out")
    assert got["zip.txt"] == ["01234", "12345"] and got["f.txt"] == ["1", ".5"] and got["w.txt"] == ["a", "b"]
    assert same(got["n.txt"], INTS) and same(got["e.txt"], numpy.array([1000.0, 2.0]))


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table({
        "s": ["a", "b"], "n": pa.array([1, -2], pa.int16()), "f": pa.array([1.5, float("nan")], pa.float32()),
        "label": [3, 1],
        "u": pa.array([2**64 - 1, 1], pa.uint64()), "b": [b"\xff", b"2"],
        "l": [[1, 2], [3, 4]], "r": [[1.0], [1.0, 2.0]], "o": [{"a": 1}, {"a": 2}],
        "z": [True, False], "gone": pa.array([7, None], pa.int64()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    run("pack", tmp_path / "a.parquet", tmp_path / "out")
    got = delivered(tmp_path / "out")
    want = {
        "s.txt": ["a", "b"], "n.txt": INTS, "label.cls": numpy.array([3, 1]), "u.txt": [2**64 - 1, 1], "b.bin": [b"\xff", b"2"],
        "l.npy": WANT["l.npy"], "o.json": WANT["o.json"], "z.txt": [True, False], "gone.txt": [7, None],
    }  # fmt: skip
    for field, value in want.items():
        assert same(got.pop(field), value), field
    assert got["f.txt"].dtype == numpy.float64 and got["f.txt"][0] == 1.5 and numpy.isnan(got["f.txt"][1])
    assert [r.tolist() for r in got["r.npy"]] == [[1.0], [1.0, 2.0]]
    pq.write_table(pa.table({"s": ["a", None], "n": [1, None]}), tmp_path / "nulls.parquet")
    run("pack", tmp_path / "nulls.parquet", tmp_path / "empty", "--nulls", "empty")
    assert delivered(tmp_path / "empty") == {"s.txt": ["a", ""], "n.txt": ["1", ""]}


def test_files(tmp_path: Path) -> None:
    """Files have types by their names, and images with class folders numbers."""
    for i, folder in enumerate(("cat", "dog")):
        (tmp_path / "in" / folder).mkdir(parents=True)
        for end, data in {
            "npy": npy("<f4", (2,), bytes(8)),
            "txt": "é".encode(),
            "json": b'{"i": 1}',
            "jpg": b"\xff\xd8" + bytes([i]),
        }.items():
            (tmp_path / "in" / folder / f"1.{end}").write_bytes(data)
    run("pack", tmp_path / "in", tmp_path / "out", "--class-field", "cls")
    want: Dict[str, Any] = {
        "npy": numpy.zeros((2, 2), "f4"), "txt": ["é", "é"], "json": [{"i": 1}] * 2,
        "jpg": [b"\xff\xd8\x00", b"\xff\xd8\x01"], "cls": numpy.array([0, 1]),
    }  # fmt: skip
    got = delivered(tmp_path / "out")
    assert got.keys() == want.keys() and all(same(got[name], value) for name, value in want.items())
    run("export", tmp_path / "out", "--out", tmp_path / "tars")
    run("pack", *sorted((tmp_path / "tars").glob("*.tar")), tmp_path / "back")
    got = delivered(tmp_path / "back")
    assert got.keys() == want.keys() and all(same(got[name], value) for name, value in want.items())


def test_arrays(tmp_path: Path) -> None:
    rows = numpy.arange(12, dtype="u2").reshape(3, 4)
    numpy.save(tmp_path / "a.npy", rows)
    run("pack", tmp_path / "a.npy", tmp_path / "out")
    assert same(delivered(tmp_path / "out")["tokens.npy"], rows)
    for name, values in {
        "f": numpy.arange(12, dtype="f4").reshape(2, 3, 2),
        "b": numpy.array([[True, False], [False, False]]),
        "h": numpy.arange(4, dtype="f2").reshape(2, 2),
        "i": numpy.arange(-2, 2, dtype="i8").reshape(4, 1),
    }.items():
        numpy.save(tmp_path / f"{name}.npy", values)
        run("pack", tmp_path / f"{name}.npy", tmp_path / name)
        (field,) = delivered(tmp_path / name).values()
        assert same(field, values), name
    numpy.savez(tmp_path / "z.npz", x=rows, y=numpy.array([1.5, 2.5, 3.5]))
    run("pack", tmp_path / "z.npz", tmp_path / "z")
    got = delivered(tmp_path / "z")
    assert same(got["x.npy"], rows) and [float(v) for v in got["y.npy"]] == [1.5, 2.5, 3.5]


def test_inputs(tmp_path: Path) -> None:
    """Files that the libraries of their kinds made."""
    inputs = ROOT / "testdata" / "inputs"
    for source in ("arrow/a.arrow", "feather/a.feather", "saved/train", "tfrecord", "megatron/a.idx"):
        run("pack", inputs / source, tmp_path / source)
        first = shardtool.open(tmp_path / source, tuning=shardtool.Tuning(out="numpy"))[0]  # torch 1.13 has no uint16
        files = (".bin", ".png", ".jpg")
        assert all(type(value) is not bytes for name, value in first.items() if not name.endswith(files)), (source, first)


def test_tables(tmp_path: Path) -> None:
    """What `export --as hf` writes has the types that the data set has."""
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({k: v for k, v in row.items() if k != "gone"}) for row in ROWS))
    run("pack", tmp_path / "a.jsonl", tmp_path / "one")
    run("export", tmp_path / "one", tmp_path / "hub", "--as", "hf")
    run("pack", tmp_path / "hub", tmp_path / "back", "--key", "__key__")
    got = delivered(tmp_path / "back")
    want = {name.partition(".")[0]: value for name, value in WANT.items() if name != "gone.txt"}
    for field, value in got.items():
        assert same(value, want.pop(field.partition(".")[0])), (field, value)
    assert not want
