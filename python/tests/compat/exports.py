"""What `export` writes, read by the programs that it is for.

`make test-compat` runs them.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
from conftest import ROOT, run

import shardtool

pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages
SAMPLES = 10_000
DEMO = ROOT / "testdata" / "demo"


def fields_of(i: int) -> Dict[str, Any]:
    """The values of sample i of `typed`."""
    return {
        "ids.npy": np.arange(i % 9, dtype="uint16") + i % 1000,
        "grid.npy": np.full((2, 3), i / 4, "float32"),
        "half.npy": np.array([i % 7], "float16"),
        "flag.npy": np.array([i % 2 == 0, True]),
        "text.txt": f"té {i}",
        "n": i - 5000,
        "x": i / 3,
        "meta.json": {"a": [i, None]},
        "raw.bin": bytes([i % 256, 0, 255]),
    }


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("typed") / "out"
    with shardtool.Writer(out, shard_size="256KiB", block_size="16KiB") as writer:
        for i in range(SAMPLES):
            writer.write({"__key__": f"k{i:05d}", **fields_of(i)})
    run("remove", out, "k00003", "k09999")
    return out


KEPT = [i for i in range(SAMPLES) if i not in (3, 9999)]


def export(source: object, out: Path, form: str, *args: object) -> Path:
    for _ in range(2):  # the second finds all files
        run("export", source, out, "--as", form, "--quiet", *args)
    return out


def load(*args: object, **options: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset(*map(str, args), split="train", **options)


def test_hf(typed: Path, tmp_path: Path) -> None:
    """Every value, with its type."""
    folder = export(typed, tmp_path / "hub", "hf")
    data = load(folder, cache_dir=str(tmp_path / "cache"))
    from datasets import Json, List, Value

    assert dict(data.features) == {
        "__key__": Value("string"),
        "flag": List(Value("bool")),
        "grid": List(List(Value("float32"))),
        "half": List(Value("float16")),
        "ids": List(Value("uint16")),
        "meta": Json(),
        "n": Value("int64"),
        "raw": Value("binary"),
        "text": Value("string"),
        "x": Value("float64"),
    }
    streamed = load(folder, streaming=True)
    for i, row, same in zip(KEPT, data, streamed):
        assert row == same
        assert row.pop("__key__") == f"k{i:05d}"
        for name, value in fields_of(i).items():
            got = row.pop(name.partition(".")[0])
            assert got == (value.tolist() if isinstance(value, np.ndarray) else value), (i, name)
        assert not row
    assert data.num_rows == len(KEPT)


def test_hf_features(tmp_path: Path) -> None:
    """Images and classes of a source are so again; of a view, the chosen samples."""
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    def image(i: int) -> Dict[str, Any]:
        out = io.BytesIO()
        Image.new("RGB", (4 + i % 3, 5), (i % 256, 1, 2)).save(out, "PNG" if i % 2 else "JPEG")
        return {"bytes": out.getvalue(), "path": None}

    features = datasets.Features(
        {
            "img": datasets.Image(),
            "label": datasets.ClassLabel(names=["a", 'b "c"', "é"]),
            "n": datasets.Value("int64"),
            "text": datasets.Value("string"),
        }
    )
    rows = [{"img": image(i), "label": i % 3, "n": i, "text": None if i % 50 == 7 else str(i)} for i in range(1000)]
    source = datasets.Dataset.from_list(rows, features=features)
    source.to_parquet(tmp_path / "source.parquet")
    run("pack", tmp_path / "source.parquet", tmp_path / "out", "--attr", "n=n", "--samples-per-shard", 300, "--quiet")
    data = load(export(tmp_path / "out", tmp_path / "hub", "hf"), cache_dir=str(tmp_path / "cache"))
    assert {name: data.features[name] for name in features} == dict(features)
    assert [{**row, "img": row["img"].tobytes()} for row in data.remove_columns("__key__")] == [
        {**row, "img": row["img"].tobytes()} for row in source
    ]
    few = load(
        export(tmp_path / "out", tmp_path / "few", "hf", "--where", "n >= 990", "--fields", "n.txt"), cache_dir=str(tmp_path / "cache")
    )
    assert few["n"][:] == list(range(990, 1000)) and set(few.features) == {"__key__", "n"}


def every_feature() -> Dict[str, List[Any]]:
    """Features of all kinds, each with the values of two rows."""
    from datasets import Array2D, ClassLabel, Image, Json, LargeList, Sequence, Value
    from datasets import List as ListOf

    day, moment, clock = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 34, 56), datetime.time(1, 2, 3)
    late = moment.replace(microsecond=789012)
    price, huge = decimal.Decimal("-1.25"), decimal.Decimal(10**30)
    values: Dict[str, Any] = {f"int{bits}": 1 - 2 ** (bits - 1) for bits in (8, 16, 32, 64)}
    values.update({f"uint{bits}": 2**bits - 1 for bits in (8, 16, 32, 64)})
    values.update(
        {"float16": 0.25, "float32": float(np.float32(0.1)), "float64": 0.1, "bool": True, "binary": b"\xff", "large_binary": b""}
    )
    values.update({"string": "é", "large_string": "", "date32": day, "date64": day, "time32[s]": clock, "time64[us]": clock})
    values.update({"timestamp[s]": moment, "timestamp[us]": late, "timestamp[us, tz=Europe/Berlin]": late})
    values.update({"duration[us]": datetime.timedelta(seconds=-3), "decimal128(12, 2)": price, "decimal256(50, 3)": huge})
    out = {f"value {i}": [Value(dtype), value, None] for i, (dtype, value) in enumerate(values.items())}
    picture = {"bytes": b"PNG", "path": None}
    return {
        **out,
        "label": [ClassLabel(names=["a", 'b "c"']), 1, None],
        "other label": [ClassLabel(names=["x", "y"]), 0, 1],
        "labels": [ListOf(ClassLabel(names=["p", "q"])), [0, 1], []],
        "image": [Image(decode=False), picture, None],
        "fixed": [ListOf(Value("float32"), length=2), [0.5, 1.0], [2.0, 3.0]],
        "holes": [ListOf(Value("int16")), [1, None], [2, 3]],
        "ragged": [ListOf(ListOf(Value("uint8"))), [[1], [2, 3]], [[4, 5]]],
        "words": [ListOf(Value("string")), ["a", None], None],
        "rows": [ListOf({"a": Value("int32"), "b": {"c": Value("float32")}}), [{"a": 1, "b": {"c": 0.5}}, {"a": None, "b": None}], []],
        "parts": [Sequence({"a": Value("int32")}), {"a": [1, 2]}, {"a": []}],
        "struct": [{"z": Value("uint8"), "a": Value("binary"), "n": Value("null")}, {"z": 3, "a": b"\x00", "n": None}, None],
        "large": [LargeList(Value("int64")), [2**60], []],
        "array": [Array2D(shape=(2, 1), dtype="float32"), [[0.5], [1.0]], None],
        "json": [Json(), {"a": [1, None]}, None],
    }


@pytest.mark.parametrize("source", ["parquet", "disk"])
def test_hf_types(source: str, tmp_path: Path) -> None:
    """Columns of all types have them again, with their values."""
    datasets = pytest.importorskip("datasets")
    pa = pytest.importorskip("pyarrow")
    columns = every_feature()
    features = datasets.Features({name: column[0] for name, column in columns.items()})

    def table(name: str) -> Any:
        one = datasets.Features({name: features[name]})
        if not isinstance(features[name], datasets.Value):
            return datasets.Dataset.from_dict({name: columns[name][1:]}, features=one)
        return datasets.Dataset(pa.table({name: pa.array(columns[name][1:], features[name].pa_type)}, schema=one.arrow_schema))

    want = datasets.concatenate_datasets([table(name) for name in features], axis=1)
    assert want.features == features
    if source == "disk":
        want.save_to_disk(tmp_path / "source")
    else:
        want.to_parquet(tmp_path / "source")
    run("pack", tmp_path / "source", tmp_path / "out", "--quiet", *(["--as", "parquet"] if source == "parquet" else []))
    data = load(export(tmp_path / "out", tmp_path / "hub", "hf"), cache_dir=str(tmp_path / "cache")).remove_columns("__key__")
    assert dict(data.features) == dict(features)
    got, is_ = data.with_format("arrow")[:], want.with_format("arrow")[:]
    for name in features:
        if name == "image":
            assert [row and row["bytes"] for row in got[name].to_pylist()] == [b"PNG", None]
        else:
            assert got[name].to_pylist() == is_[name].to_pylist(), name


def test_hf_rows(tmp_path: Path) -> None:
    """Stacked shards, in which numbers are arrays without dimensions."""
    with shardtool.Writer(tmp_path / "out", layout="stacked", name="test") as writer:
        writer.write_batch({"n": np.arange(3000), "x": np.arange(3000) / 4, "grid.npy": np.arange(18000, dtype="int8").reshape(3000, 2, 3)})
    export(tmp_path / "out", tmp_path / "hub", "hf")
    data = pytest.importorskip("datasets").load_dataset(str(tmp_path / "hub"), split="test", cache_dir=str(tmp_path / "cache"))
    assert data["n"][:] == list(range(3000)) and data["x"][:] == [i / 4 for i in range(3000)]
    assert data["grid"][:] == np.arange(18000, dtype="int8").reshape(3000, 2, 3).tolist()


def test_tars(tmp_path: Path) -> None:
    """Readers that take all files of a folder read the tars alone; wids by its index."""
    run("pack", DEMO, tmp_path / "out", "--name", "train", "--shard-size", "256KiB", "--block-size", "64KiB", "--quiet")
    tars = tmp_path / "tars"
    for form in ("tar", "wids"):
        export(tmp_path / "out", tars, form)
    keys = [line["key"] for line in map(json.loads, run("cat", "--json", tmp_path / "out").stdout.splitlines())]
    cache = str(tmp_path / "cache")
    for data in (
        load("webdataset", data_dir=str(tars), cache_dir=cache),
        load(tars, cache_dir=cache),
        load("webdataset", data_dir=str(tars), streaming=True),
    ):
        assert [row["__key__"] for row in data] == keys
    plain = tmp_path / "plain"  # its own shards are tars, beside its tables and indexes
    run("pack", DEMO, plain, "--name", "train", "--shard-size", "256KiB", "--block-size", "64KiB", "--format", "tar", "--quiet")
    export(plain, plain, "tar")
    for data in (load(plain, cache_dir=cache), load("webdataset", data_files=str(plain / "*.tar"), cache_dir=cache)):
        assert [row["__key__"] for row in data] == keys
    wids = pytest.importorskip("wids")
    local = wids.ShardListDataset(str(tars / "wids.json"), cache_dir=str(tmp_path / "wids"), keep=True)
    assert [local[i]["__key__"] for i in range(len(local))] == keys
    wds = pytest.importorskip("webdataset")
    assert [row["__key__"] for row in wds.WebDataset(sorted(map(str, tars.glob("*.tar"))), shardshuffle=False)] == keys


def test_energon(tmp_path: Path) -> None:
    """Energon reads all samples in order, and members by their keys."""
    energon = pytest.importorskip("megatron.energon")
    run("pack", DEMO, tmp_path / "out", "--name", "train", "--shard-size", "256KiB", "--block-size", "64KiB", "--quiet")
    removed = [line["key"] for line in map(json.loads, run("cat", "--json", tmp_path / "out").stdout.splitlines())][:40:3]
    run("remove", tmp_path / "out", *removed)
    folder = export(tmp_path / "out", tmp_path / "tars", "energon")
    prepare = ["prepare", "--non-interactive", "--sample-type", "CrudeWebdataset", "--split-ratio", "1,0,0", str(folder)]
    subprocess.run([str(Path(sys.executable).with_name("energon")), *prepare], check=True, capture_output=True)

    class Task(energon.DefaultTaskEncoder):  # type: ignore[misc,name-defined]
        cookers = (energon.Cooker(energon.stateless(lambda sample: sample)),)

        def batch(self, samples: List[Any]) -> List[Any]:
            return samples

    want = {}
    for path in sorted(DEMO.rglob("*.*")):
        key = str(path.relative_to(DEMO)).partition(".")[0]
        if key not in removed and not path.name.startswith("."):
            want.setdefault(key, {})[path.name.partition(".")[2]] = path.read_bytes()
    workers = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
    data = energon.get_val_dataset(str(folder), split_part="train", batch_size=1, task_encoder=Task(), worker_config=workers)
    seen = [sample for batch in energon.get_loader(data) for sample in batch]
    assert sorted(sample["__key__"] for sample in seen) == sorted(want)
    for sample in seen:
        assert sample["txt"] == want[sample["__key__"]]["txt"].decode()
    from megatron.energon.cache.file_store import WebdatasetFileStore
    from megatron.energon.epathlib import EPath

    store = WebdatasetFileStore(EPath(folder))
    for key, fields in want.items():
        for name, payload in fields.items():
            assert store.get(f"{key}.{name}") == payload


def test_megatron(tmp_path: Path) -> None:
    """Megatron's IndexedDataset has the documents."""
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    documents = [np.arange(i % 400, dtype="uint16") * 3 + i % 11 for i in range(SAMPLES)]
    with shardtool.Writer(tmp_path / "out", name="gpt", shard_size="1MiB") as writer:
        for i, document in enumerate(documents):
            writer.write({"__key__": f"{i:05d}", "tokens.npy": document})
    folder = export(tmp_path / "out", tmp_path / "gpt", "megatron")
    data = indexed.IndexedDataset(str(folder / "gpt"))
    assert len(data) == SAMPLES and data.document_indices.tolist() == list(range(SAMPLES + 1))
    assert data.index.dtype == np.uint16
    for got, want in zip(data, documents):
        assert np.array_equal(got, want)
    run("pack", folder / "gpt.idx", tmp_path / "again", "--quiet")
    with shardtool.Loader(tmp_path / "again", 100, tail="short") as loader:
        again = [document for batch in loader for document in batch["tokens.npy"]]
    assert len(again) == SAMPLES and all(np.array_equal(got, want) for got, want in zip(again, documents))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "uint16"])
