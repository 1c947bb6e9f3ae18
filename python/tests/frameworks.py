"""The snippets of docs/pytorch.md, unchanged: stopped in the middle of an epoch and resumed, they
deliver every batch once and in order.

`make test-frameworks` installs what they need and runs them.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pathlib
import re
from typing import Any, Dict, List

import pytest
import torch
from conftest import ROOT, in_groups
from torch_help import expected, numbers

import shardtool
import shardtool.torch
from shardtool import Loader
from shardtool.torch import Prefetcher

pytestmark = pytest.mark.filterwarnings("ignore")
OPTIONS: Dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 3, "tail": "drop", "fields": ["txt"], "map_batch": numbers}


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


def arguments(tmp_path: pathlib.Path, **options: Any) -> Any:
    """TrainingArguments of three epochs on the CPU."""
    import transformers

    accepted = inspect.signature(transformers.TrainingArguments).parameters
    cpu = {"use_cpu": True} if "use_cpu" in accepted else {"no_cuda": True}  # transformers before 4.34
    return transformers.TrainingArguments(
        str(tmp_path),
        num_train_epochs=3,
        per_device_train_batch_size=100,
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
        **cpu,
        **options,
    )


def batches_of(small: pathlib.Path) -> Prefetcher:
    return Prefetcher(Loader(small, **in_groups(**OPTIONS)), "cpu")


def want(small: pathlib.Path) -> List[List[int]]:
    return [b for e in range(3) for b in expected(small, e, tail="drop")]


def test_transformers(small: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import transformers

    train = snippet("transformers", transformers=transformers)["train"]

    first, second = Model(stop=17), Model()
    with batches_of(small) as batches, pytest.raises(Stop):
        train(first, arguments(tmp_path), batches)
    with batches_of(small) as batches:
        train(second, arguments(tmp_path), batches, str(tmp_path / "checkpoint-16"))
    assert first.seen[:16] + second.seen == want(small)


def test_accelerate(small: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import accelerate

    train = snippet("accelerate", accelerate=accelerate)["train"]

    def run(model: Model, resume: bool) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train(model, optimizer, lambda m, b: m(**b)["loss"], small, tmp_path, 3, save_every=4, resume=resume, **in_groups(**OPTIONS))

    first, second = Model(stop=17), Model()
    with pytest.raises(Stop):
        run(first, False)
    run(second, True)
    assert first.seen[:16] + second.seen == want(small)


def sharded_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 refuses a data class of torch 1.13 that Lightning imports, for a default that has
    no hash: it gets one."""
    process = dataclasses._process_class  # type: ignore[attr-defined]

    def hashed(cls: Any, init: Any, repr: Any, eq: Any, order: Any, _: Any, *rest: Any) -> Any:
        return process(cls, init, repr, eq, order, cls.__name__ == "TensorProperties", *rest)

    with monkeypatch.context() as patched:
        patched.setattr(dataclasses, "_process_class", hashed)
        importlib.import_module("torch.distributed._shard.sharded_tensor")


