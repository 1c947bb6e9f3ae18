"""shardtool.Writer: what it stores, and which values it refuses."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from conftest import run

import shardtool
from shardtool import ConfigError, EncodeError, Writer

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


def read(url: Path, **options: Any) -> List[Dict[str, Any]]:
    """All samples, as the Loader delivers them without fields, in storage order."""
    out = []
    with shardtool.Loader(url, 100, epochs=1, tuning=shardtool.Tuning(out="numpy"), **options) as loader:
        for batch in loader:
            columns = {name: batch[name] for name in batch}
            for i, key in enumerate(batch.sample_keys):
                out.append({"__key__": key, **{n: c[i] for n, c in columns.items()}})
    return out


# Values


def test_typed(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 3), (1, 2, 3))
    given = {
        "raw": b"\x00\xff", "text": "é", "whole": -3, "half": 0.5, "flag": True, "array": np.arange(6, dtype="f4").reshape(2, 3),
        "picture": image, "tree": {"a": [1, None, "ü"]}, "list": [1, "x"], "scalar": np.int16(7), "real": np.float32(0.25),
    }  # fmt: skip
    with Writer(tmp_path / "out", attrs={"label": "text"}) as w:
        w.write({"__key__": "a", **given, "none": None})
        w.write({"__key__": "b/1", **given})
    assert w.result is not None and w.result["samples"] == 2 and w.result["published"] and w.samples == 2
    first, second = read(tmp_path / "out")
    assert [first.pop("__key__"), second.pop("__key__")] == ["a", "b/1"]
    for got in (first, second):
        assert np.array_equal(got.pop("array"), given["array"]) and got.pop("picture").tobytes() == image.tobytes()
        assert got == {k: v for k, v in given.items() if k not in ("array", "picture")}
    with shardtool.open(tmp_path / "out", tuning=shardtool.Tuning(out="numpy")) as samples:
        assert samples["a"]["whole"] == -3 and samples["a"]["tree"] == given["tree"]
    run("verify", tmp_path / "out", "--deep")
    assert [a for a in run("inspect", tmp_path / "out").stdout.splitlines() if a == "attribute label (label)"]


def test_typed_fields(tmp_path: Path, small: Path) -> None:
    with Writer(tmp_path / "out") as w:
        w.write({"x": 1, "y": 2.5})
        w.write({"y": 3})
    assert [(s["x"], s["y"]) for s in read(tmp_path / "out", fields="typed")] == [(1, 2.5), (None, 3.0)]
    assert [s["__key__"] for s in read(tmp_path / "out")] == ["000000000", "000000001"]
    with pytest.raises(ConfigError, match="records no types"):
        read(small, fields="typed")
    assert read(small)[7]["cls"] == 7


def test_declared(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 30), (200, 2, 3))
    fields = {"image": "jpg:92", "list": "npy", "real": "float", "any": "json", "text": "bytes"}
    with Writer(tmp_path / "out", fields=fields) as w:
        w.write({"image": image, "list": [1, 2], "real": 1, "any": 5, "text": "é"})
        w.write({"image": np.asarray(image), "list": 3.0, "real": 2.0, "any": "x", "text": b"z"})
        out = io.BytesIO()
        image.save(out, "JPEG")
        w.write({"image": out.getvalue(), "list": [[1]], "real": 2.0, "any": None, "text": b""})
    got = read(tmp_path / "out")
    assert [g["image"].size for g in got] == [(40, 30)] * 3 and got[0]["image"].format == "JPEG"
    assert [g["list"].tolist() for g in got] == [[1, 2], 3.0, [[1]]]
    assert [g["any"] for g in got] == [5, "x", None] and [g["real"] for g in got] == [1.0, 2.0, 2.0]
    assert [g["text"] for g in got] == ["é".encode(), b"z", b""]


def test_sources_that_differ_in_a_type(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 1.5)):
        with Writer(tmp_path / name) as w:
            w.write({"x": value, "y": "text"})
    mix = {"sources": {name: {"data": tmp_path / name} for name in "ab"}}
    with shardtool.Loader(mix, 2, epochs=1, tuning=shardtool.Tuning(out="numpy")) as loader:
        batch = next(iter(loader))
        assert sorted(batch["x"]) == [b"1", b"1.5"] and batch["y"] == ["text", "text"]
    with (
        shardtool.Loader(mix, 2, epochs=1, tuning=shardtool.Tuning(out="numpy"), fields="typed") as loader,
        pytest.raises(ConfigError, match="several, for 'x'"),
    ):
        iter(loader)


@pytest.mark.parametrize("fields", [{"x": "mp3"}, {"x": "jpg:0"}, {"x": "png:3"}, {"x": "jpg:"}, {"x": 3}, ["x"]])
def test_wrong_fields(tmp_path: Path, fields: Any) -> None:
    with pytest.raises(ConfigError, match="fields"):
        Writer(tmp_path / "out", fields=fields)


class Strange:
    pass


def bad_values() -> "Iterator[Any]":
    yield Strange(), "has no encoding"
    yield {"a": {1, 2}}, "JSON cannot hold"
    yield {"a": float("nan")}, "JSON cannot hold"
    yield np.array([None, "x"]), "Python objects"
    yield np.zeros(2, "M8[s]"), "view it as numbers"
    yield np.zeros(2, [("a", "i4")]), "columns as fields"
    yield 1 << 63, "64 bits"
    yield "\ud800", "not valid Unicode"
    yield np.ma.array([1, 2], mask=[0, 1]), "a masked array"
    yield Image.new("CMYK", (2, 2)), "cannot be saved as PNG"


@pytest.mark.parametrize("value, why", list(bad_values()), ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_unencodable(tmp_path: Path, value: Any, why: str) -> None:
    with Writer(tmp_path / "out") as w:
        w.write({"__key__": "good", "x": b"1"})
        with pytest.raises(EncodeError, match=why) as caught:
            w.write({"__key__": "k7", "x": b"1", "y": value})
        assert caught.value.key == "k7" and caught.value.field == "y" and "k7" in str(caught.value)
        w.write({"__key__": "k8", "x": b"2"})
    assert [s["__key__"] for s in read(tmp_path / "out")] == ["good", "k8"]


def test_other_type(tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        w.write({"x": 1})
        with pytest.raises(EncodeError, match=r"float in a field of type int .as earlier samples have it.*fields=\{'x': 'float'\}"):
            w.write({"x": 1.5})
        with pytest.raises(EncodeError, match="keys are text"):
            w.write({"__key__": 5, "x": 1})
        with pytest.raises(EncodeError, match="no fields"):
            w.write({"__key__": "a"})
        with pytest.raises(EncodeError, match="no fields"):
            w.write({"x": None})
        with pytest.raises(EncodeError, match="names of fields are text"):
            w.write({3: 1})  # type: ignore[dict-item]
        for key in ("\ud800", "a\ud800"):
            with pytest.raises(EncodeError, match=r"key .* is not valid Unicode"):
                w.write({"__key__": key, "x": 1})
        dots = [(key, "a dot") for key in ("a.jpg", ".a", "a/b.c.d")]
        for key, why in dots + [(key, "single slashes") for key in ("", ".", "/a", "a/", "a//b", "../a", "a/./b", "a\0")]:
            with pytest.raises(EncodeError, match=why):
                w.write({"__key__": key, "x": 1})
            with pytest.raises(EncodeError, match=why):
                w.write_batch({"__key__": [key], "x": [1]})
        for name in ("\ud800", "\udc80"):  # would be stored under another name
            with pytest.raises(EncodeError, match="not valid Unicode"):
                w.write({name: 1})
    assert len(read(tmp_path / "out")) == 1


class Tensor:
    """As much of a tensor on a GPU as the writer looks at."""

    def __init__(self, device: str) -> None:
        self.device = type("device", (), {"type": device, "__str__": lambda _: f"{device}:0"})()


def test_gpu_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"Tensor": Tensor}))
    with Writer(tmp_path / "out") as w:
        with pytest.raises(EncodeError, match=r"a tensor on cuda:0: write tensor.cpu\(\)"):
            w.write({"x": Tensor("cuda")})
        with pytest.raises(EncodeError, match=r"column 'x': a tensor on cuda:0"):
            w.write_batch({"x": Tensor("cuda")})
        w.write({"y": 1})


# Batches


def test_batch(tmp_path: Path) -> None:
    n = 3000
    columns = {
        "__key__": [f"k{i:05d}" for i in range(n)], "x.npy": np.arange(n * 6, dtype="<i4").reshape(n, 2, 3),
        "cls": np.arange(n, dtype="u1"),
        "real": np.linspace(0, 1, n), "half": np.arange(n, dtype="f2"), "flag": np.arange(n) % 3 == 0,
        "text": [f"t{i}" for i in range(n)],
        "raw": [None if i % 2 else bytes(i % 7) for i in range(n)], "names": np.array([f"é{i}" for i in range(n)]),
        "big": np.arange(n, dtype=">i8"), "empty": np.zeros((n, 0)),
    }  # fmt: skip
    with Writer(tmp_path / "out", attrs={"label": "text", "number": "cls"}, block_size="64KiB") as w:
        w.write_batch(columns)
        w.write_batch({"__key__": [], "cls": []})
    got = read(tmp_path / "out")
    assert len(got) == n
    for i in (0, 1, 2, 254, 255, 256, n - 1):
        g = got[i]
        assert g["__key__"] == f"k{i:05d}" and g["x.npy"].tolist() == columns["x.npy"][i].tolist() and g["cls"] == i % 256
        assert g["real"] == columns["real"][i] and g["half"] == float(columns["half"][i]) and g["flag"] is (i % 3 == 0)
        assert (g["text"], g["names"], g["big"]) == (f"t{i}", f"é{i}", i) and g["empty"].shape == (0,)
        assert g["raw"] == (None if i % 2 else bytes(i % 7))


def test_same_bytes(tmp_path: Path) -> None:
    """The data set does not depend on how the samples were handed over."""
    with Writer(tmp_path / "one") as w:
        for i in range(500):
            w.write({"text": f"t{i}", "cls": i, "x": np.full(3, i, "f4")})
    with Writer(tmp_path / "many") as v:
        for lo in (0, 100):
            hi = lo + 100 if lo == 0 else 500
            x = np.repeat(np.arange(lo, hi, dtype="f4")[:, None], 3, 1)
            v.write_batch({"text": [f"t{i}" for i in range(lo, hi)], "cls": np.arange(lo, hi), "x": x})
    assert w.result is not None and v.result is not None and w.result["digest"] == v.result["digest"]


@pytest.mark.parametrize(
    "columns, why",
    [
        ({"a": [1, 2], "b": [1]}, "column 'b' has 1 values and column 'a' has 2"),
        ({"a": "text"}, "a single str"),
        ({"a": 5}, "a single int"),
        ({"a": np.array(5)}, "a single ndarray"),
        ({"a": np.array([Strange()])}, "has no encoding"),
        ({"a": np.zeros((2, 2), object)}, "Python objects"),
        ({"__key__": ["a", None], "a": [1, 2]}, "without a key"),
        ({"a": [1, "x"]}, "in a field of type int"),
        ({"a": np.array([1, 1 << 63], "u8")}, "63 bits"),
        ({"a": np.zeros(2, "M8[ns]")}, "view it as numbers"),
        ({"a": np.zeros(2, "m8[ns]")}, "view it as numbers"),
        ({"a": np.zeros(2, [("b", "i4")])}, "columns as fields"),
        ({"a": np.ma.array([1, 2], mask=[0, 1])}, "a masked array"),
        ({"a": np.ma.array([[1], [2]], mask=[[0], [1]])}, "a masked array"),
        ({"__key__": ["a", "\ud800"], "a": [1, 2]}, "key .* is not valid Unicode"),
    ],
)
def test_wrong_batch(tmp_path: Path, columns: Any, why: str) -> None:
    with Writer(tmp_path / "out") as w:
        with pytest.raises(EncodeError, match=why):
            w.write_batch(columns)
        with pytest.raises(ConfigError, match="no field"):
            w.write_batch({"__key__": ["a"]})
        w.write({"z": 1})
    assert len(read(tmp_path / "out")) == 1


def test_failed_value_determines_no_type(tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        for value in (1 << 80, np.array([None]), {"a": Strange()}):
            with pytest.raises(EncodeError):
                w.write({"x": value})
        with pytest.raises(EncodeError):
            w.write_batch({"x": [1 << 80]})
        w.write({"x": "text"})
    assert [s["x"] for s in read(tmp_path / "out")] == ["text"]


# Arrow


def test_table(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    n = 1000
    table = pa.table({
        "id": [f"k{i}" for i in range(n)], "n": list(range(n)), "f": [i / 3 for i in range(n)],
        "s": [None if i % 3 == 0 else f"é{i}" for i in range(n)], "b": [bytes([i % 256]) * (i % 5) for i in range(n)],
        "ok": [i % 2 == 0 for i in range(n)], "v": pa.array([[i, i + 1][: i % 3] for i in range(n)], pa.list_(pa.int32())),
        "big": pa.array([None if i % 5 == 0 else [i] * (i % 4) for i in range(n)], pa.large_list(pa.float64())),
        "fixed": pa.array([[i, i] for i in range(n)], pa.list_(pa.float32(), 2)), "st": [{"a": i, "b": [str(i)]} for i in range(n)],
        "map": pa.array([[("k", i)] for i in range(n)], pa.map_(pa.string(), pa.int64())), "null": pa.nulls(n),
        "choice": pa.array(["x", "y"] * (n // 2)).dictionary_encode(), "file": [{"bytes": b"%d" % i, "path": None} for i in range(n)],
        "view": pa.array([f"{i}" * (i % 9) for i in range(n)]), "hole": pa.array([[1, None]] * n),
    })  # fmt: skip
    if hasattr(pa, "string_view"):
        table = table.set_column(table.column_names.index("view"), "view", table["view"].cast(pa.string_view()))
    cuts = [table.slice(0, 300), table.slice(303, 200), pa.concat_tables([table.slice(600, 3), table.slice(700, 50)]), table.slice(1000)]
    with Writer(tmp_path / "out", attrs={"number": "n", "label": "choice"}) as w:
        for cut in cuts:
            w.write_table(cut, key="id")
    rows = {row["id"]: row for cut in cuts for row in cut.to_pylist()}
    got = read(tmp_path / "out")
    assert [g["__key__"] for g in got] == list(rows)
    for g in got:
        row = rows[g["__key__"]]
        assert set(g) - {"__key__"} == set(row) - {"id", "null"}
        for name in set(row) - {"id", "null"}:
            want: Any = row[name]
            if name == "file":
                want = want["bytes"]
            elif name == "map":
                want = dict(want)
            value = g[name].tolist() if isinstance(g[name], np.ndarray) else g[name]
            assert value == want, (g["__key__"], name)


def test_keys_with_dots_in_folders(tmp_path: Path) -> None:
    keys = ["a", ".../b", "v1.0/b", "..x/.y/c d", "é\n", "\udc80"]
    with Writer(tmp_path / "out") as w:
        for key in keys:
            w.write({"__key__": key, "x": 1})
    assert [s["__key__"] for s in read(tmp_path / "out")] == keys


def test_half_floats_and_missing_images(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    half = pa.array([np.float16(1.5), None, np.float16(-2)], pa.float16())
    image = pa.array([{"bytes": b"a", "path": None}, None, {"bytes": None, "path": "p"}])
    with Writer(tmp_path / "out") as w:
        w.write_table(pa.table({"half": half, "image": image, "k": [1, 2, 3]}))
        w.write_table(pa.table({"half": half, "image": image, "k": [1, 2, 3]}).slice(1))
    got = [(s["half"], s["image"]) for s in read(tmp_path / "out")]
    assert got == [(1.5, b"a"), (None, None), (-2.0, None), (None, None), (-2.0, None)]


def test_wrong_table(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with Writer(tmp_path / "out") as w:
        for table, key, why in (
            ({"a": 1}, None, "no __arrow_c_stream__"),
            (pa.table({"a": [1]}), "id", "no such column; there are: a"),
            (pa.table([[1], [2]], names=["a", "a"]), None, "two columns have one name"),
            (pa.table({"t": pa.array([1], pa.timestamp("s"))}), None, "cast it to text"),
            (pa.table({"__key__": pa.array([None], pa.string()), "a": [1]}), None, "without a key"),
        ):
            with pytest.raises(EncodeError, match=why):
                w.write_table(table, key=key)
        w.write_table(pa.table({"a": [1]}))
    assert [g["a"] for g in read(tmp_path / "out")] == [1]
