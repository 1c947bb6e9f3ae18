"""Columns of tables keep their form: what pack makes of tensors, lists of files and others, against
the libraries that own these types."""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import cat, run

import shardtool

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pq = importlib.import_module("pyarrow.parquet")


def written(tmp: Path, table: Any, kind: str, **options: Any) -> Path:
    """A file of a table."""
    path = tmp / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, **options)
        return path
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table, **options)
    return path


def packed(source: Path, *flags: str) -> List[Dict[str, Any]]:
    """The samples of what pack makes of a file."""
    out = source.with_suffix(".out")
    run("pack", "--quiet", str(source), str(out), *flags)
    with shardtool.open(str(out), format="numpy") as samples:
        return [dict(samples[i]) for i in range(len(samples))]


def same(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(), (got, want)


KINDS = ["parquet", "arrow"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "f2"])
def test_fixed_shape_tensors(tmp_path: Path, kind: str, dtype: str) -> None:
    """As pyarrow without a permutation, else as the specification: dimension i is dimension
    permutation[i] of what is stored. (pyarrow 26 takes other strides.)"""
    shapes: List[Any] = [
        ((3, 4), None),
        ((6,), None),
        ((), None),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 3, 4), (1, 0, 2)),
        ((2, 1, 3, 2), (3, 1, 0, 2)),
    ]
    for n, (shape, order) in enumerate(shapes):
        of = pa.fixed_shape_tensor(pa.from_numpy_dtype(np.dtype(dtype)), shape, permutation=order)
        size = int(np.prod(shape))
        flat = np.arange(7 * size).astype(dtype).reshape(7, size)
        column = pa.ExtensionArray.from_storage(of, pa.array(list(flat), of.storage_type))
        folder = tmp_path / str(n)
        folder.mkdir()
        got = packed(written(folder, pa.table({"x": column.slice(1, 5)}), kind))
        want = flat.reshape(7, *shape).transpose(0, *(d + 1 for d in order or range(len(shape))))
        assert len(got) == 5
        for i, sample in enumerate(got):
            same(sample["x.npy"], np.ascontiguousarray(want[i + 1]).reshape(want.shape[1:]))
        if order is None and shape:
            assert (column.to_numpy_ndarray() == want).all()
        if shape:
            assert column[0].to_numpy().shape == want.shape[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_ray(tmp_path: Path, kind: str) -> None:
    ray = pytest.importorskip("ray.data._internal.tensor_extensions.arrow")
    fixed = np.arange(24, dtype="f4").reshape(4, 2, 3)
    other = [np.arange(n * 2, dtype="i2").reshape(n, 2) for n in (3, 0, 1, 2)]
    columns = {}
    for name, of in [("x", ray.ArrowTensorTypeV2((2, 3), pa.float32())), ("old", ray.ArrowTensorType((3, 2), pa.float32()))]:
        columns[name] = pa.ExtensionArray.from_storage(of, pa.array(list(fixed.reshape(4, 6)), of.storage_type))
    of = ray.ArrowVariableShapedTensorType(pa.int16(), 2)
    columns["y"] = pa.ExtensionArray.from_storage(of, pa.array([{"data": a.ravel(), "shape": a.shape} for a in other], of.storage_type))
    got = packed(written(tmp_path, pa.table(columns), kind))
    for i in range(4):
        same(got[i]["x.npy"], fixed[i])
        same(got[i]["old.npy"], fixed[i].reshape(3, 2))
        same(got[i]["y.npy"], other[i])


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_datasets(tmp_path: Path, kind: str) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"a": datasets.Array2D((2, 3), "float32"), "b": datasets.Array3D((None, 2, 3), "int64")})
    features["c"] = datasets.Array5D((1, 2, 1, 2, 1), "uint8")
    rows = [
        {"a": np.full((2, 3), i, "f4"), "b": np.arange(i * 6).reshape(i, 2, 3), "c": np.arange(4, dtype="u1").reshape(1, 2, 1, 2, 1)}
        for i in range(4)
    ]
    data = datasets.Dataset.from_list(rows, features=features)
    if kind == "parquet":
        source = tmp_path / "rows.parquet"
        data.to_parquet(str(source))
    else:
        data.save_to_disk(str(tmp_path / "saved"))
        source = tmp_path / "saved"
    for sample, row in zip(packed(source), rows):
        for name, array in row.items():
            same(sample[f"{name}.npy"], array)
    out = source.with_suffix(".out")
    run("export", out, tmp_path / "exported", "--as", "hf")
    again = datasets.load_dataset(str(tmp_path / "exported"), split="train", cache_dir=str(tmp_path / "cache")).with_format("numpy")
    assert again.features["a"] == features["a"] and again.features["c"] == features["c"]
    for row, sample in zip(rows, again):
        assert np.array_equal(np.asarray(sample["b"]).reshape(row["b"].shape), row["b"]) and np.array_equal(sample["a"], row["a"])