class Lightning:
    """A job of Lightning: its module, and trainers that save every four steps."""

    def __init__(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sharded_tensors(monkeypatch)
        import lightning
        import lightning.pytorch.callbacks

        class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
            def __init__(self, stop: int = 10**9) -> None:
                super().__init__()
                self.model = Model(stop)

            def training_step(self, batch: Any, index: int) -> Any:
                return self.model(**batch)["loss"]

            def validation_step(self, batch: Any, index: int) -> None:
                pass

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        self.module, self._lightning, self._folder = Module, lightning, tmp_path

    def trainer(self, **options: Any) -> Any:
        save = self._lightning.pytorch.callbacks.ModelCheckpoint(self._folder, every_n_train_steps=4, save_top_k=-1, filename="{step}")
        options = {"max_epochs": 3, "num_sanity_val_steps": 0, **options}
        return self._lightning.Trainer(
            accelerator="cpu", logger=False, callbacks=[save], enable_progress_bar=False, enable_model_summary=False, **options
        )


def test_lightning(small: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, fit = Lightning(tmp_path, monkeypatch), snippet("lightning")["fit"]
    first, second = job.module(stop=17), job.module()
    with pytest.raises(Stop):
        fit(job.trainer(), first, Loader(small, **in_groups(**OPTIONS)))
    fit(job.trainer(), second, Loader(small, **in_groups(**OPTIONS)), str(tmp_path / "step=16.ckpt"))
    assert first.model.seen[:16] + second.model.seen == want(small)


def test_lightning_place(small: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With KeepPlace, from a checkpoint that is made within a step."""
    job = Lightning(tmp_path, monkeypatch)
    import lightning

    fit = snippet("lightning-place", lightning=lightning)["fit_exactly"]

    class Module(job.module):  # type: ignore[misc,name-defined,unused-ignore]
        def on_before_backward(self, _: Any) -> None:
            if len(self.model.seen) in (1, 10, 17):
                self.trainer.save_checkpoint(tmp_path / f"within-{len(self.model.seen)}.ckpt")

    options = {"max_epochs": 3, "num_sanity_val_steps": 0, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    with batches_of(small) as batches, pytest.raises(Stop):
        fit(Module(17), batches, **options)
    for at in (1, 10, 17):
        second = job.module()
        with batches_of(small) as batches:
            fit(second, batches, str(tmp_path / f"within-{at}.ckpt"), **options)
        assert second.model.seen == want(small)[at - 1 :]


def plain(small: pathlib.Path, workers: int) -> "tuple[shardtool.Dataset, Any]":
    ds = shardtool.Dataset(small, **in_groups(**OPTIONS))
    return ds, torch.utils.data.DataLoader(ds, batch_size=None, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_without_place(small: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """A plain DataLoader, whose place Lightning does not keep: it is refused at the first step of a
    resumed job, and only there."""
    job = Lightning(tmp_path, monkeypatch)
    first, second, third = job.module(stop=17), job.module(), job.module()
    with pytest.raises(Stop):
        job.trainer().fit(first, plain(small, workers)[1])
    assert first.model.seen == want(small)[:17]
    checkpoint = str(tmp_path / "step=16.ckpt")
    with pytest.raises(shardtool.ConfigError, match=r"Lightning resumes at step 16, .* was given no place: .* dataset.set_epoch\(1\)"):
        job.trainer().fit(second, plain(small, workers)[1], ckpt_path=checkpoint)
    assert second.model.seen == []
    # With the place, and with a validation loader, which begins again each time.
    ds, loader = plain(small, workers)
    with Loader(small, **in_groups(**OPTIONS)) as other:
        for _ in zip(range(6), (batch for _ in range(3) for batch in other)):
            state = other.state_dict()
        ds.load_state_dict(state)
    job.trainer(max_steps=18).fit(third, loader, plain(small, workers)[1], ckpt_path=checkpoint)
    assert third.model.seen == want(small)[6:8]


def test_lightning_batches(small: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning moves a Batch to its device and hands over one that knows its place."""
    job = Lightning(tmp_path, monkeypatch)
    seen: List[Any] = []

    class Module(job.module):  # type: ignore[misc,name-defined,unused-ignore]
        def training_step(self, batch: Any, index: int) -> Any:
            seen.append((type(batch), batch.epoch, batch.position, batch.numbers, batch["__key__"], batch.state_dict()))
            return self.model(batch["cls"])["loss"]

    options = {**OPTIONS, "fields": {"txt": "txt", "cls": "int"}, "map_batch": None}
    with Loader(small, **in_groups(**options)) as loader:
        job.trainer(max_epochs=1).fit(Module(), loader)
    with Loader(small, **in_groups(**options)) as loader:
        assert seen == [(shardtool.Batch, b.epoch, b.position, b.numbers, b["__key__"], loader.state_dict()) for b in loader]


def test_accelerate_batches(small: pathlib.Path) -> None:
    """Accelerate moves a Batch to a device, slices it and puts it together again."""
    import accelerate.utils

    with Loader(small, 100, fields={"txt": "txt", "cls": "int"}) as loader:
        batch = next(iter(loader))
        moved = accelerate.utils.send_to_device(batch, torch.device("cpu"))
        assert type(moved) is shardtool.Batch and moved is not batch and moved.state_dict() == loader.state_dict()
        assert moved.numbers == batch.numbers and torch.equal(moved["cls"], batch["cls"]) and moved["txt"] == batch["txt"]
        assert accelerate.utils.find_batch_size({"cls": moved["cls"]}) == 100


@pytest.mark.parametrize("how", ["no state", "skipped twice", "another epoch"])
def test_transformers_without_place(small: pathlib.Path, tmp_path: pathlib.Path, how: str) -> None:
    """Parts of the recipe alone are refused at the first step of a resumed job."""
    import transformers

    scope = snippet("transformers", transformers=transformers)
    first, second = Model(stop=17), Model()
    with batches_of(small) as batches, pytest.raises(Stop):
        scope["train"](first, arguments(tmp_path), batches)
    checkpoint = tmp_path / "checkpoint-16"

    class Trainer(transformers.Trainer):  # type: ignore[misc,name-defined,unused-ignore]
        def get_train_dataloader(self) -> Any:
            return self.train_dataset

    loader: Any = Prefetcher(Loader(small, **in_groups(**OPTIONS)), "cpu")
    expects = "the Trainer resumes at step 16, in epoch 1.60, and the loader was given no state"
    if how == "skipped twice":
        loader = plain(small, 0)[1]
        loader.dataset.load_state_dict(json.loads((checkpoint / "shardtool.json").read_text()))
        expects = "is already there: set ignore_data_skip=True"
    if how == "another epoch":
        loader = plain(small, 0)[1]
        expects = "the loader was given no state"
    trainer = Trainer(model=second, args=arguments(tmp_path, ignore_data_skip=how == "no state"), train_dataset=loader)
    with pytest.raises(shardtool.ConfigError, match=expects):
        trainer.train(resume_from_checkpoint=str(checkpoint))
    getattr(loader, "dataset", loader).close()
    assert second.seen == []


def test_lightning_stateful(small: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A StatefulDataLoader with workers, whose place Lightning keeps."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    job = Lightning(tmp_path, monkeypatch)

    def loader() -> Any:
        return stateful.StatefulDataLoader(shardtool.Dataset(small, **in_groups(**OPTIONS)), batch_size=None, num_workers=2)

    first, second = job.module(stop=17), job.module()
    with pytest.raises(Stop):
        job.trainer().fit(first, loader())
    job.trainer().fit(second, loader(), ckpt_path=str(tmp_path / "step=16.ckpt"))
    assert first.model.seen[:16] + second.model.seen == want(small)
