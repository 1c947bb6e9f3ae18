"""The contract of all training loops: a job that is resumed from a checkpoint sees what an
undisturbed job sees, batch by batch.

Each framework with each loader: checkpoints before the first batch, in the middle of an epoch, at
its last batch, at its end, and twice in a row. `make test-python` runs those of the system's
PyTorch, `make test-compat` those of current releases.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
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
OPTIONS: Dict[str, Any] = {"batch_size": 250, "shuffle": True, "seed": 3, "tail": "drop", "fields": ["txt"], "map_batch": numbers}
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


def place(done: int, url: Path, seen: List[List[int]], end: int = EPOCH * EPOCHS) -> None:
    """Checks what a resumed job has seen, that had done so many steps and was to end after
    others."""
    assert [want(url).index(batch) for batch in seen] == list(range(done, min(end, EPOCH * EPOCHS)))


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

    @property
    def keeper(self) -> Any:
        """What a framework calls to save and to resume: has state_dict and load_state_dict."""
        return self if self.plain else self.loader

    state_dict, load_state_dict = save, load

    def steps(self, done: int) -> Iterator[int]:
        """Trains from a step on. Yields the number of steps wherever the job can save: before the
        first, after each, and as an epoch ends."""
        yield done
        while done < EPOCH * EPOCHS:
            for batch in self.loader:
                self.seen.append(batch["n"].tolist())
                self.state = state_of(batch) if self.plain else None
                done += 1
                yield done
            yield done


#: What a checkpoint of each job is resumed from.
BEFORE, MIDDLE, LAST, END, TWICE = "before the first batch", "middle", "last batch", "end of an epoch", "twice in a row"
WHOLE = (BEFORE, MIDDLE, LAST, END)
Equal = Callable[..., None]


@pytest.fixture
def equal(record_property: Callable[[str, object], None]) -> Equal:
    """Records for docs/compatibility.md that jobs of a framework and a loader were equal when
    resumed from places; or else what became of them."""
    return lambda framework, kind, *places: record_property("contract", json.dumps([framework, kind, places]))


def pickled(job: Job) -> bytes:
    return pickle.dumps(job.save())


def unpickled(job: Job, state: bytes) -> None:
    job.load(pickle.loads(state))


def resumed(
    kind: str, url: Path, save: Callable[[Job], Any] = pickled, load: Callable[[Job, Any], None] = unpickled, **options: Any
) -> None:
    """Runs a job that saves wherever it can, and resumes it from each checkpoint, also from those
    of resumed jobs. save returns what load needs to resume another job."""
    job, states = Job(kind, url, **options), []  # type: Tuple[Job, List[Any]]
    for done in job.steps(0):
        states.append((done, save(job) if done in PLACES else None))
    whole = job.seen
    assert len(whole) == EPOCH * EPOCHS and [done for done, _ in states] == sorted([*range(13), 4, 8, 12])
    for done, state in states:
        if state is None:
            continue
        again = Job(kind, url, **options)
        load(again, state)
        steps = again.steps(done)
        next(steps)
        more = save(again)  # at once
        assert len(list(itertools.islice(steps, EPOCH + 2))) > EPOCH  # into the next epoch
        assert again.seen and again.seen == whole[done:][: len(again.seen)], done
        steps.close()
        later = save(again)
        close(again.loader)
        for state, at in (more, done), (later, done + len(again.seen)):
            twice = Job(kind, url, **options)
            load(twice, state)
            list(itertools.islice(twice.steps(at), 4))
            assert twice.seen[:2] == whole[at:][:2], (done, at)
            close(twice.loader)
    close(job.loader)


@pytest.mark.parametrize("kind", LOADERS)
def test_plain(small: Path, kind: str, equal: Equal) -> None:
    resumed(kind, small)
    equal("plain loop", kind, *WHOLE, TWICE)


def rank_of(rank: int, ranks: int, kind: str, url: Path, folder: Path) -> None:
    """A rank of a job, which runs as a process. Its workers are forked, as in a rank that torchrun
    started. What torch starts here is spawned, and would spawn workers that import torch anew."""
    multiprocessing.set_start_method("fork", force=True)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))

    def save(job: Job) -> bytes:
        states = [pickled(job)]
        torch.distributed.broadcast_object_list(states, 0)  # that of any rank is that of all
        model(torch.ones(1)).sum().backward()
        return states[0]

    resumed(kind, url, save, batch_size=125)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", LOADERS)
def test_ddp(small: Path, tmp_path: Path, kind: str, equal: Equal) -> None:
    """Two ranks of DistributedDataParallel, each with its part of a batch."""
    make(kind, small)  # or skips
    torch.multiprocessing.spawn(rank_of, (2, kind, small, tmp_path), 2)
    equal("DistributedDataParallel, 2 ranks", kind, *WHOLE, TWICE)


@pytest.mark.parametrize("kind", LOADERS)
def test_dcp(small: Path, tmp_path: Path, kind: str, equal: Equal) -> None:
    """torch.distributed.checkpoint keeps whatever has a state_dict."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    if not hasattr(dcp, "save"):
        pytest.skip("this PyTorch has no torch.distributed.checkpoint.save")
    folders = map(str, itertools.count())

    def save(job: Job) -> str:
        path = str(tmp_path / next(folders))
        dcp.save({"loader": job.keeper, "weight": torch.ones(1)}, checkpoint_id=path)
        return path

    def load(job: Job, path: str) -> None:
        dcp.load({"loader": job.keeper, "weight": torch.zeros(1)}, checkpoint_id=path)

    resumed(kind, small, save, load)
    equal("torch.distributed.checkpoint", kind, *WHOLE, TWICE)