def variable(rows: List[Any], **meta: Any) -> Any:
    """A table with a column of arrow.variable_shape_tensor, which pyarrow does not know."""
    dims = max(len(row[1]) for row in rows if row)
    of = pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int32(), dims))])
    values = [row and {"data": row[0], "shape": row[1]} for row in rows]
    note = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": json.dumps(meta)}
    return pa.table([pa.array(values, of)], pa.schema([pa.field("x", of, metadata=note)]))


@pytest.mark.parametrize("kind", KINDS)
def test_variable_tensors(tmp_path: Path, kind: str) -> None:
    x = [[float(i) for i in range(n)] for n in (6, 0, 2)]
    table = variable([(x[0], [2, 3]), (x[1], [0, 3]), (x[2], [2, 1]), None], permutation=[1, 0]).append_column("i", pa.array([0, 1, 2, 3]))
    got = packed(written(tmp_path, table, kind))
    for sample, (values, shape) in zip(got, [(x[0], (2, 3)), (x[1], (0, 3)), (x[2], (2, 1))]):
        same(sample["x.npy"], np.ascontiguousarray(np.array(values, "f4").reshape(shape).T))
    assert "x.npy" not in got[3]
    # other values than the row's shape has are an error of the row; those with a null are JSON
    path = written(tmp_path, variable([(x[0], [2, 3]), (x[0], [2, 2]), ([None, 1.0], [1, 2]), (x[0], [-2, -3])]), kind)
    failed = run("pack", path, tmp_path / "bad", check=False)
    assert failed.returncode != 0 and "has 6 values, and states the shape [2 2]" in failed.stderr
    run("pack", path, tmp_path / "some", "--on-error", "skip", "--max-skipped", "2", check=False)
    with shardtool.open(str(tmp_path / "some"), format="numpy") as samples:
        assert len(samples) == 2 and samples[0]["x.npy"].shape == (2, 3) and samples[1]["x.json"] == {"data": [None, 1.0], "shape": [1, 2]}
    failed = run(
        "pack",
        written(tmp_path, variable([(x[0], [2, 3]), (x[2], [2, 1])]), kind),
        tmp_path / "stacked",
        "--layout",
        "stacked",
        check=False,
    )
    assert failed.returncode != 0 and "x.npy" in failed.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_files(tmp_path: Path, kind: str) -> None:
    """Files may have tensors of other shapes, and not of other dimensions."""
    paths = []
    for n, shape in enumerate([(2, 3), (3, 2), (6,)]):
        of = pa.fixed_shape_tensor(pa.float32(), shape)
        column = pa.ExtensionArray.from_storage(of, pa.array([[float(i) for i in range(6)]], of.storage_type))
        (tmp_path / str(n)).mkdir()
        paths.append(written(tmp_path / str(n), pa.table({"x": column}), kind))
    run("pack", *paths[:2], tmp_path / "two")
    with shardtool.open(str(tmp_path / "two"), format="numpy") as samples:
        assert [samples[i]["x.npy"].shape for i in range(2)] == [(2, 3), (3, 2)]
    failed = run("pack", *paths, tmp_path / "three", check=False)
    assert failed.returncode == 1 and "tensor<float32> of the shape [6] here and tensor<float32> of the shape [2 3]" in failed.stderr


