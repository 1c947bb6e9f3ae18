"""Which layout a Writer chooses by itself, and what keeps it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from conftest import run

import shardtool

np = pytest.importorskip("numpy")

N = 900
NUMBERS = np.arange(N)
X = NUMBERS[:, None].astype("<f4") * np.ones(3, "<f4")
SMALL: Dict[str, Any] = {"block_size": "4KiB", "shard_size": "8KiB"}


def layouts(url: Path) -> List[Optional[str]]:
    return [shard.get("layout") for shard in json.loads(run("inspect", url, "--json").stdout)["shard_list"]]


@pytest.mark.parametrize(
    ("columns", "stacked"),
    [
        ({"x": X}, True),
        ({"x": X, "label": NUMBERS}, True),
        ({"x": X, "label": NUMBERS.astype("u1"), "weight": NUMBERS / 3}, True),
        ({"a": NUMBERS, "b": NUMBERS / 3}, True),
        ({"__key__": [f"k{i}" for i in NUMBERS], "x": X}, True),
        ({"x": X.astype(bool)}, True),
        ({"x": X.astype(">f4").astype(np.float16)}, True),
        ({"x": np.zeros((N, 65536), np.int8)[:20]}, True),
        ({"x": np.zeros((20, 65537), np.int8)}, False),  # large rows gain nothing
        ({"x": X, "label": NUMBERS.tolist()}, False),
        ({"x": X, "text": [str(i) for i in NUMBERS]}, False),
        ({"x": X, "cls": NUMBERS}, False),  # WebDataset reads text there
        ({"x": X, "ok": NUMBERS > 7}, False),
        ({"x": X, "big": NUMBERS.astype("u8")}, False),
        ({"x": np.zeros((N, 0), "f4")}, False),
        ({"x": np.array([["ab"]] * N)}, False),
        ({"x": list(X)}, False),
    ],
)
def test_first_batch(tmp_path: Path, columns: Dict[str, Any], stacked: bool) -> None:
    with shardtool.Writer(tmp_path / "out", **SMALL) as out:
        out.write_batch(columns)
    assert set(layouts(tmp_path / "out")) == {"stacked" if stacked else None}
    with shardtool.Writer(tmp_path / "old", layout="samples", **SMALL) as out:
        out.write_batch(columns)
    assert set(layouts(tmp_path / "old")) == {None}
    with (
        shardtool.open(tmp_path / "out", tuning=shardtool.Tuning(out="numpy")) as new,
        shardtool.open(tmp_path / "old", tuning=shardtool.Tuning(out="numpy")) as old,
    ):
        for name in columns:
            if name != "__key__":
                for i in (0, 19):
                    a, b = new[i][name], old[i][name]
                    assert type(a) is type(b) and np.array_equal(a, b) and getattr(a, "dtype", None) == getattr(b, "dtype", None)


def test_samples_first(tmp_path: Path) -> None:
    """Samples that are written one by one may differ; batches after them are such samples."""
    with shardtool.Writer(tmp_path / "out") as out:
        out.write({"x": np.zeros(3)})
        out.write({"x": np.zeros(4)})
        out.write_batch({"x": np.zeros((5, 3))})
    assert layouts(tmp_path / "out") == [None]


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"x": np.zeros((2, 4), "<f4"), "label": [1, 2]}, r"'?\"?late0.*field \"x\".*layout='samples'"),
        ({"x": np.zeros((2, 3), "<i4"), "label": [1, 2]}, r"late0.*field \"x\" is an array.*earlier samples have.*layout='samples'"),
        ({"x": X[:2]}, r"late0.*1 fields, earlier samples have 2.*layout='samples'"),
        ({"x": X[:2], "other": [1, 2]}, r"late0.*field \"other\", earlier samples have \"label\".*layout='samples'"),
        ({"x": X[:2], "label": [1, 2], "text": ["a", "b"]}, r"late0.*field \"text\".*not an .npy file.*layout='samples'"),
    ],
)
def test_later_samples(tmp_path: Path, later: Dict[str, Any], message: str) -> None:
    with pytest.raises(shardtool.EncodeError, match=message) as caught:
        with shardtool.Writer(tmp_path / "out") as out:
            out.write_batch({"x": X, "label": NUMBERS})
            out.write_batch({"__key__": ["late0", "late1"], **later})
    assert caught.value.key == "late0"
    assert not list(tmp_path.glob("out/manifest.json"))


def test_later_numbers(tmp_path: Path) -> None:
    """Numbers of any kind become rows of the field."""
    with shardtool.Writer(tmp_path / "out") as out:
        out.write_batch({"x": X, "label": NUMBERS})
        out.write_batch({"x": X[:2], "label": [7, 8]})
        out.write({"x": X[2], "label": 9})
        out.write_batch({"x": X[:1], "label": np.array([2], "u1")})
    with shardtool.open(tmp_path / "out", tuning=shardtool.Tuning(out="numpy")) as data:
        assert [data[i]["label"] for i in range(N - 1, N + 4)] == [N - 1, 7, 8, 9, 2]
    with pytest.raises(shardtool.EncodeError):
        with shardtool.Writer(tmp_path / "large", layout="stacked") as out:
            out.write_batch({"x": np.array([1 << 63], "u8")})


def write(url: Path, first: int, stop: Optional[int] = None, single: bool = False, **options: Any) -> None:
    """Writes samples from the first one to the last one, or fails at stop."""
    with shardtool.Writer(url, **SMALL, **options) as out:
        first += out.resume_from
        if single:
            for i in range(first, N):
                out.write({"x": X[i], "label": i})
            return
        for at in range(first, N, 100):
            if stop is not None and at >= stop:
                end = time.monotonic() + 300
                while out.state_dict()["samples"] == 0 and time.monotonic() < end:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            out.write_batch({"x": X[at : at + 100], "label": NUMBERS[at : at + 100]})


@pytest.mark.parametrize("single", [False, True])
def test_resume(tmp_path: Path, single: bool) -> None:
    """A run that continues has rows still, whatever call it continues with."""
    write(tmp_path / "whole", 0)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", 0, stop=500, on_exists="resume")
    with shardtool.Writer(tmp_path / "out", **SMALL, on_exists="resume") as probe:
        assert 0 < probe.resume_from < N
        probe.abort()
    write(tmp_path / "out", 0, single=single, on_exists="resume")
    assert set(layouts(tmp_path / "out")) == {"stacked"}
    assert "same samples, same blocks" in run("inspect", tmp_path / "out", "--against", tmp_path / "whole").stdout


@pytest.mark.parametrize("before", ["samples", "stacked"])
def test_append(tmp_path: Path, before: str) -> None:
    """What is appended to ordinary samples is ordinary: their readers may know nothing else."""
    write(tmp_path / "out", 0, layout=before)
    with shardtool.Writer(tmp_path / "out", name="more", on_exists="append") as out:
        out.write_batch({"x": X, "label": NUMBERS})
    assert set(layouts(tmp_path / "out")) == {None if before == "samples" else "stacked"}
    with shardtool.Writer(tmp_path / "out", name="rows", on_exists="append", layout="stacked") as out:
        out.write_batch({"x": X, "label": NUMBERS})
    assert layouts(tmp_path / "out")[-1] == "stacked"
    with shardtool.open(tmp_path / "out", tuning=shardtool.Tuning(out="numpy")) as data:
        assert len(data) == 3 * N and [data[i]["label"] for i in (3, N + 3, 2 * N + 3)] == [3, 3, 3]
    labels = []
    for batch in shardtool.Loader(
        tmp_path / "out", 64, shuffle=True, epochs=1, tuning=shardtool.Tuning(out="numpy"), fields={"x": "npy", "label": "int"}
    ):
        assert (batch["x"][:, 0] == batch["label"]).all() and batch["label"].dtype == np.int64
        labels += batch["label"].tolist()
    assert sorted(labels) == sorted(NUMBERS.tolist() * 3)


def test_parts_views_reshard(tmp_path: Path) -> None:
    """Parts of rows are one data set, with views, removal, exports, and repacking both ways."""
    for rank in range(2):
        with shardtool.Writer(tmp_path / "out", rank=rank, world_size=2, attrs={"n": "label"}, **SMALL) as out:
            half = slice(rank * N // 2, (rank + 1) * N // 2)
            out.write_batch({"x": X[half], "label": NUMBERS[half]})
    assert set(layouts(tmp_path / "out")) == {"stacked"}
    run("verify", tmp_path / "out", "--deep")
    run("select", tmp_path / "out", "--where=n < 10", "--name=few")
    few = shardtool.Loader(f"{tmp_path / 'out'}#few", 4, epochs=1, tuning=shardtool.Tuning(out="numpy"), fields={"label": "int"})
    assert sorted(n for batch in few for n in batch["label"].tolist()) == list(range(10))
    run("pack", tmp_path / "out", tmp_path / "old", "--layout=samples", "--quiet")
    run("pack", tmp_path / "old", tmp_path / "new", "--layout=stacked", "--quiet")
    assert "same samples" in run("inspect", tmp_path / "new", "--against", tmp_path / "old").stdout
    assert set(layouts(tmp_path / "old")) == {None} and set(layouts(tmp_path / "new")) == {"stacked"}
    with shardtool.open(tmp_path / "old", tuning=shardtool.Tuning(out="numpy")) as data:
        assert [data[i]["label"] for i in range(N)] == NUMBERS.tolist()


def test_table(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    lists = pa.array([[i, i + 1, i + 2] for i in range(N)], pa.list_(pa.int32()))
    tables = {
        "fixed": (pa.table({"ids": pa.FixedSizeListArray.from_arrays(pa.array(range(3 * N), pa.int32()), 3), "n": NUMBERS}), True),
        "even": (pa.table({"ids": lists, "n": NUMBERS / 2}), True),
        "numbers": (pa.table({"a": NUMBERS, "b": NUMBERS / 2}), True),
        "uneven": (pa.table({"ids": pa.array([[i] * (i % 3) for i in range(N)], pa.list_(pa.int32()))}), False),
        "nulls": (pa.table({"ids": lists, "n": pa.array([None, *range(1, N)])}), False),
        "text": (pa.table({"ids": lists, "t": [str(i) for i in range(N)]}), False),
    }
    for name, (table, stacked) in tables.items():
        with shardtool.Writer(tmp_path / name) as out:
            out.write_table(table)
        assert layouts(tmp_path / name) == ["stacked" if stacked else None], name
        with shardtool.open(tmp_path / name, tuning=shardtool.Tuning(out="numpy")) as data:
            assert len(data) == N
            for column in table.column_names:
                assert np.array_equal(data[7][column], table[column][7].as_py()), (name, column)


def test_parquet(tmp_path: Path) -> None:
    """Lists of one length are rows; numbers are text unless rows are asked for."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    ids = pa.array([[i, i + 1, i + 2] for i in range(N)], pa.list_(pa.int32()))
    mask = pa.array([[1, 1, 0]] * N, pa.list_(pa.int8()))
    uneven = pa.array([[i] * (1 + i % 3) for i in range(N)], pa.list_(pa.int32()))  # two values a row on average
    tables = {
        "even": (pa.table({"ids": ids, "mask": mask}), {"stacked"}),
        "numbers": (pa.table({"ids": ids, "n": NUMBERS}), {None}),
        "uneven": (pa.table({"ids": uneven}), {None, "stacked"}),  # what does not fit is an ordinary sample
    }
    for name, (table, expected) in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=300)
        for layout in ([], ["--layout=samples"]):
            run("pack", tmp_path / f"{name}.parquet", tmp_path / f"{name}{len(layout)}", "--quiet", *layout)
        assert set(layouts(tmp_path / f"{name}0")) == expected, name
        assert set(layouts(tmp_path / f"{name}1")) == {None}
        run("inspect", tmp_path / f"{name}0", "--against", tmp_path / f"{name}1")
    run("pack", tmp_path / "numbers.parquet", tmp_path / "rows", "--layout=stacked", "--quiet")
    assert layouts(tmp_path / "rows") == ["stacked"]
    with shardtool.open(tmp_path / "rows", fields={"n.npy": "int", "ids.npy": "npy"}, tuning=shardtool.Tuning(out="numpy")) as data:
        assert data[7]["n.npy"] == 7 and data[7]["ids.npy"].tolist() == [7, 8, 9]
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert "--layout samples, --layout auto" in run("pack", tmp_path / "t.csv", tmp_path / "csv", "--layout=stacked", check=False).stderr