@pytest.mark.parametrize("kind", LOADERS)
def test_accelerate(small: Path, tmp_path: Path, kind: str, equal: Equal) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    folders = map(str, itertools.count())

    def keeping(job: Job) -> Any:
        accelerator = accelerate.Accelerator(cpu=True)
        accelerator.register_for_checkpointing(job.keeper)
        return accelerator

    def save(job: Job) -> str:
        path = str(tmp_path / next(folders))
        keeping(job).save_state(path)
        return path

    resumed(kind, small, save, lambda job, path: keeping(job).load_state(path))
    equal("Accelerate", kind, *WHOLE, TWICE)


class Stop(Exception):
    """Ends a job that has seen enough."""


class Model(torch.nn.Module):
    """Sees batches, up to a number."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self.most = most
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: List[List[int]] = []

    def forward(self, n: torch.Tensor) -> Dict[str, torch.Tensor]:
        if len(self.seen) == self.most:
            raise Stop
        self.seen.append(n.tolist())
        return {"loss": (self.weight * n.float().mean()).sum() * 1e-9}


@pytest.mark.parametrize("strategy", ["steps", "epoch"])
@pytest.mark.parametrize("kind", STATEFUL)
def test_transformers(small: Path, tmp_path: Path, kind: str, strategy: str, equal: Equal) -> None:
    """The recipe of docs/pytorch.md, with a checkpoint at each step, and at the end of each epoch.
    It has no checkpoint before the first step. Each resumed job replaces the checkpoints from which
    the next are resumed."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from frameworks import snippet

    train = snippet("transformers", transformers=transformers)["train"]

    def start(checkpoint: Any = None) -> List[List[int]]:
        model, loader = Model(), make(kind, small)
        cpu = {"use_cpu": True} if hasattr(transformers.TrainingArguments, "use_cpu") else {"no_cuda": True}
        arguments = transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=EPOCHS, save_steps=1, save_strategy=strategy, report_to=[], disable_tqdm=True, **cpu
        )
        train(model, arguments, loader, checkpoint)
        close(loader)
        return model.seen

    assert start() == want(small)
    for done in PLACES[1:] if strategy == "steps" else range(EPOCH, EPOCH * EPOCHS, EPOCH):
        place(done, small, start(str(tmp_path / f"checkpoint-{done}")))
    equal("Hugging Face Trainer", kind, *((MIDDLE, LAST) if strategy == "steps" else (END,)), TWICE)


#: What Lightning tells the epoch, and whose state it keeps.
TOLD = [kind for kind in STATEFUL if "Stateful" not in kind]
#: When callbacks of Lightning save: between steps, and elsewhere.
BETWEEN = ("on_train_start", "on_train_batch_end", "on_train_epoch_end", "on_train_end")
ELSEWHERE = (
    "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_validation_start", "on_validation_batch_end", "on_validation_epoch_end", "on_validation_end",
)  # fmt: skip


