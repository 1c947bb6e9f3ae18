"""Views in Python are those of the command line: by name, by an expression, by keys."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import cat, run

import shardtool
from shardtool import Loader
from shardtool.errors import CheckpointError, ConfigError, KeyNotFoundError, NotFoundError

N = 400


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with attributes, and views of it."""
    folder = tmp_path_factory.mktemp("views")
    lines = [json.dumps({"id": f"k{i:04}", "lang": ["de", "en", "fr"][i % 3], "score": i / 4, "txt": f"text {i}"}) for i in range(N)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "keys.txt").write_text("".join(f"k{i:04}\n" for i in range(0, N, 5)))
    out = folder / "out"
    run("pack", folder / "rows.jsonl", out, "--key=id", "--attr=lang=lang", "--attr=score=score", "--block-size=4KiB", "--shard-size=32KiB")
    run("select", out, "--where=lang = de and score > 10", "--name=clean")
    run("select", out, "--weight=score", "--draws=900", "--name=heavy")
    return out


def numbers(loader: "Loader[Any]") -> List[int]:
    return [n for batch in loader for n in batch.numbers]


@pytest.mark.parametrize(
    ("given", "flags", "of"),
    [
        ({"where": "lang = de and score > 10"}, ["--where=lang = de and score > 10"], ""),
        ({}, [], "#clean"),
        ({}, [], "#heavy"),
        ({"keys": "keys.txt"}, ["--keys=keys.txt"], ""),
        ({"where": "lang != en"}, ["--where=lang != en"], "#heavy"),
    ],
)
def test_same_as_cat(rows: Path, monkeypatch: pytest.MonkeyPatch, given: Dict[str, Any], flags: List[str], of: str) -> None:
    monkeypatch.chdir(rows.parent)
    for world in (1, 3):
        for rank in range(world):
            want = cat(f"{rows}{of}", *flags, "--shuffle", "--seed=5", "--global-batch=24", f"--world-size={world}", f"--rank={rank}")
            ranks = {"rank": rank, "world_size": world, "order": shardtool.Order(global_batch=24)}
            options: Dict[str, Any] = {"shuffle": True, "seed": 5, "epochs": 1, "tail": "short", **ranks}
            with Loader(shardtool.Source(f"{rows}{of}", **given), fields=["txt"], **options) as loader:
                length = len(loader)
                assert numbers(loader) == [line["number"] for line in want]
                assert length == -(-loader._facts()["epoch_samples"] // 24)


def test_resume(rows: Path) -> None:
    options: Dict[str, Any] = {"fields": ["txt"], "shuffle": True, "epochs": 2, "batch_size": 16}
    with Loader(f"{rows}#clean", **options) as loader:
        batches = [(batch.numbers, batch.state_dict()) for epoch in range(2) for batch in loader]
    got, state = batches[:3], batches[2][1]
    assert "#" in json.loads(json.dumps(state))["checkpoint"]
    for where, of in (("lang = de and score > 10", ""), (None, "#clean")):
        with Loader(f"{rows}{of}", where=where, **options) as loader:
            loader.load_state_dict(state)
            rest = [batch.numbers for epoch in range(2) for batch in loader]
            assert [list(n) for n, _ in got] + [list(n) for n in rest] == [list(n) for n, _ in batches]
    with Loader(rows, **options) as loader:
        loader.load_state_dict(state)
        with pytest.raises(CheckpointError, match=r"view is [0-9a-f]{16} in the checkpoint, the whole data set here"):
            next(iter(loader))


def test_open(rows: Path) -> None:
    with shardtool.open(rows, where="score between 10 and 20") as ds:
        assert len(ds) == 41 and ds.info["samples"] == N and len(ds.info["view"]) == 16
        assert [s.number for s in ds] == list(range(40, 81))
        assert ds[-1].key == "k0080" and ds["k0050"].number == 50
        assert "k0081" not in ds and "k0041" in ds
        with pytest.raises(KeyNotFoundError):
            ds["k0000"]
        with pytest.raises(IndexError):
            ds[41]
        again = pickle.loads(pickle.dumps(ds))
        with again:
            assert len(again) == 41


def test_errors(rows: Path, tmp_path: Path) -> None:
    for given, kind, text in (
        ({"where": "scor > 3"}, ConfigError, 'at character 1, "scor > 3": there is no attribute "scor": did you mean score'),
        ({"where": "lang = dd"}, ConfigError, "no sample has this lang"),
        ({"keys": str(tmp_path / "none")}, NotFoundError, "no such file"),
        ({"where": 3}, ConfigError, "where=3"),
    ):
        with pytest.raises(kind) as err, Loader(shardtool.Source(rows, **given), 4, fields=["txt"]) as loader:  # type: ignore[arg-type]
            next(iter(loader))
        assert text in str(err.value) and "--" not in str(err.value)
    with pytest.raises(NotFoundError, match="no view none"), Loader(f"{rows}#none", 4) as loader:
        next(iter(loader))


def test_nothing_chosen(rows: Path) -> None:
    with Loader(rows, 4, where="score > 1000") as loader, pytest.raises(ConfigError, match="no samples: nothing is chosen of 400"):
        next(iter(loader))


def test_order(rows: Path) -> None:
    from oracle import Order

    order = Order.of(f"{rows}#clean", shuffle=True, seed=3, epochs=1, global_batch=16)
    with Loader(f"{rows}#clean", 16, fields=["txt"], shuffle=True, seed=3, epochs=1) as loader:
        assert [list(batch.numbers) for batch in loader] == [batch.samples for batch in order.batches(16)]
        checkpoint = json.loads(order.checkpoint(0, 16, 16).text())
        assert checkpoint["sources"] == json.loads(loader.state_dict()["checkpoint"])["sources"]
    with pytest.raises(ConfigError, match="a view that draws samples"):
        Order.of(f"{rows}#heavy")
