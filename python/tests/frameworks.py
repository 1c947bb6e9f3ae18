"""The snippets of docs/pytorch.md, as they stand there: stopped in the middle of an epoch, resumed, and every batch came once and in order.

`make test-frameworks` installs what they need and runs them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pathlib
import re
from typing import Any, Dict, List

import pytest
import torch
from conftest import ROOT
from torch_help import expected, numbers

import shardtool
import shardtool.torch
from shardtool import Loader
from shardtool.torch import Prefetcher

pytestmark = pytest.mark.filterwarnings("ignore")
OPTIONS: Dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 3, "tail": "drop", "fields": ["txt"], "map": numbers, "copy": False}


class Stop(Exception):
    """The end of a job that did not expect it."""


class Model(torch.nn.Module):
    """Sees batches, and stops at one."""

    def __init__(self, stop: int = 10**9) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: List[List[int]] = []
        self.stop = stop

    def forward(self, n: torch.Tensor) -> Dict[str, torch.Tensor]:
        if len(self.seen) == self.stop:
            raise Stop
        self.seen.append(n.tolist())
        return {"loss": (self.weight * n.float().mean()).sum() * 1e-9}


def snippet(name: str, **names: Any) -> Dict[str, Any]:
    """What a block of the docs defines."""
    text = (ROOT / "docs" / "pytorch.md").read_text()
    match = re.search(rf"<!-- tested: {name} -->\n```python\n(.*?)```", text, re.S)
    assert match
    scope = {"shardtool": shardtool, "torch": torch, "json": json, "pathlib": pathlib, **names}
    exec(match[1], scope)
    return scope


def batches_of(small: pathlib.Path) -> Prefetcher:
    return Prefetcher(Loader(small, **OPTIONS), "cpu")


def want(small: pathlib.Path) -> List[List[int]]:
    return [b for e in range(3) for b in expected(small, e, tail="drop")]


def test_transformers(small: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import transformers

    train = snippet("transformers", transformers=transformers)["train"]

    def args() -> Any:
        return transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=3, per_device_train_batch_size=100, save_steps=4, report_to=[], disable_tqdm=True, no_cuda=True
        )

    first, second = Model(stop=17), Model()
    with batches_of(small) as batches, pytest.raises(Stop):
        train(first, args(), batches)
    with batches_of(small) as batches:
        train(second, args(), batches, str(tmp_path / "checkpoint-16"))
    assert first.seen[:16] + second.seen == want(small)


def test_accelerate(small: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import accelerate

    train = snippet("accelerate", accelerate=accelerate)["train"]

    def run(model: Model, resume: bool) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train(model, optimizer, lambda m, b: m(**b)["loss"], small, tmp_path, 3, save_every=4, resume=resume, **OPTIONS)

    first, second = Model(stop=17), Model()
    with pytest.raises(Stop):
        run(first, False)
    run(second, True)
    assert first.seen[:16] + second.seen == want(small)


def sharded_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 refuses a data class of torch 1.13 that Lightning imports, for a default that has no hash: it gets one."""
    process = dataclasses._process_class  # type: ignore[attr-defined]

    def hashed(cls: Any, init: Any, repr: Any, eq: Any, order: Any, _: Any, *rest: Any) -> Any:
        return process(cls, init, repr, eq, order, cls.__name__ == "TensorProperties", *rest)

    with monkeypatch.context() as patched:
        patched.setattr(dataclasses, "_process_class", hashed)
        importlib.import_module("torch.distributed._shard.sharded_tensor")


def test_lightning(small: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sharded_tensors(monkeypatch)
    import lightning
    import lightning.pytorch.callbacks

    fit = snippet("lightning")["fit"]

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self, stop: int = 10**9) -> None:
            super().__init__()
            self.model = Model(stop)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def trainer() -> Any:
        save = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=4, save_top_k=-1, filename="{step}")
        return lightning.Trainer(
            accelerator="cpu", max_epochs=3, logger=False, callbacks=[save], enable_progress_bar=False, enable_model_summary=False
        )

    first, second = Module(stop=17), Module()
    with pytest.raises(Stop):
        fit(trainer(), first, Loader(small, **OPTIONS))
    fit(trainer(), second, Loader(small, **OPTIONS), str(tmp_path / "step=16.ckpt"))
    assert first.model.seen[:16] + second.model.seen == want(small)