class Lightning:
    """A job of Lightning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, url: Path, tmp_path: Path, keep: Any, validate: bool) -> None:
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

    def fit(
        self, checkpoint: Any = None, callbacks: Any = (), before: Callable[[Any], None] = lambda _: None, most: int = 100, **options: Any
    ) -> Any:
        """Trains, and returns the batches, so many of them."""

        class Module(self.lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
            def __init__(self) -> None:
                super().__init__()
                self.model = Model(most)

            def training_step(self, batch: Any, _: int) -> Any:
                return self.model(**batch)["loss"]

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        if self.validate:
            Module.validation_step = lambda *_: None
        loader, more = make(self.kind, self.url), list(callbacks)
        kinds = {"train_dataloaders": loader}
        if self.keep:
            from shardtool.torch.lightning import KeepPlace

            keep = KeepPlace(loader if self.keep is True else None)
            more.insert(0, keep)
            if self.keep == "follow":
                Module.train_dataloader = lambda _: keep.follow(loader)
                kinds = {}
        module = Module()
        before(loader)
        options = {"enable_checkpointing": any(isinstance(c, self.lightning.callbacks.ModelCheckpoint) for c in more), **options}
        trainer = self.lightning.Trainer(
            accelerator="cpu", logger=False, callbacks=more, enable_progress_bar=False, enable_model_summary=False, max_epochs=EPOCHS,
            num_sanity_val_steps=0, default_root_dir=self.tmp_path, **options,
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            stack.callback(close, loader)
            if self.validate:
                kinds["val_dataloaders"] = stack.enter_context(shardtool.Loader(self.url, 500, fields=["cls"]))
            with contextlib.suppress(Stop):
                trainer.fit(module, ckpt_path=checkpoint, **kinds)
        return module.model.seen


@pytest.mark.parametrize(
    ("kind", "keep", "validate"),
    [
        *((k, False, v) for k in TOLD for v in (False, True)),
        *((k, True, True) for k in LOADERS),
        *((k, "follow", False) for k in LOADERS if k in ("Loader", "DataLoader, 2 workers")),
    ],
)
def test_lightning(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, keep: Any, validate: bool, equal: Equal
) -> None:
    """At the hooks between steps with a loader alone, at each hook with KeepPlace. Also with a
    loader from train_dataloader."""
    job = Lightning(monkeypatch, kind, small, tmp_path, keep, validate)
    saving = job.saving(BETWEEN + ELSEWHERE if keep else BETWEEN)
    assert job.fit(callbacks=[saving]) == want(small)
    assert len(saving.saved) > EPOCHS * (EPOCH + 1)
    for _, done, path in saving.saved:
        if done in (PLACES[:3] if "2 workers" in kind else PLACES):  # it takes minutes to start so many workers
            most = EPOCH + 1  # into the next epoch
            place(done, small, job.fit(path, most=most), done + most)
    equal("Lightning, `KeepPlace`, within steps too" if keep else "Lightning, between steps", kind, *WHOLE)


@pytest.mark.parametrize(
    ("options", "validate", "keep", "trainer"),
    [
        ({}, False, False, {}),
        ({}, True, False, {}),
        ({"every_n_train_steps": EPOCH}, False, True, {}),  # Lightning alone resumes such a job twice in an epoch too many
        ({"every_n_train_steps": EPOCH}, False, True, {"max_steps": EPOCH * EPOCHS}),
        ({"every_n_train_steps": 3}, True, False, {}),
        ({"every_n_epochs": 1, "save_on_train_epoch_end": True}, True, False, {}),
    ],
)
@pytest.mark.parametrize("kind", ["Loader", "Prefetcher", "StatefulDataLoader, 2 workers", "DataLoader, 2 workers"])
def test_lightning_model_checkpoint(
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    validate: bool,
    keep: bool,
    options: Dict[str, Any],
    trainer: Dict[str, Any],
    equal: Equal,
) -> None:
    """Its own callback, by default and with an interval that ends with an epoch; each resumed job
    saves again and is resumed."""
    keep = keep or kind not in TOLD
    job = Lightning(monkeypatch, kind, small, tmp_path, keep, validate)

    def fit(checkpoint: Any, folder: str) -> List[Tuple[int, str]]:
        """Trains, checks what was seen, and returns the checkpoints: steps, and paths."""
        save = job.lightning.callbacks.ModelCheckpoint(tmp_path / folder, filename="{step}", save_top_k=-1, **options)
        done, path = checkpoint
        place(done, small, job.fit(path, callbacks=[save], **trainer))
        return sorted((int(path.stem.partition("=")[2]), str(path)) for path in (tmp_path / folder).glob("*.ckpt"))

    saved = fit((0, None), "first")
    assert saved
    for checkpoint in saved:
        for later in fit(checkpoint, f"again-{checkpoint[0]}"):
            fit(later, f"twice-{checkpoint[0]}-{later[0]}")
    equal("Lightning, `KeepPlace`, within steps too" if keep else "Lightning, between steps", kind, TWICE)


def without_place(small: Path, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Tuple[int, Any, str]]:
    job = Lightning(monkeypatch, kind, small, tmp_path, False, False)
    saving = job.saving(("on_train_batch_end", "on_train_epoch_end"))
    assert job.fit(callbacks=[saving]) == want(small)
    for _, done, path in saving.saved:
        yield done, job, path


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if "DataLoader" in kind and "Prefetcher" not in kind])
def test_lightning_advice(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, equal: Equal) -> None:
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
    equal("Lightning, between steps", kind, "refused where the place is lost" if kind.startswith("Stateful") else "refused")


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


def test_grain(small: Path, equal: Equal) -> None:
    grain = pytest.importorskip("grain", reason="Grain is not installed: pip install grain", exc_type=ImportError)
    import shardtool.grain

    def start() -> Any:
        options = in_groups(**{**OPTIONS, "map_batch": lambda batch: {"n": list(batch.numbers)}, "epochs": EPOCHS})
        return iter(shardtool.grain.IterDataset(small, **options))

    it = start()
    states, whole = [it.get_state()], []
    for element in it:
        whole.append(list(element["n"]))
        states.append(json.loads(json.dumps(it.get_state())))
    assert whole == want(small) and grain
    it.close()
    for i, state in enumerate(states):
        again = start()
        again.set_state(state)
        assert again.get_state() == state
        assert [list(element["n"]) for element in again] == whole[i:]
        again.close()
    equal("Grain", "Loader", *WHOLE, TWICE)


#: After how many of its reports each worker of Ray Train fails: before the first batch, in the
#: middle, at the last batch, at the end of the next epoch, and not again.
FAILS = (1, 3, 3, 6, 100)


def train_on_ray(config: Dict[str, Any]) -> None:
    """A worker of Ray Train, which reports a checkpoint with each step. It trains with all kinds of
    loaders."""
    import tempfile

    import ray.train

    context, out = ray.train.get_context(), Path(config["out"])
    rank, ranks = context.get_world_rank(), context.get_world_size()
    attempt = len(list(out.glob(f"{rank}-*")))
    jobs = {kind: Job(kind, Path(config["url"]), batch_size=250 // ranks, rank=rank, world_size=ranks) for kind in config["kinds"]}
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            start, states = pickle.loads(Path(folder, "state").read_bytes())
        for kind, job in jobs.items():
            job.load(states[kind])
    try:
        for reports, (done, *_) in enumerate(zip(*(job.steps(start) for job in jobs.values())), 1):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "state").write_bytes(pickle.dumps((done, {kind: job.save() for kind, job in jobs.items()})))
                ray.train.report({"done": done}, checkpoint=ray.train.Checkpoint.from_directory(folder))
            if reports == FAILS[attempt]:
                raise RuntimeError("stopped")
    finally:
        Path(out, f"{rank}-{attempt}").write_text(json.dumps([start, {kind: job.seen for kind, job in jobs.items()}]))
        for job in jobs.values():
            close(job.loader)


def test_ray(small: Path, tmp_path: Path, request: pytest.FixtureRequest, equal: Equal) -> None:
    """Ray Train starts workers that failed again, from the last checkpoint that all reported."""
    pytest.importorskip("ray.train.torch", reason="Ray is not installed")
    pytest.importorskip("torchdata", reason="torchdata is not installed")
    import ray.train
    import ray.train.torch

    path = os.pathsep.join(p for p in sys.path if p)  # where workers find this file
    ray.init(num_cpus=4, include_dashboard=False, ignore_reinit_error=True, runtime_env={"env_vars": {"PYTHONPATH": path}})
    request.addfinalizer(ray.shutdown)
    out = tmp_path / "out"
    out.mkdir()
    trainer = ray.train.torch.TorchTrainer(
        train_on_ray,
        train_loop_config={"kinds": LOADERS, "url": str(small), "out": str(out)},
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=ray.train.RunConfig(
            storage_path=str(tmp_path / "runs"), failure_config=ray.train.FailureConfig(max_failures=len(FAILS))
        ),
    )
    trainer.fit()
    for rank in range(2):
        with shardtool.Loader(small, **in_groups(**{**OPTIONS, "batch_size": 125, "rank": rank, "world_size": 2})) as loader:
            whole = [batch["n"].tolist() for _ in range(EPOCHS) for batch in loader]
        attempts = [json.loads((out / f"{rank}-{attempt}").read_text()) for attempt in range(len(FAILS))]
        assert [start for start, _ in attempts] == [0, 0, 2, 4, 8]
        for start, seen in attempts:
            for kind in LOADERS:
                assert seen[kind] == whole[start:][: len(seen[kind])], (start, kind)
        assert {len(batches) for batches in attempts[-1][1].values()} == {EPOCH}
    for kind in LOADERS:
        equal("Ray Train, 2 workers", kind, *WHOLE, TWICE)