def test_tensor_of_another_type(tmp_path: Path) -> None:
    """A type without a shape, or with one that does not fit, is refused; other columns are read."""
    of = pa.list_(pa.float32(), 6)
    for name, meta, why in [
        ("ray.data.arrow_tensor_v2", b"\x80\x05\x95", "does not state a shape in JSON"),
        ("arrow.fixed_shape_tensor", b'{"shape":[2,-3]}', "does not fit"),
        ("arrow.fixed_shape_tensor", b'{"shape":[2,3],"permutation":[0,0]}', "states the permutation [0 0]"),
        ("arrow.fixed_shape_tensor", b'{"shape":[2,2]}', "has 6 values, and its type states the shape [2 2]"),
        ("arrow.variable_shape_tensor", b"{}", "lists of data and of shape are wanted"),
    ]:
        column = pa.field("x", of, metadata={b"ARROW:extension:name": name.encode(), b"ARROW:extension:metadata": meta})
        source = tmp_path / "rows.arrow"
        schema = pa.schema([column, pa.field("y", pa.int64())])
        with pa.ipc.new_file(source, schema) as out:
            out.write_table(pa.table([pa.array([[0.0] * 6], of), pa.array([1])], schema))
        failed = run("pack", source, tmp_path / "out", check=False)
        assert failed.returncode != 0 and why in failed.stderr, failed.stderr
        run("pack", source, tmp_path / "others", "--columns", "y", "--overwrite")


def image(n: int, form: str = "PNG") -> bytes:
    """A small picture of one colour."""
    out = io.BytesIO()
    importlib.import_module("PIL.Image").new("RGB", (4, 4), (n, 2 * n, 0)).save(out, form)
    return out.getvalue()


#: Lists of files: with nulls, without any, null themselves, and longer than ten.
LISTS: List[Any] = [[1, 2], [3], [], None, [None, 4], list(range(12)), [5, None], [None]]


def files(rows: List[Any], large: bool = False) -> Any:
    """A column of lists of files."""
    of = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    values = [row if row is None else [n if n is None else {"bytes": image(n), "path": f"{n}.png"} for n in row] for row in rows]
    return pa.array(values, pa.large_list(of) if large else pa.list_(of))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", [False, True])
