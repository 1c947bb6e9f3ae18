"""Rows of stacked data through a Loader: the batches that the same samples give one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from conftest import run

import shardtool
from shardtool import Loader, Order

np = pytest.importorskip("numpy")

N = 2100
#: A field that may be absent is read sample by sample.
ROWS: Dict[str, Any] = {"x": "npy", "label": "int", "weight": "float"}
SAMPLES: Dict[str, Any] = {**ROWS, "x": "npy?"}


def pack(url: Path, first: int = 0, **options: Any) -> Path:
    numbers = np.arange(first, first + N)
    columns = {"x": (numbers[:, None, None] * np.arange(6).reshape(2, 3)).astype("<f4"), "label": numbers % 10, "weight": numbers / 4}
    with shardtool.Writer(url, block_size="4KiB", shard_size="64KiB", attrs={"n": "label"}, **options) as out:
        out.write_batch({"__key__": [f"k{i:05}" for i in numbers], **columns})
    return url


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    pack(folder / "a")
    pack(folder / "b", 50_000)
    pack(folder / "old", layout="samples")
    run("select", folder / "a", "--weight=n", "--draws=3000", "--name=heavy")
    sources = {"a": {"data": str(folder / "a"), "weight": 2}, "b": {"data": str(folder / "b"), "weight": 1}}
    (folder / "mix.yaml").write_text(json.dumps({"sources": sources, "epoch": 1500}))
    return folder


def batches(url: Any, fields: Dict[str, Any], **options: Any) -> Iterator[Any]:
    options = {"tuning": shardtool.Tuning(out="numpy"), "seed": 3, "epochs": 1, "shuffle": True, **options}
    with Loader(url, fields=fields, **options) as loader:
        yield from loader


def same(rows: List[Any], samples: List[Any]) -> int:
    """Checks that batches are equal, and returns how many samples they have."""
    n = 0
    assert len(rows) == len(samples)
    for got, want in zip(rows, samples):
        assert list(got["__key__"]) == list(want["__key__"]) and got.position == want.position
        assert got.numbers == want.numbers and list(got.seeds) == list(want.seeds)
        assert got["x"].shape == (len(got["__key__"]), 2, 3) and got["x"].dtype == np.float32
        assert got["label"].dtype == np.int64 and got["weight"].dtype == np.float64
        for i, key in enumerate(got["__key__"]):
            number = int(key[1:])
            assert (got["x"][i] == number * np.arange(6).reshape(2, 3)).all() and (got["x"][i] == np.asarray(want["x"][i])).all()
            assert got["label"][i] == want["label"][i] == number % 10 and got["weight"][i] == number / 4
        n += len(got["__key__"])
    return n


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("options", [{"batch_size": 64}, {"batch_size": 64, "shuffle": False}, {"batch_size": 4000}])
def test_same_as_samples(data: Path, options: Dict[str, Any]) -> None:
    """Types, shapes and order; the last batch is a short one."""
    tuning = shardtool.Tuning(out="numpy")
    got, want = [], []
    for rows, samples in zip(batches(data / "a", ROWS, tuning=tuning, **options), batches(data / "a", SAMPLES, **options)):
        assert same([rows], [samples]) == len(rows["x"])
        got.append(len(rows["x"]))
        want.append(samples.size)
    assert got == want and sum(got) == N and got[-1] < options["batch_size"]


def test_ranks_and_resume(data: Path) -> None:
    """Three ranks have all rows once, and each continues from any of its states."""
    keys: List[str] = []
    for rank in range(3):
        given: Dict[str, Any] = {"rank": rank, "world_size": 3, "order": Order(global_batch=96)}
        whole = list(batches(data / "a", ROWS, **given))
        same(whole, list(batches(data / "a", SAMPLES, **given)))
        keys += [key for batch in whole for key in batch["__key__"][: len(batch["__key__"]) - batch.padding]]
        with Loader(data / "a", fields=ROWS, tuning=shardtool.Tuning(out="numpy"), seed=3, epochs=1, shuffle=True, **given) as loader:
            for i, _ in enumerate(loader):
                state = json.loads(json.dumps(loader.state_dict()))
                if i == 6:
                    break
        for fields in (ROWS, SAMPLES):  # a state of rows fits samples
            with Loader(data / "a", fields=fields, tuning=shardtool.Tuning(out="numpy"), seed=3, epochs=1, shuffle=True, **given) as loader:
                loader.load_state_dict(state)
                same(whole[7:], list(loader))
    assert len(keys) == N and len(set(keys)) == N


@pytest.mark.parametrize("url", ["mix.yaml", "a#heavy"])
def test_mixes_and_weights(data: Path, url: str) -> None:
    """Rows of a mix, and rows that a view draws several times."""
    got = list(batches(data / url, ROWS, batch_size=50))
    n = same(got, list(batches(data / url, SAMPLES, batch_size=50)))
    assert n == {"mix.yaml": 1500, "a#heavy": 3000}[url]
    labels = [key for batch in got for key in batch["__key__"]]
    if url == "mix.yaml":
        assert sum(key >= "k50000" for key in labels) == 500
    else:
        assert len(set(labels)) < 3000 and max(labels.count(key) for key in set(labels)) > 1


def test_mix_of_layouts(data: Path, tmp_path: Path) -> None:
    """A mix of rows and of ordinary samples has samples, equal to those of rows."""
    mix = {"sources": {"a": {"data": str(data / "a"), "weight": 1}, "b": {"data": str(data / "old"), "weight": 1}}, "epoch": 600}
    got = list(batches(mix, ROWS, batch_size=50))
    assert same(got, list(batches(mix, SAMPLES, batch_size=50))) == 600


def test_one_by_one(data: Path) -> None:
    """Numbers are numbers in either layout."""
    with (
        shardtool.open(data / "a", tuning=shardtool.Tuning(out="numpy")) as new,
        shardtool.open(data / "old", tuning=shardtool.Tuning(out="numpy")) as old,
    ):
        for i in (0, 77, N - 1):
            assert new[i].key == old[i].key and (np.asarray(new[i]["x"]) == np.asarray(old[i]["x"])).all()
            assert type(new[i]["label"]) is int and new[i]["label"] == old[i]["label"] == i % 10
            assert type(new[i]["weight"]) is float and new[i]["weight"] == old[i]["weight"] == i / 4


def test_optional_numbers(data: Path) -> None:
    for batch in batches(data / "a", {"label": "int?", "weight": "float?"}, batch_size=700, shuffle=False):
        first = batch.numbers[0]
        assert batch["label"] == [n % 10 for n in range(first, first + 700)] and batch["weight"][1] == (first + 1) / 4


def test_torch_dataset(data: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    dataset = shardtool.Dataset(data / "a", batch_size=64, shuffle=True, seed=3, epochs=1, fields=ROWS)
    seen = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=2):
        assert batch["x"].shape[1:] == (2, 3) and batch["x"].dtype == torch.float32 and batch["label"].dtype == torch.int64
        seen += [int(v) for v in batch["x"][:, 0, 1]]
    assert sorted(seen) == list(range(N))


def test_other_numbers(tmp_path: Path) -> None:
    """A field of arrays that is read as numbers is refused by key and field."""
    with shardtool.Writer(tmp_path / "rows") as out:
        out.write_batch({"x": np.zeros((3, 2), "<i4")})
    with pytest.raises(shardtool.DecodeError, match=r"000000000.*'x'|field \"x\".*read the field as npy"):
        list(batches(tmp_path / "rows", {"x": "int"}, batch_size=3))
    with (
        pytest.raises(shardtool.DecodeError, match="read the field as npy"),
        shardtool.open(tmp_path / "rows", fields={"x": "int"}, tuning=shardtool.Tuning(out="numpy")) as rows,
    ):
        _ = rows[0]["x"]


def test_commands(data: Path, tmp_path: Path) -> None:
    """What exports, benchmarks and repacks samples does so with rows."""
    run("export", data / "a", "--out", tmp_path / "tars", "--as", "wids", "--quiet")
    index = json.loads((tmp_path / "tars/wids.json").read_text())
    assert sum(shard["nsamples"] for shard in index["shardlist"]) == N
    assert "samples" in run("bench", data / "a", "--shuffle", "--batches=5", "--json").stdout
    run("pack", data / "a", tmp_path / "back", "--layout=samples", "--quiet")
    same(list(batches(tmp_path / "back", ROWS, batch_size=64)), list(batches(tmp_path / "back", SAMPLES, batch_size=64)))
