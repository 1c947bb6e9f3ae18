"""Weights of a mix that callbacks of trainers set by the losses of its sources."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch
import torch.distributed
import torch.utils.data
from conftest import ROOT
from mix_help import mix_of, pack
from skips_help import on_ranks

from shardtool import Batch, ConfigError, Dataset, Loader
from shardtool.torch import Prefetcher
from shardtool.torch.losses import Losses

#: Each step: its sources and the numbers of its samples.
Steps = List[Tuple[List[str], List[int]]]
STEPS, BATCH = 12, 10


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("mixes")
    for name in ("code", "math", "web"):
        pack(out, name, 90)
    return mix_of(out, {"code": 1, "math": 1, "web": 2})


def inputs(batch: Batch) -> Dict[str, Any]:
    return {"x": torch.tensor(batch.numbers, dtype=torch.float32), "sources": batch.sources, "numbers": batch.numbers}


def losses_of(x: torch.Tensor, sources: List[str]) -> torch.Tensor:
    """A loss for each sample that follows from the sample alone."""
    return x / 40 + torch.tensor([float(len(source) % 3) for source in sources])


def on_loss(step: int, losses: Dict[str, float]) -> Optional[Dict[str, float]]:
    """Every third step: as the losses, and a little for sources that had no sample."""
    return None if step % 3 else {name: losses.get(name, 0.2) + 0.1 for name in ("code", "math", "web")}


def plain(mix: Any, add: int = 1, steps: int = STEPS) -> Steps:
    """A plain loop that sets weights after each ``add`` batches."""
    out: Steps = []
    with Loader(mix, BATCH, shuffle=True, seed=1, fields=["txt"], map_batch=inputs) as loader:
        sums: Dict[str, List[float]] = {}
        for number, batch in enumerate(loader, 1):
            out.append((batch["sources"], batch["numbers"]))
            for source, loss in zip(batch["sources"], losses_of(batch["x"], batch["sources"]).tolist()):
                sums.setdefault(source, []).append(loss)
            if number % add == 0:
                weights = on_loss(number // add, {name: sum(of) / len(of) for name, of in sums.items()})
                sums = {}
                if weights is not None:
                    loader.set_weights(weights)
            if number == steps:
                return out
    raise AssertionError("the mix is too short")


def batches_of(mix: Any, kind: str) -> Any:
    loader = Loader(mix, BATCH, shuffle=True, seed=1, fields=["txt"], map_batch=inputs)
    return loader if kind == "loader" else Prefetcher(loader, "cpu", ahead=3)


def lightning_job(mix: Any, kind: str, path: Path, stop: int, order: str, add: int, resume: "str | None" = None) -> Steps:
    """A job of Lightning that saves after each second step, and ends at a batch."""
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    from shardtool.torch.lightning import KeepPlace, SteerByLoss

    batches, seen = batches_of(mix, kind), []
    steer, keep = SteerByLoss(batches, on_loss), KeepPlace(batches)

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch: Any, _: int) -> Any:
            if len(seen) == stop:
                raise InterruptedError
            seen.append((batch["sources"], batch["numbers"]))
            losses = losses_of(batch["x"], batch["sources"]) + 0 * self.weight
            steer.add(batch["sources"], losses)
            return losses.mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    class Save(lightning.Callback):  # type: ignore[misc,name-defined,unused-ignore]
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if len(seen) % (2 * add) == 0:
                trainer.save_checkpoint(path)

    callbacks = {"alone": [steer], "before": [steer, keep], "after": [keep, steer]}[order]
    trainer = lightning.Trainer(
        max_steps=STEPS // add, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[*callbacks, Save()], accumulate_grad_batches=add,
    )  # fmt: skip
    with batches:
        with contextlib.suppress(InterruptedError):
            trainer.fit(Module(), train_dataloaders=batches, ckpt_path=resume)
        batches.close()
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "order", "add"),
    [("loader", "alone", 1), ("loader", "after", 1), ("loader", "before", 2), ("prefetcher", "alone", 1), ("prefetcher", "after", 2)],
)
def test_lightning(mix: Any, tmp_path: Path, kind: str, order: str, add: int) -> None:
    """The samples of a plain loop that sets the same weights, also in a job that resumes."""
    want = plain(mix, add)
    assert want != plain(mix, 100)  # weights were set
    path = tmp_path / "checkpoint.ckpt"
    assert lightning_job(mix, kind, path, 10**9, order, add) == want
    path.unlink()
    for stop in (7, 9, 11):
        seen = lightning_job(mix, kind, path, stop, order, add)
        assert seen == want[:stop]
        done = stop // (2 * add) * 2 * add
        assert lightning_job(mix, kind, path, 10**9, order, add, str(path)) == want[done:]


def trainer_job(mix: Any, kind: str, path: Path, stop: int, add: int, resume: "str | None" = None) -> Steps:
    """A job of the Trainer that saves after each second step, and ends at a batch."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from shardtool.torch.trainer import SteerByLoss

    batches, seen = batches_of(mix, kind), []
    steer = SteerByLoss(batches, on_loss)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: Any, sources: Any, numbers: Any) -> Any:
            if len(seen) == stop:
                raise InterruptedError
            seen.append((sources, numbers))
            losses = losses_of(x, sources) + 0 * self.weight
            steer.add(sources, losses)
            return {"loss": losses.mean()}

    class Trainer(transformers.Trainer):  # type: ignore[misc,name-defined,unused-ignore]
        def get_train_dataloader(self) -> Any:
            return batches

    class KeepPlace(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            Path(args.output_dir, f"checkpoint-{state.global_step}", "shardtool.json").write_text(json.dumps(batches.state_dict()))

    args = transformers.TrainingArguments(
        str(path), max_steps=STEPS // add, per_device_train_batch_size=BATCH, save_steps=2, report_to=[], disable_tqdm=True, use_cpu=True,
        ignore_data_skip=True, gradient_accumulation_steps=add,
    )  # fmt: skip
    with batches:
        if resume:
            batches.load_state_dict(json.loads(Path(resume, "shardtool.json").read_text()))
        with contextlib.suppress(InterruptedError):
            Trainer(model=Model(), args=args, train_dataset=batches, callbacks=[steer, KeepPlace()]).train(resume_from_checkpoint=resume)
        batches.close()
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "add"), [("loader", 1), ("loader", 2), ("prefetcher", 1), ("prefetcher", 2)])
def test_trainer(mix: Any, tmp_path: Path, kind: str, add: int) -> None:
    """The samples of a plain loop that sets the same weights, also in a job that resumes."""
    want = plain(mix, add)
    assert trainer_job(mix, kind, tmp_path / "whole", 10**9, add) == want
    for stop in (7, 9, 11):
        path = tmp_path / str(stop)
        assert trainer_job(mix, kind, path, stop, add) == want[:stop]
        done = stop // (2 * add) * 2
        assert trainer_job(mix, kind, path, 10**9, add, str(path / f"checkpoint-{done}")) == want[done * add :]