def test_lists_of_images(tmp_path: Path, kind: str, large: bool) -> None:
    """A list of images is one field for a Loader, open and exports, whatever its elements are."""
    pytest.importorskip("PIL")
    source = written(tmp_path, pa.table({"images": files(LISTS, large), "q": pa.array(range(len(LISTS)))}), kind)
    out = tmp_path / "out"
    run("pack", "--quiet", source, out, "--block-size", "16KiB")
    want = [[None if n is None else image(n) for n in row or []] for row in LISTS]
    with shardtool.open(str(out)) as samples:
        assert samples.fields == ["images", "q.txt"]
        assert [s["images"] for s in samples] == want and [s["q.txt"] for s in samples] == list(range(len(LISTS)))
    with shardtool.open(str(out), fields={"images": "image"}) as samples:
        colours = [[None if p is None else p.getpixel((0, 0)) for p in s["images"]] for s in samples]
        assert colours == [[None if n is None else (n, 2 * n, 0) for n in row or []] for row in LISTS]
    for fields in (None, ["images", "q"], {"images": "bytes?", "q": "int"}, {"images": "view?", "q": "int"}, {"q": "int", "images": len}):
        with shardtool.Loader(str(out), 3, epochs=1, fields=fields) as loader:
            assert loader.fields == list(fields or ["images", "q.txt"])
            for batch in loader:
                assert len(batch) == 2 and list(batch) == loader.fields
                for number, row in zip(batch.numbers, batch["images"]):
                    if isinstance(fields, dict) and fields["images"] is len:
                        assert row == [None if b is None else len(b) for b in want[number]]
                    else:
                        assert [None if b is None else bytes(b) for b in row] == want[number]
                again = pickle.loads(pickle.dumps(batch))
                assert [len(row) for row in again["images"]] == [len(want[n]) for n in batch.numbers]
                if not isinstance(fields, dict):
                    table = batch.to_arrow()
                    assert table["images"].to_pylist() == [want[n] for n in batch.numbers]
    with pytest.raises(shardtool.ConfigError, match="is a list of files"):
        list(shardtool.Loader(str(out), 3, fields={"images": shardtool.Image(8)}))
    with shardtool.Loader(str(out), 3, epochs=1, fields={"images.11": "bytes?"}) as loader:  # the only field with an extension
        assert sum(p is not None for batch in loader for p in batch["images.11"]) == 1
    # again, from the data set, and as tables
    run("pack", "--quiet", out, tmp_path / "again", "--columns", "images,q", "--rename", "images=pictures")
    with shardtool.open(str(tmp_path / "again")) as samples:
        assert [s["pictures"] for s in samples] == want
    run("export", out, tmp_path / "exported", "--as", "hf")
    table = pq.read_table(tmp_path / "exported" / "data")
    assert [[e and e["bytes"] for e in row] for row in table["images"].to_pylist()] == want
    tar = subprocess.run([os.environ["SHARDTOOL_BINARY"], "get", out, "rows/000000004.images"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as members:
        assert members.getnames() == ["rows/000000004.images.0.bin", "rows/000000004.images.1.png"]


def test_lists_of_datasets(tmp_path: Path) -> None:
    """List(Image) and List(Audio) come back as they were, also where no sample has an element."""
    datasets = pytest.importorskip("datasets")
    list_of = datasets.List
    features = datasets.Features(
        {"images": list_of(datasets.Image()), "sounds": list_of(datasets.Audio(decode=False)), "none": list_of(datasets.Image())}
    )
    rows = [
        {"images": [{"bytes": image(n), "path": None}] * n, "sounds": [{"bytes": b"RIFF....WAVE", "path": "a.wav"}] * (n % 2), "none": []}
        for n in range(4)
    ]
    table = pa.Table.from_pylist(rows, features.arrow_schema)
    datasets.Dataset(table, info=datasets.DatasetInfo(features=features)).to_parquet(str(tmp_path / "rows.parquet"))
    run("pack", "--quiet", tmp_path / "rows.parquet", tmp_path / "out", "--on-error", "skip", "--max-skipped", "1", check=False)
    with shardtool.open(str(tmp_path / "out")) as samples:  # without the row whose lists are all empty, which has no field
        assert samples.fields == ["images", "none", "sounds"] and len(samples) == 3
        assert [(len(s["images"]), len(s["sounds"]), s["none"]) for s in samples] == [(1, 1, []), (2, 0, []), (3, 1, [])]
    run("export", tmp_path / "out", tmp_path / "exported", "--as", "hf")
    again = datasets.load_dataset(str(tmp_path / "exported"), split="train", cache_dir=str(tmp_path / "cache"))
    assert again.features["images"] == features["images"] and type(again.features["sounds"].feature) is datasets.Audio
    assert [len(row["images"]) for row in again] == [1, 2, 3] and [row["none"] for row in again] == [[], [], []]


def test_lists_refused(tmp_path: Path) -> None:
    """A list that is too long is an error of its row; a column named as an element is refused."""
    of = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    most = [{"bytes": b"x", "path": None}] * 1000
    table = pa.table(
        {"f": pa.array([most, [*most, most[0]], [{"bytes": None, "path": "a.png"}]], of), "f.3.bin": ["a", "b", "c"], "q": [1, 2, 3]}
    )
    source = written(tmp_path, table, "parquet")
    failed = run("pack", source, tmp_path / "out", check=False)
    assert failed.returncode == 2 and 'column "f.3.bin" would become the field f.3.bin, as the files of column "f" do' in failed.stderr
    failed = run("pack", source, tmp_path / "out", "--columns", "f,q", "--on-error", "skip", "--max-skipped", "2", check=False)
    skipped = "".join(p.read_text() for p in (tmp_path / "out").glob("skipped-*"))
    assert "it has more than 1000 files" in skipped and "the bytes of its element 0 are null" in skipped
    with shardtool.open(str(tmp_path / "out")) as samples:
        assert len(samples) == 1 and samples[0]["f"] == [b"x"] * 1000


@pytest.mark.parametrize("kind", KINDS)
def test_widen(tmp_path: Path, kind: str) -> None:
    """Integers in one file and floats in another are floats, as pyarrow casts them."""
    first = {"y": pa.array([1, -(2**53), None]), "s": pa.array([7, 8, 9], pa.uint16())}
    second = {"y": pa.array([1.0, float("nan"), 0.1]), "s": pa.array([0.1, 0.5, 1.0], pa.float32())}
    columns: List[Dict[str, Any]] = [
        {"list": pa.array([[1, 2], [], [3]], pa.list_(pa.int32())), **first},
        {"list": pa.array([[0.5], None, [0.1, 4]], pa.list_(pa.float64())), **second},
    ]
    for order in (columns, columns[::-1]):
        paths = []
        for i, table in enumerate(order):
            (tmp_path / str(i)).mkdir(exist_ok=True)
            paths.append(written(tmp_path / str(i), pa.table(table), kind))
        failed = run("pack", *paths, tmp_path / "out", "--overwrite", check=False)
        assert failed.returncode == 1 and "--widen reads integers as floats" in failed.stderr
        for flags in ([], ["--layout", "stacked", "--columns", "s"]):
            done = run("pack", *paths, tmp_path / "out", "--overwrite", "--widen", *flags)
            assert done.stderr.count("column s has integers in some files and floats in others") == 1
            with shardtool.open(str(tmp_path / "out"), format="numpy") as samples:
                got = [dict(s) for s in samples]
            for name, of in [("y", pa.float64()), ("list", pa.list_(pa.float64())), ("s", pa.float64())]:
                want = [v for table in order for v in table[name].cast(of).to_pylist()]
                field = {"y": "y.txt", "list": "list.npy", "s": "s.npy" if flags else "s.txt"}[name]
                if flags and name != "s":
                    continue
                values = [s.get(field) for s in got]
                assert repr([None if v is None else np.asarray(v).tolist() for v in values]) == repr(want)
                assert all(v is None or np.asarray(v).dtype == np.float64 for v in values)
    where = ["--widen", "--where", "y > 0.5", "--attr", "y=y", "--columns", "s"]
    run("pack", *paths, tmp_path / "some", *where)
    assert len(cat(tmp_path / "some")) == 2
    assert "y" in run("inspect", tmp_path / "some").stdout
    path = written(tmp_path, pa.table({"y": [1, 2**53 + 1]}), kind)
    failed = run("pack", path, paths[0], tmp_path / "exact", "--widen", check=False)
    assert failed.returncode == 1 and "column y: 9007199254740993 is no float of 64 bits" in failed.stderr


def read_back(source: Path) -> Any:
    """A file as pyarrow reads it."""
    if source.suffix == ".parquet":
        return pq.read_table(source)
    return pa.ipc.open_file(source).read_all()


def features(dataset: Path) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(json.loads(run("inspect", dataset, "--json").stdout)["meta"]["features"])
    return found


def numbers(column: Any) -> Any:
    """Times as the integers that they are stored as."""
    if pa.types.is_time32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_times(tmp_path: Path, kind: str) -> None:
    """Times of day and durations are integers of the unit that their feature states."""
    datasets = pytest.importorskip("datasets")
    day = 86_400
    columns: Dict[str, Any] = {}
    for unit, per in [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]:
        time = pa.time32(unit) if per < 10**6 else pa.time64(unit)
        columns["t" + unit] = pa.array([0, None, day * per - 1, 45_296 * per], pa.int32() if per < 10**6 else pa.int64()).cast(time)
        columns["d" + unit] = pa.array([-(2**62), 2**62, None, 0], pa.int64()).cast(pa.duration(unit))
    source = written(tmp_path, pa.table(columns), kind)
    table = read_back(source)
    got = packed(source)
    known = features(tmp_path / "rows.out")
    for name in columns:
        want = numbers(table[name])
        assert [row.get(name + ".txt") for row in got] == want, name
        assert known[name + ".txt"] == {"dtype": str(table.schema.field(name).type), "_type": "Value"}
    run("export", tmp_path / "rows.out", tmp_path / "hf", "--as", "hf")
    again = datasets.load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))
    assert {name: str(again.features[name].dtype) for name in columns} == {name: str(table.schema.field(name).type) for name in columns}
    for name in columns:
        assert numbers(again.data.column(name)) == numbers(table[name]), name
    run("pack", source, tmp_path / "noon", "--where", "tus >= 12:34:56", "--columns", "tus", "--where", "ds >= 0")
    assert len(cat(tmp_path / "noon")) == 1
    whole = written(tmp_path, table.select(["tms", "dns"]).slice(3), kind)
    for row in packed(whole, "--layout", "stacked", "--overwrite"):
        assert row == {"tms.npy": 45_296_000, "dns.npy": 0}
    run("export", tmp_path / "rows.out", tmp_path / "stacked", "--as", "hf")
    again = datasets.load_dataset(str(tmp_path / "stacked"), split="train", cache_dir=str(tmp_path / "cache"))
    assert numbers(again.data.column("tms")) == [45_296_000] and numbers(again.data.column("dns")) == [0]
    (tmp_path / "other").mkdir()
    for name, type_ in [("tms", pa.time64("us")), ("dns", pa.duration("us"))]:
        other = written(tmp_path / "other", pa.table({name: pa.array([1], type_)}), kind)
        failed = run("pack", source, other, tmp_path / "both", "--columns", name, check=False)
        assert failed.returncode == 1 and f"column {name} is {type_} here and {table.schema.field(name).type} in" in failed.stderr