def test_megatron_packed(tmp_path: Path, dtype: str) -> None:
    """Documents that Megatron's builder writes are packed as its IndexedDataset reads them."""
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    rng = np.random.default_rng(5)
    limits = np.iinfo(dtype)
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "x.bin"), dtype=getattr(np, dtype))
    for i in range(SAMPLES):
        lengths = rng.integers(0 if i % 50 == 0 else 1, 40, i % 4).tolist()  # sequences of a document
        ids = rng.integers(limits.min, limits.max, sum(lengths), "int64", endpoint=True)
        builder.add_document(ids, lengths)
    builder.finalize(str(tmp_path / "x.idx"))
    data = indexed.IndexedDataset(str(tmp_path / "x"))
    bounds = data.document_indices
    run("pack", tmp_path / "x.idx", tmp_path / "out", "--quiet")
    with shardtool.Loader(tmp_path / "out", 100, tail="short", tuning=shardtool.Tuning(out="numpy")) as loader:
        got = [document for batch in loader for document in batch["tokens.npy"]]
    assert len(got) == len(bounds) - 1 == SAMPLES
    for document, first, end in zip(got, bounds, bounds[1:]):
        want = np.concatenate([np.empty(0, dtype), *(data[s] for s in range(first, end))])
        assert document.dtype == want.dtype and np.array_equal(document, want)


