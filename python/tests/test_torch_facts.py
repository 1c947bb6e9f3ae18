"""Batches of a Prefetcher and of a DataLoader have what those of a Loader have."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
from torch.utils.data import DataLoader

import shardtool
from shardtool import ClosedError, ConfigError, Loader
from shardtool.torch import Prefetcher

FIELDS = {"x.npy": "npy", "bin": "bytes", "txt": "txt"}
OPTIONS: Dict[str, Any] = {"shuffle": True, "seed": 7, "epochs": 1, "fields": FIELDS}


def facts(batch: Any) -> List[Any]:
    return [batch["__key__"], batch.sample_keys, batch.numbers, batch.seeds, batch.epochs, batch.sources, batch.position, batch.size]


@pytest.mark.parametrize("how", ["prefetcher", "main", "alone", "worker", "pinned", "map"])
def test_facts(small: Path, how: str) -> None:
    with Loader(small, 100, **OPTIONS) as loader:
        want = [[*facts(b), list(map(bytes, b.payloads("bin")))] for b in loader]  # type: ignore[arg-type]
    options = {**OPTIONS, "map_batch": dict} if how == "map" else OPTIONS
    if how == "prefetcher":
        batches: Any = Prefetcher(Loader(small, 100, **options), "cpu")
    else:
        more: Dict[str, Any] = {"worker": {"num_workers": 2, "timeout": 100}, "alone": {"num_workers": 2}}.get(how, {})
        batches = DataLoader(shardtool.Dataset(small, 100, **options), batch_size=None, **more)
    got = []
    for batch in batches:
        assert list(batch) == list(FIELDS) and "__key__" not in batch
        with pytest.raises(KeyError):
            batch["nothing"]
        if how == "pinned":  # as torch and Accelerate move batches
            batch = pickle.loads(pickle.dumps(type(batch)({key: value for key, value in batch.items()})))
        got.append([*facts(batch), list(map(bytes, batch.payloads("bin")))])
        if how in ("worker", "pinned"):
            with pytest.raises(ClosedError, match=r"'x\.npy' as 'bytes'"):
                batch.payloads("x.npy")
        else:
            assert len(batch.payloads("x.npy")) == batch.size
    assert got == want


def trainer(step: int, ignore: bool) -> Any:
    """What a Trainer of transformers shows of itself."""
    space: Dict[str, Any] = {"__name__": "transformers.trainer"}
    exec("class Trainer:\n    def _inner_training_loop(self, batches):\n        return [b['bin'] for b in batches]\n", space)
    made = space["Trainer"]()
    made.state, made.args = SimpleNamespace(global_step=step, epoch=step / 10), SimpleNamespace(ignore_data_skip=ignore)
    return made


@pytest.mark.parametrize("ahead", [False, True])
def test_trainer_that_skips(small: Path, ahead: bool) -> None:
    """A Trainer that resumes needs a loader with a state, and must not skip batches itself."""
    with Loader(small, 100, **OPTIONS) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for step, told, ignore, why in (
        (0, False, False, ""), (4, False, False, "was given no state"), (4, False, True, "was given no state"),
        (10, True, False, "set ignore_data_skip=True"), (4, True, False, "set ignore_data_skip=True"), (4, True, True, ""),
    ):  # fmt: skip
        with Loader(small, 100, **OPTIONS) as loader:
            if told:
                loader.load_state_dict(state)
            batches: Any = Prefetcher(loader, "cpu") if ahead else loader
            if why:
                with pytest.raises(ConfigError, match=why):
                    trainer(step, ignore)._inner_training_loop(batches)
            else:
                assert len(trainer(step, ignore)._inner_training_loop(batches)) == (9 if told else 10)
            if ahead:
                batches.close()