MASKED = [("i1", 7), ("i8", -(2**62)), ("u4", 2**32 - 1), ("f2", 0.5), ("f4", 0.1), ("f8", 1e300), ("?", True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statistics", [True, False])
def test_masks(tmp_path: Path, kind: str, statistics: bool) -> None:
    """Numbers with nulls in a stacked data set are 0 where a mask is false."""
    if kind == "arrow" and not statistics:
        pytest.skip("Arrow always states how many nulls there are")
    columns: Dict[str, Any] = {"whole": pa.array([1, 2, 3, 4])}
    for name, value in MASKED:
        of = pa.from_numpy_dtype(np.dtype(name))
        values = np.array([value, value, 0, value], name)
        columns["c" + name.replace("?", "b")] = pa.array(values, of, mask=np.array([False, True, False, True]))
    columns["t"] = pa.array([None, 5, 6, 7], pa.time64("us"))
    columns["n.npy"] = pa.array([None, 1, 2, 3])
    options = {"write_statistics": statistics} if kind == "parquet" else {}
    source = written(tmp_path, pa.table(columns), kind, **options)
    got = packed(source, "--layout", "stacked")
    listed = json.loads(run("inspect", tmp_path / "rows.out", "--json").stdout)
    assert listed["shard_list"][0]["layout"] == "stacked" and len(got) == 4
    assert ("whole.mask.npy" in got[0]) == (not statistics)
    for name, column in columns.items():
        field, mask = (name, "n.mask.npy") if name == "n.npy" else (name + ".npy", name + ".mask.npy")
        if mask not in got[0]:
            continue
        there = [bool(row[mask]) for row in got]
        assert there == [v is not None for v in column.to_pylist()] and np.asarray(got[0][mask]).dtype == np.bool_
        stored = column.cast(pa.int64()) if name == "t" else column
        want = np.where(there, stored.fill_null(False if name == "cb" else 0).to_numpy(zero_copy_only=False), 0)
        values = [np.asarray(row[field]) for row in got]
        assert np.array(values).tolist() == want.tolist()
        assert name == "cb" or values[0].dtype.itemsize == stored.type.bit_width // 8
    run("export", tmp_path / "rows.out", tmp_path / "hf", "--as", "hf")
    again = pq.read_table(next((tmp_path / "hf").rglob("*.parquet")))
    assert again["ci8.mask"].to_pylist() == [True, False, True, False] and again["ci8"].to_pylist() == [-(2**62), 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_masks_of_files(tmp_path: Path, kind: str) -> None:
    """A column that a file lacks, and rows in which all is null; a mask whose name is taken."""
    for part in "abc":
        (tmp_path / part).mkdir()
    first = written(tmp_path / "a", pa.table({"i": pa.array([1, None, 3]), "j": pa.array([1.5, None, 2.5])}), kind)
    second = written(tmp_path / "b", pa.table({"i": pa.array([4, 5])}), kind)
    stacked = ["--layout", "stacked"]
    failed = run("pack", first, second, tmp_path / "none", *stacked, check=False)
    assert failed.returncode == 1 and "all columns are null" in failed.stderr
    done = run("pack", first, second, tmp_path / "some", *stacked, "--nulls", "skip", "--json", check=False)
    assert json.loads(done.stdout)["left_out"] == {"null row": 1}
    run("pack", first, second, tmp_path / "all", *stacked, "--nulls", "empty")
    for out, want in [("some", [[1, 1.5], [3, 2.5], [4, 0], [5, 0]]), ("all", [[1, 1.5], [0, 0], [3, 2.5], [4, 0], [5, 0]])]:
        with shardtool.open(str(tmp_path / out), format="numpy") as samples:
            rows = [dict(s) for s in samples]
        assert [[float(r["i.npy"]), float(r["j.npy"])] for r in rows] == want
        assert [bool(r["j.mask.npy"]) for r in rows] == [w[1] > 0 for w in want]
        assert [bool(r["i.mask.npy"]) for r in rows] == [w[0] > 0 for w in want]
    taken = written(tmp_path / "c", pa.table({"i": pa.array([1, None]), "i.mask.npy": pa.array([1, 2])}), kind)
    failed = run("pack", taken, tmp_path / "taken", *stacked, check=False)
    assert failed.returncode == 2 and '"i" and "i.mask.npy" would both become the field i.mask.npy' in failed.stderr
    run("pack", taken, tmp_path / "plain")
