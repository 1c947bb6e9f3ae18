"""The contract of all training loops: a job that is resumed from a checkpoint sees what an
undisturbed job sees, batch by batch.

Each framework with each loader: checkpoints before the first batch, in the middle of an epoch, at
its last batch, at its end, and twice in a row. `make test-python` runs those of the system's
PyTorch, `make test-compat` those of current releases.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
import torch
from conftest import in_groups
from torch_help import expected, numbers

import shardtool
from shardtool.torch import Prefetcher, state_of

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
#: Four batches in an epoch, and three epochs.
OPTIONS: Dict[str, Any] = {"batch_size": 250, "shuffle": True, "seed": 3, "tail": "drop", "fields": ["txt"], "map": numbers}
EPOCH, EPOCHS = 4, 3
#: The steps after which jobs are resumed: before the first batch, in the middle of an epoch, and
#: from all that is saved at its last batch, at its end and as the next begins.
PLACES = (0, 2, 4, 5, 8)
LOADERS = ["Loader", "Prefetcher", "DataLoader, 0 workers", "DataLoader, 2 workers", "StatefulDataLoader, 0 workers",
           "StatefulDataLoader, 2 workers", "Prefetcher of a DataLoader, 2 workers"]  # fmt: skip
#: What has state_dict and load_state_dict itself.
STATEFUL = [kind for kind in LOADERS if not kind.startswith("DataLoader")]


def make(kind: str, url: Path, **options: Any) -> Any:
    """A loader of a kind."""
    name, workers = kind.partition(",")[0], int(kind[-9]) if "," in kind else 0
    options = in_groups(**{**OPTIONS, **options})
    if name == "Loader":
        return shardtool.Loader(url, **options)
    if name == "Prefetcher":
        return Prefetcher(shardtool.Loader(url, **options), "cpu")
    dataset = shardtool.Dataset(url, **options)
    if name == "StatefulDataLoader":
        torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
        return torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)
    plain = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    return Prefetcher(plain, "cpu") if name.startswith("Prefetcher") else plain


def close(loader: Any) -> None:
    getattr(getattr(loader, "dataset", loader), "close", int)()


def want(url: Path) -> List[List[int]]:
    return [b for e in range(EPOCHS) for b in expected(url, e, tail="drop", batch_size=OPTIONS["batch_size"])]


def place(done: int, url: Path, seen: List[List[int]]) -> None:
    """Checks what a resumed job has seen, that had done so many steps."""
    assert [want(url).index(batch) for batch in seen] == list(range(done, EPOCH * EPOCHS))


class Job:
    """A loop of plain PyTorch."""

    def __init__(self, kind: str, url: Path, **options: Any) -> None:
        self.loader = make(kind, url, **options)
        self.plain = kind.startswith("DataLoader")
        self.seen: List[List[int]] = []
        self.state: Any = None  # of the last batch

    def save(self) -> Any:
        if not self.plain:
            return self.loader.state_dict()
        return self.loader.dataset.state_dict() if self.state is None else self.state

    def load(self, state: Any) -> None:
        (self.loader.dataset if self.plain else self.loader).load_state_dict(state)
        self.state = state

    def run(self, done: int, saved: Callable[[int], None], most: int = EPOCH * EPOCHS) -> None:
        """Trains from a step on, and says when it can save."""
        saved(done)
        while done < EPOCH * EPOCHS:
            for batch in self.loader:
                self.seen.append(batch["n"].tolist())
                self.state = state_of(batch) if self.plain else None
                done += 1
                saved(done)
                if len(self.seen) == most:
                    return
            saved(done)


def resumed(kind: str, url: Path, **options: Any) -> None:
    """Runs a job that saves wherever it can, and resumes it from each checkpoint, also from those
    of resumed jobs."""
    job, states = Job(kind, url, **options), []  # type: Tuple[Job, List[Any]]
    job.run(0, lambda done: states.append((done, pickle.dumps(job.save()))))
    whole = job.seen
    assert len(whole) == EPOCH * EPOCHS
    for done, state in states:
        if done not in PLACES:
            continue
        again, more = Job(kind, url, **options), []  # type: Tuple[Job, List[Any]]
        again.load(pickle.loads(state))
        again.run(done, lambda n, job=again, more=more: more.append((n, pickle.dumps(job.save()))))  # type: ignore[misc]
        assert again.seen == whole[done:], done
        close(again.loader)
        twice = Job(kind, url, **options)
        twice.load(pickle.loads(more[0][1]))  # at once
        twice.run(done, lambda _: None, 2)
        assert twice.seen == whole[done:][:2], done
        close(twice.loader)
    close(job.loader)


@pytest.mark.parametrize("kind", LOADERS)
def test_plain(small: Path, kind: str) -> None:
    resumed(kind, small)


def rank_of(rank: int, ranks: int, kind: str, url: Path, folder: Path) -> None:
    """A rank of a job, which runs as a process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))

    class Trained(Job):
        def save(self) -> Any:
            states = [super().save()]
            torch.distributed.broadcast_object_list(states, 0)  # that of any rank is that of all
            model(torch.ones(1)).sum().backward()
            return states[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "Job", Trained)
        resumed(kind, url, batch_size=125)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["Loader", "Prefetcher", "DataLoader, 0 workers"])
