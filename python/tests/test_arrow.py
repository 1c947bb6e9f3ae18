"""Batches as record batches of Arrow."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest

import shardtool

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

N = 700


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("arrow") / "out"
    with shardtool.Writer(url, block_size="16KiB") as w:
        for i in range(N):
            w.write({
                "text": f"é{i}", "raw": bytes([i % 256]), "n": i, "f": i / 4, "tree": {"a": i}, "x": np.full((2, 3), i, "f4"),
                "ragged": np.arange(i % 4, dtype="i2"), "some": i if i % 3 else None, "deep": np.full((1, i % 3), i),
            })  # fmt: skip
    return url


@pytest.mark.usefixtures("memory")
def test_to_arrow(typed: Path) -> None:
    with shardtool.Loader(typed, 64, epochs=1, tuning=shardtool.Tuning(out="numpy")) as loader:
        table = pa.Table.from_batches([batch.to_arrow() for batch in loader])
    assert table.num_rows == N and table.column_names[0] == "__key__"
    kinds = {name: str(table.schema.field(name).type) for name in ("__key__", "text", "raw", "n", "f", "tree", "some")}
    assert kinds == {
        "__key__": "string", "text": "string", "raw": "binary", "n": "int64", "f": "double", "tree": "string", "some": "int64"
    }  # fmt: skip
    for i, row in enumerate(table.to_pylist()):
        assert row == {
            "__key__": f"{i:09d}", "text": f"é{i}", "raw": bytes([i % 256]), "n": i, "f": i / 4, "tree": f'{{"a":{i}}}',
            "x": [[float(i)] * 3] * 2, "ragged": list(range(i % 4)), "some": i if i % 3 else None, "deep": [[i] * (i % 3)],
        }  # fmt: skip


def test_loader_out(typed: Path) -> None:
    loader: Any = shardtool.Loader(
        typed, 100, shuffle=True, seed=1, epochs=1, tuning=shardtool.Tuning(out="arrow"), fields={"n": "int", "text": "txt"}
    )
    seen = []
    with pickle.loads(pickle.dumps(loader)) as loader:
        for i, batch in enumerate(loader):
            assert isinstance(batch, pa.RecordBatch) and batch.schema.names == ["__key__", "n", "text"]
            seen += batch["n"].to_pylist()
            if i == 2:
                saved = loader.state_dict()
    assert sorted(seen) == list(range(N)) and seen != sorted(seen)
    mapped: Any = shardtool.Loader(
        typed, 100, shuffle=True, seed=1, epochs=1, tuning=shardtool.Tuning(out="arrow"), fields=["n"], map_batch=lambda b: b.num_rows
    )
    with mapped:
        mapped.load_state_dict(saved)
        assert list(mapped) == [100] * 4
    with pytest.raises(shardtool.ConfigError, match="format='arrow'"):
        shardtool.open(typed, tuning=shardtool.Tuning(out="arrow"))  # type: ignore[arg-type]


def answer(prompts: Path, out: Path, stop: int) -> int:
    """The program of docs/python.md. It fails before the batch number ``stop``."""
    begin = -1
    options = {"samples_per_shard": 70, "block_size": "4KiB"}
    with (
        shardtool.Loader(prompts, 64, epochs=1, tuning=shardtool.Tuning(out="arrow"), fields={"text": "txt"}) as loader,
        shardtool.Writer(out, on_exists="resume", **options) as w,
    ):  # type: ignore[arg-type]
        begin = done = w.resume_from
        for i, batch in enumerate(loader):
            if i == stop:
                while len(list(out.glob("data-*"))) < 2:  # two shards are complete
                    time.sleep(0.01)
                raise ZeroDivisionError
            rest = batch.slice(min(done, batch.num_rows))
            done -= batch.num_rows - rest.num_rows
            if rest.num_rows:
                w.write_table(rest.append_column("answer", pa.array([t + "!" for t in rest["text"].to_pylist()])))
    return begin


def test_inference(typed: Path, tmp_path: Path) -> None:
    """Read, compute, write back by key, and continue after a failure."""
    with pytest.raises(ZeroDivisionError):
        answer(typed, tmp_path / "out", 5)
    assert answer(typed, tmp_path / "out", -1) >= 140
    answer(typed, tmp_path / "whole", -1)
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "whole/manifest.json").read_bytes()
    with shardtool.open(tmp_path / "out") as out:
        assert out["000000007"] == {"text": "é7", "answer": "é7!"} and len(out) == N


def test_table_is_whole(tmp_path: Path) -> None:
    """A table with a bad value is not written in part, and determines no types."""
    batch = pa.record_batch({"x": [1, 2], "y": ["a", "b"]})
    bad = pa.Table.from_batches([batch, batch, pa.record_batch({"x": [3, 4], "y": ["c", None]})])
    bad = bad.append_column("z", pa.chunked_array([pa.array([[1], [1]], pa.list_(pa.int64()))] * 2 + [pa.array([[None], [2]])]))
    nan = pa.table({"x": ["t"], "j": pa.array([{"v": float("nan")}])})
    with shardtool.Writer(tmp_path) as w:
        for _ in range(2):
            with pytest.raises(shardtool.EncodeError, match=r"'000000004'.*'z'"):
                w.write_table(bad)
            with pytest.raises(shardtool.EncodeError, match="'j'"):
                w.write_table(nan)
            with pytest.raises(shardtool.EncodeError, match="'j'"):
                w.write_batch({"x": ["t"], "j": [{"v": float("nan")}]})
        assert w.samples == 0
        w.write_table(bad.drop_columns(["z"]))
        w.write_table(pa.table({"x": [5], "z": [0.5]}))
    with shardtool.open(tmp_path) as ds:
        assert [s["x"] for s in ds] == [1, 2, 1, 2, 3, 4, 5] and ds[6]["z"] == 0.5


def test_fixed_shape_tensor(tmp_path: Path) -> None:
    """Tensors of Arrow keep their shape, in the order of their logical dimensions."""
    whole = np.arange(4 * 24, dtype="f4").reshape(4, 2, 3, 4)
    plain = pa.FixedShapeTensorArray.from_numpy_ndarray(whole)
    turned = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [2, 3, 4], permutation=[2, 0, 1]), plain.storage)
    half = pa.FixedShapeTensorArray.from_numpy_ndarray(whole.astype("f2"))
    table = pa.table({"plain": plain, "turned": turned, "half": half})
    with shardtool.Writer(tmp_path) as w:
        w.write_table(table.slice(1))
        w.write_table(table.slice(0, 1))
    with shardtool.open(tmp_path, tuning=shardtool.Tuning(out="numpy")) as ds:
        for i, sample in enumerate(ds[[3, 0, 1, 2]]):
            assert np.array_equal(sample["plain"], whole[i]) and np.array_equal(sample["half"], whole[i].astype("f2"))
            assert np.array_equal(sample["turned"], whole[i].transpose(2, 0, 1))