def test_croissant(tmp_path: Path) -> None:
    """mlcroissant finds no error in the description, and reads the records of plain tars."""
    croissant = pytest.importorskip("mlcroissant")
    for form in ("tar", "tar.zst"):
        out = tmp_path / form
        run("pack", DEMO, out, "--name", "train", "--shard-size", "256KiB", "--block-size", "64KiB", "--format", form, "--quiet")
        data = croissant.Dataset(jsonld=str(export(out, out, "croissant") / "croissant.json"))
        assert not data.metadata.ctx.issues.errors
    data = croissant.Dataset(jsonld=str(tmp_path / "tar" / "croissant.json"))
    got = {row["txt/key"].decode(): row["txt/value"] for row in data.records("txt")}
    assert got == {str(path.relative_to(DEMO))[:-4]: path.read_bytes() for path in DEMO.rglob("*.txt")}
    want: Dict[str, Dict[str, bytes]] = {name: {} for name in ("txt", "mask.txt", "a b.txt", "a_b.txt", "[x].txt")}
    for name, values in want.items():
        for key in ("k", "deep.er/mask", "sk"):
            path = tmp_path / "files" / f"{key}.{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            values[key] = f"{name} of {key}".encode()
            path.write_bytes(values[key])
    out = tmp_path / "named"
    run("pack", tmp_path / "files", out, "--format", "tar", "--quiet")
    data = croissant.Dataset(jsonld=str(export(out, out, "croissant") / "croissant.json"))
    assert not data.metadata.ctx.issues.errors
    for records in data.metadata.record_sets:
        got = {row[f"{records.id}/key"].decode(): row[f"{records.id}/value"] for row in data.records(records.id)}
        assert got == want.pop(records.name)
    assert not want