def test_ddp(small: Path, tmp_path: Path, kind: str) -> None:
    """Two ranks of DistributedDataParallel, each with its part of a batch."""
    make(kind, small)  # or skips
    torch.multiprocessing.spawn(rank_of, (2, kind, small, tmp_path), 2)


@pytest.mark.parametrize("kind", STATEFUL)
def test_dcp(small: Path, tmp_path: Path, kind: str) -> None:
    """torch.distributed.checkpoint keeps whatever has a state_dict."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    if not hasattr(dcp, "save"):
        pytest.skip("this PyTorch has no torch.distributed.checkpoint.save")

    job, steps = Job(kind, small), []  # type: Tuple[Job, List[int]]

    def save(done: int) -> None:
        dcp.save({"loader": job.loader, "weight": torch.ones(1)}, checkpoint_id=str(tmp_path / f"{len(steps)}"))
        steps.append(done)

    job.run(0, save)
    for i, done in ((i, done) for i, done in enumerate(steps) if done in PLACES):
        again = Job(kind, small)
        dcp.load({"loader": again.loader, "weight": torch.zeros(1)}, checkpoint_id=str(tmp_path / f"{i}"))
        again.run(done, lambda _: None)
        place(done, small, again.seen)
        close(again.loader)
    close(job.loader)


@pytest.mark.parametrize("kind", STATEFUL)
def test_accelerate(small: Path, tmp_path: Path, kind: str) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

    def start() -> Tuple[Any, Job]:
        accelerator, job = accelerate.Accelerator(cpu=True), Job(kind, small)
        accelerator.register_for_checkpointing(job.loader)
        return accelerator, job

    accelerator, job = start()
    steps: List[int] = []

    def save(done: int) -> None:
        accelerator.save_state(str(tmp_path / f"{len(steps)}"))
        steps.append(done)

    job.run(0, save)
    for i, done in ((i, done) for i, done in enumerate(steps) if done in PLACES):
        other, again = start()
        other.load_state(str(tmp_path / f"{i}"))
        again.run(done, lambda _: None)
        place(done, small, again.seen)
        close(again.loader)
    close(job.loader)


class Model(torch.nn.Module):
    """Sees batches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: List[List[int]] = []

    def forward(self, n: torch.Tensor) -> Dict[str, torch.Tensor]:
        self.seen.append(n.tolist())
        return {"loss": (self.weight * n.float().mean()).sum() * 1e-9}


