"""Mixes through a Dataset: the batches of a Loader, with any number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from mix_help import SIZES, mix_of, pack, yaml_of
from torch.utils.data import DataLoader

import shardtool
from shardtool import Batch, CheckpointError, Dataset, Loader

GIVEN: Dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 7, "fields": {"txt": "txt", "lang": "bytes?"}}

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixes")
    for name, samples in SIZES.items():
        pack(out, name, samples)
    return out


def look(batch: Batch) -> Dict[str, Any]:
    """What a worker knows of a batch."""
    return {"n": torch.tensor(batch.numbers), "source": batch.sources, "epoch": batch.epochs, "seed": batch.seeds, "txt": batch["txt"]}


def plain(batches: Any) -> List[Any]:
    return [{**batch, "n": batch["n"].tolist()} for batch in batches]


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_the_same_batches(base: Path, workers: int, method: Any) -> None:
    """A worker's ``map`` receives the sources, epochs and seeds of the samples."""
    mix = mix_of(base, {"code": 1, "math": 2, "web": 3}, epoch=200)
    with Loader(mix, map_batch=look, **GIVEN) as loader:
        want = [plain(loader) for _ in range(2)]
    dataset = Dataset(mix if method != "spawn" else yaml_of(mix, base / "mix.yaml"), map_batch=look, **GIVEN)
    dl = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    assert len(dataset) == len(want[0])
    assert [plain(dl) for _ in range(2)] == want
    counted = dataset.stats().sources
    assert {name: n.samples for name, n in counted.items()} == {
        name: sum(b["source"].count(name) for epoch in want for b in epoch) for name in ("code", "math", "web")
    }
    dataset.close()


def test_states(base: Path) -> None:
    """The state of any batch continues, and with change_mix=True with another mix."""
    mix, other = mix_of(base, {"code": 1, "web": 3}), mix_of(base, {"code": 1, "math": 1, "web": 3})
    dataset = Dataset(mix, **GIVEN)
    batches = list(DataLoader(dataset, batch_size=None, num_workers=2))
    state = json.loads(json.dumps(batches[4].state_dict()))
    again = Dataset(mix, **GIVEN)
    again.load_state_dict(state)
    assert [b["txt"] for b in DataLoader(again, batch_size=None, num_workers=3)] == [b["txt"] for b in batches[5:]]
    refused = Dataset(other, **GIVEN)
    refused.load_state_dict(state)
    with pytest.raises(CheckpointError, match="change_mix=True"):
        next(iter(DataLoader(refused, batch_size=None)))
    changed = Dataset(shardtool.Mix(other, change_mix=True), **GIVEN)
    changed.load_state_dict(state)
    first = next(iter(DataLoader(changed, batch_size=None, num_workers=1)))
    assert first.position == 80
    with Loader(shardtool.Mix(other, change_mix=True), **GIVEN) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader))["txt"] == first["txt"]


def test_stateful(base: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    mix = mix_of(base, {"code": 1, "web": 3}, epoch=300)

    def loop(**more: Any) -> Any:
        return stateful.StatefulDataLoader(
            Dataset(shardtool.Mix(mix, skip_steps=(2, 3)), map_batch=look, **GIVEN), batch_size=None, num_workers=2, **more
        )

    dl, got, states = loop(), [], []
    for batch in dl:
        got.append(batch)
        states.append(json.loads(json.dumps(dl.state_dict())))
    assert len(got) == 17
    for at in (0, 6, 15):
        again = loop()
        again.load_state_dict(states[at])
        assert plain(again) == plain(got[at + 1 :])
