"""Columns of tables keep their form: what pack makes of tensors, lists of files and others, against
the libraries that own these types."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import run

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
    with shardtool.open(str(out), tuning=shardtool.Tuning(out="numpy")) as samples:
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
    with shardtool.open(str(tmp_path / "some"), tuning=shardtool.Tuning(out="numpy")) as samples:
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
    with shardtool.open(str(tmp_path / "two"), tuning=shardtool.Tuning(out="numpy")) as samples:
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