@pytest.mark.parametrize("kind", ["Loader", "Prefetcher", "Prefetcher of a DataLoader, 2 workers"])
def test_transformers(small: Path, tmp_path: Path, kind: str) -> None:
    """The recipe of docs/pytorch.md. It has no checkpoint before the first step."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from frameworks import snippet

    train = snippet("transformers", transformers=transformers)["train"]

    def start(checkpoint: Any = None) -> List[List[int]]:
        model, loader = Model(), make(kind, small)
        cpu = {"use_cpu": True} if hasattr(transformers.TrainingArguments, "use_cpu") else {"no_cuda": True}
        arguments = transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=EPOCHS, save_steps=1, save_strategy="steps", report_to=[], disable_tqdm=True, **cpu
        )
        train(model, arguments, loader, checkpoint)
        close(loader)
        return model.seen

    assert start() == want(small)
    for done in PLACES[1:]:
        place(done, small, start(str(tmp_path / f"checkpoint-{done}")))


#: When callbacks of Lightning save: between steps, and elsewhere.
BETWEEN = ("on_train_start", "on_train_batch_end", "on_train_epoch_end", "on_train_end")
ELSEWHERE = (
    "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_validation_start", "on_validation_batch_end", "on_validation_epoch_end", "on_validation_end",
)  # fmt: skip


class Lightning:
    """A job of Lightning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, url: Path, tmp_path: Path, keep: bool, validate: bool) -> None:
        from frameworks import sharded_tensors

        with contextlib.suppress(ImportError, AttributeError):
            sharded_tensors(monkeypatch)
        self.lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
        self.kind, self.url, self.tmp_path, self.keep, self.validate = kind, url, tmp_path, keep, validate

    def saving(self, hooks: Tuple[str, ...]) -> Any:
        """A callback that saves at hooks, and lists where."""
        saved: List[Tuple[str, int, str]] = []

        def at(hook: str) -> Any:
            def save(_: Any, trainer: Any, *__: Any, **___: Any) -> None:
                path = str(self.tmp_path / f"{len(saved)}.ckpt")
                trainer.save_checkpoint(path)
                saved.append((hook, trainer.global_step, path))

            return save

        return type("Saving", (self.lightning.Callback,), {"saved": saved, **{hook: at(hook) for hook in hooks}})()

    def fit(self, checkpoint: Any = None, callbacks: Any = (), before: Callable[[Any], None] = lambda _: None, **options: Any) -> Any:
        """Trains, and returns the batches."""

        class Module(self.lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.model = Model()

            def training_step(self, batch: Any, _: int) -> Any:
                return self.model(**batch)["loss"]

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        if self.validate:
            Module.validation_step = lambda *_: None
        loader, module, more = make(self.kind, self.url), Module(), list(callbacks)
        if self.keep:
            from shardtool.torch.lightning import KeepPlace

            more.insert(0, KeepPlace(loader))
        before(loader)
        options = {"enable_checkpointing": any(isinstance(c, self.lightning.callbacks.ModelCheckpoint) for c in more), **options}
        trainer = self.lightning.Trainer(
            accelerator="cpu", logger=False, callbacks=more, enable_progress_bar=False, enable_model_summary=False, max_epochs=EPOCHS,
            num_sanity_val_steps=0, default_root_dir=self.tmp_path, **options,
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            stack.callback(close, loader)
            kinds = {"val_dataloaders": stack.enter_context(shardtool.Loader(self.url, 500, fields=["cls"]))} if self.validate else {}
            trainer.fit(module, train_dataloaders=loader, ckpt_path=checkpoint, **kinds)
        return module.model.seen


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize(("kind", "keep"), [(kind, keep) for kind in STATEFUL for keep in (False, True) if keep or "Stateful" not in kind])
def test_lightning(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, keep: bool, validate: bool) -> None:
    """At the hooks between steps with a loader alone, at each hook with KeepPlace."""
    job = Lightning(monkeypatch, kind, small, tmp_path, keep, validate)
    saving = job.saving(BETWEEN + ELSEWHERE if keep else BETWEEN)
    assert job.fit(callbacks=[saving]) == want(small)
    assert len(saving.saved) > EPOCHS * (EPOCH + 1)
    for _, done, path in saving.saved:
        if done in PLACES:
            place(done, small, job.fit(path))


@pytest.mark.parametrize(
    "options", [{}, {"every_n_train_steps": EPOCH}, {"every_n_train_steps": 3}, {"every_n_epochs": 1, "save_on_train_epoch_end": True}]
)
@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("kind", ["Loader", "Prefetcher", "StatefulDataLoader, 2 workers"])
def test_lightning_model_checkpoint(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, validate: bool, options: Dict[str, Any]
) -> None:
    """Its own callback, by default and with an interval that ends with an epoch; each resumed job
    saves again and is resumed."""
    job = Lightning(monkeypatch, kind, small, tmp_path, "Stateful" in kind, validate)

    def saving(folder: str) -> Any:
        return job.lightning.callbacks.ModelCheckpoint(tmp_path / folder, filename="{step}", save_top_k=-1, **options)

    assert job.fit(callbacks=[saving("first")]) == want(small)
    saved = sorted((tmp_path / "first").glob("*.ckpt"))
    assert saved
    for path in saved:
        done = int(path.stem.partition("=")[2])
        place(done, small, job.fit(str(path), callbacks=[saving(f"again-{done}")]))
        for later in sorted((tmp_path / f"again-{done}").glob("*.ckpt")):
            place(int(later.stem.partition("=")[2]), small, job.fit(str(later)))


def without_place(small: Path, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Tuple[int, Any, str]]:
    job = Lightning(monkeypatch, kind, small, tmp_path, False, False)
    saving = job.saving(("on_train_batch_end", "on_train_epoch_end"))
    assert job.fit(callbacks=[saving]) == want(small)
    for _, done, path in saving.saved:
        yield done, job, path


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if "DataLoader" in kind and "Prefetcher" not in kind])
def test_lightning_advice(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """What Lightning keeps no place of is refused, and who does what the error says trains on the
    right epoch."""
    import re

    for done, job, path in without_place(small, kind, monkeypatch, tmp_path):
        if done not in PLACES:
            continue
        try:
            seen = job.fit(path)
        except shardtool.ConfigError as err:
            advice = re.search(r"dataset\.set_epoch\((\d+)\)", str(err))
            assert advice and int(advice[1]) == done // EPOCH
            seen = job.fit(path, before=lambda loader, epoch=int(advice[1]): loader.dataset.set_epoch(epoch))
            assert want(small).index(seen[0]) == done // EPOCH * EPOCH
            if done % EPOCH == 0:
                place(done, small, seen)
        else:
            assert kind.startswith("Stateful")
            place(done, small, seen)


@pytest.mark.parametrize("kind", ["Loader", "Prefetcher"])
def test_lightning_other_place(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A place of another epoch than the trainer's is refused; the error says how to begin there."""
    job = Lightning(monkeypatch, kind, small, tmp_path, False, False)
    with contextlib.closing(make("Loader", small)) as other:
        for _ in zip(range(6), (batch for _ in range(2) for batch in other)):
            state = other.state_dict()
    with pytest.raises(shardtool.ConfigError, match=r"the trainer begins epoch 0, .* is in epoch 1: .* = 1$"):
        job.fit(before=lambda loader: loader.load_state_dict(state))

    class Advice(job.lightning.Callback):  # type: ignore[misc,name-defined,unused-ignore]
        def setup(self, trainer: Any, *_: Any, **__: Any) -> None:
            progress = trainer.fit_loop.epoch_progress.current
            progress.processed = progress.completed = 1

    seen = job.fit(callbacks=[Advice()], before=lambda loader: loader.load_state_dict(state))
    assert want(small).index(seen[0]) == 6 and seen[-EPOCH:] == want(small)[-EPOCH:]


def test_grain(small: Path) -> None:
    grain = pytest.importorskip("grain", reason="Grain is not installed: pip install grain", exc_type=ImportError)
    import shardtool.grain

    def start() -> Any:
        options = in_groups(**{**OPTIONS, "map": lambda batch: {"n": list(batch.numbers)}, "epochs": EPOCHS})
        return iter(shardtool.grain.IterDataset(small, **options))

    it = start()
    states, whole = [it.get_state()], []
    for element in it:
        whole.append(list(element["n"]))
        states.append(json.loads(json.dumps(it.get_state())))
    assert whole == want(small) and grain
    for i, state in enumerate(states):
        again = start()
        again.set_state(state)
        assert again.get_state() == state
        assert [list(element["n"]) for element in again] == whole[i:]


def train_on_ray(config: Dict[str, Any]) -> None:
    """A worker of Ray Train, which reports a checkpoint with each step."""
    import tempfile

    import ray.train

    context, kind = ray.train.get_context(), config["kind"]
    job = Job(kind, Path(config["url"]), batch_size=125, rank=context.get_world_rank(), world_size=context.get_world_size())
    done, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            done, state = pickle.loads(Path(folder, "state").read_bytes())
        job.load(state)
    start = done

    def save(done: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state").write_bytes(pickle.dumps((done, job.save())))
            ray.train.report({"done": done}, checkpoint=ray.train.Checkpoint.from_directory(folder))
        if done == config["fails"] and start < done:
            raise RuntimeError("stopped")

    job.run(done, save)
    Path(config["out"], f"{context.get_world_rank()}-{start}").write_text(json.dumps(job.seen))
    close(job.loader)


@pytest.mark.parametrize("fails", [1, EPOCH - 1, EPOCH, EPOCH + 1])
@pytest.mark.parametrize("kind", ["Loader", "Prefetcher", "DataLoader, 2 workers", "StatefulDataLoader, 2 workers"])
def test_ray(small: Path, tmp_path: Path, request: pytest.FixtureRequest, kind: str, fails: int) -> None:
    """Ray Train starts workers that failed again, from the last checkpoint that all reported."""
    pytest.importorskip("ray.train.torch", reason="Ray is not installed")
    import ray.train
    import ray.train.torch

    make(kind, small)
    path = os.pathsep.join(p for p in sys.path if p)  # where workers find this file
    ray.init(num_cpus=4, include_dashboard=False, ignore_reinit_error=True, runtime_env={"env_vars": {"PYTHONPATH": path}})
    request.addfinalizer(ray.shutdown)
    out = tmp_path / "out"
    out.mkdir()
    trainer = ray.train.torch.TorchTrainer(
        train_on_ray,
        train_loop_config={"kind": kind, "url": str(small), "out": str(out), "fails": fails},
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=ray.train.RunConfig(storage_path=str(tmp_path / "runs"), failure_config=ray.train.FailureConfig(max_failures=1)),
    )
    trainer.fit()
    for rank in range(2):
        with shardtool.Loader(small, **in_groups(**{**OPTIONS, "batch_size": 125, "rank": rank, "world_size": 2})) as loader:
            whole = [batch["n"].tolist() for _ in range(EPOCHS) for batch in loader]
        (path,) = out.glob(f"{rank}-*")
        assert json.loads(path.read_text()) == whole[int(path.name.partition("-")[2]) :]