def page(framework: str) -> Dict[str, Any]:
    """What the program of docs/mixing.md for a framework defines."""
    match = re.search(rf"<!-- tested: {framework} -->\n```python\n(.*?)```", (ROOT / "docs" / "mixing.md").read_text("utf-8"), re.S)
    assert match
    scope: Dict[str, Any] = {"torch": torch}
    exec(match[1], scope)
    return scope


class Noting(torch.nn.Module):
    """Has a loss for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, y: List[str]) -> torch.Tensor:
        return losses_of(x, y) + 0 * self.weight


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("framework", ["Lightning", "Trainer"])
def test_page(mix: Any, tmp_path: Path, framework: str) -> None:
    """The programs of docs/mixing.md, unchanged."""
    seen: Steps = []

    def noted(batch: Batch) -> Dict[str, Any]:
        return {**inputs(batch), "y": batch.sources}

    loader = Loader(mix, BATCH, shuffle=True, seed=1, fields=["txt"], map_batch=noted)
    model, forward = Noting(), Noting.forward
    model.forward = lambda x, y: (seen.append((y, [int(n) for n in x])), forward(model, x, y))[1]  # type: ignore[method-assign]
    with loader:
        if framework == "Lightning":
            lightning = pytest.importorskip("lightning", reason="lightning is not installed")
            trainer = lightning.Trainer(
                max_steps=STEPS, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
            )
            trainer.fit(page(framework)["Module"](model, loader, on_loss), train_dataloaders=loader)
        else:
            transformers = pytest.importorskip("transformers", reason="transformers is not installed")
            args = transformers.TrainingArguments(
                str(tmp_path), max_steps=STEPS, per_device_train_batch_size=BATCH, save_strategy="no", report_to=[], disable_tqdm=True,
                use_cpu=True, remove_unused_columns=False,
            )  # fmt: skip
            page(framework)["MixTrainer"](loader, on_loss, model=model, args=args).train()
    assert seen == plain(mix)


def ranks(rank: int, size: int, mix: Any, lacking: bool) -> Any:
    """Sets weights by the losses of all ranks."""
    said: List[Any] = []

    def note(step: int, losses: Dict[str, float]) -> Optional[Dict[str, float]]:
        said.append([step, losses])
        return on_loss(step, losses)

    with Loader(mix, BATCH, shuffle=True, seed=1, fields=["txt"], map_batch=inputs) as loader:
        steer = Losses(loader, note)
        for number, batch in enumerate(loader, 1):
            if not (lacking and rank):
                steer.add(batch["sources"], losses_of(batch["x"], batch["sources"]))
            steer._after(number)
            if number == 6:
                return said, loader.state_dict()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
@pytest.mark.parametrize("lacking", [False, True])
def test_ranks(mix: Any, tmp_path: Path, lacking: bool) -> None:
    """All ranks get the means over all of them, and set the same weights; also where a rank has
    none."""
    first, *others = on_ranks(3, tmp_path, ranks, mix, lacking)
    assert all(other == first for other in others)
    assert [step for step, _ in first[0]] == [1, 2, 3, 4, 5, 6] and '"steered":[' in first[1]["checkpoint"]
    if not lacking:
        want = plain_means(mix, 3 * BATCH)
        assert [{name: pytest.approx(loss) for name, loss in losses.items()} for losses in want] == [losses for _, losses in first[0]]


def plain_means(mix: Any, size: int) -> Any:
    """The means of one rank with larger batches, by the numbers of the sources."""
    want = []
    with Loader(mix, size, shuffle=True, seed=1, fields=["txt"], map_batch=inputs) as loader:
        steer = Losses(loader, lambda step, losses: want.append(losses) or on_loss(step, losses))
        for number, batch in enumerate(loader, 1):
            steer.add(
                torch.tensor([sorted(["code", "math", "web"]).index(name) for name in batch["sources"]]),
                losses_of(batch["x"], batch["sources"]),
            )
            steer._after(number)
            if number == 6:
                return want


def test_refused(mix: Any) -> None:
    with Loader(mix, BATCH, shuffle=True, seed=1, fields=["txt"]) as loader:
        steer = Losses(loader, lambda step, losses: {"cod": 1})
        with pytest.raises(ConfigError, match="add: 2 sources and 3 losses: give one loss for each sample"):
            steer.add(["web", "web"], torch.zeros(3))
        batch = next(iter(loader))
        steer.add(batch.sources, torch.zeros(BATCH))
        with pytest.raises(ConfigError, match="there is no source 'cod': the mix has code, math, web"):
            steer._after(1)
    with pytest.raises(ConfigError, match="workers of a DataLoader have read ahead"):
        Losses(torch.utils.data.DataLoader(Dataset(mix, BATCH), batch_size=None), on_loss)  # type: ignore[arg-type]
    with Prefetcher(torch.utils.data.DataLoader(Dataset(mix, BATCH), batch_size=None), "cpu") as batches, pytest.raises(ConfigError):
        Losses(batches, on_loss)
