"""Keeps the place in the data with each checkpoint of Lightning, and sets weights by losses."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Dict

from ..errors import ConfigError
from .losses import Losses
from .named import state_of

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback  # type: ignore[import-not-found,unused-ignore]
else:
    from lightning.pytorch import Callback  # type: ignore[import-not-found,unused-ignore]


class KeepPlace(Callback):  # type: ignore[misc,unused-ignore]
    """A callback that keeps the place of the training loader, after the last batch that a step is
    done with, in each checkpoint, and hands it back.

    ::

        trainer = lightning.Trainer(callbacks=[KeepPlace(loader)])
        trainer.fit(module, loader, ckpt_path=checkpoint)

    Lightning itself keeps the place of the last batch that it *received*, and hands it back only
    for an epoch that it resumes in the middle. That is enough for checkpoints between steps of a
    ``shardtool.Loader`` or a Prefetcher. A DataLoader and a StatefulDataLoader need this callback,
    and so do checkpoints that are made within a step, such as by a signal or after an error, or as
    an epoch begins.

    Args:
        loader: A ``shardtool.Loader``, a Prefetcher, a StatefulDataLoader, or a DataLoader of a
            ``shardtool.Dataset``, whose batches must be dicts. One that is made later, in
            ``train_dataloader``, is given to ``follow``.
    """

    def __init__(self, loader: Any = None) -> None:
        self._loader: Any = loader
        self._place: Any = None  # after the last batch that a step is done with
        self._resumes = False  # whether this was in a checkpoint

    @property
    def _keeper(self) -> Any:
        """What has the place: the loader, or the data set in a DataLoader that keeps none."""
        return self._loader if hasattr(self._loader, "load_state_dict") else self._loader.dataset

    def follow(self, loader: Any) -> Any:
        """Sets the loader, moves it to the place of the checkpoint that is being resumed, and
        returns it."""
        self._loader = loader
        if self._place is not None:
            self._keeper.load_state_dict(self._place)
        else:
            self.setup()
        return loader

    def setup(self, *_: Any, **__: Any) -> None:
        """Called by Lightning."""
        if self._loader is not None and self._keeper is not self._loader:
            with contextlib.suppress(ConfigError):  # workers have read ahead: then the place is that of their last batch
                self._place = self._keeper.state_dict()

    def on_train_start(self, *_: Any) -> None:
        """Called by Lightning."""
        if not self._resumes and self._keeper is self._loader:
            self._place = self._loader.state_dict()
        self._resumes = False

    def on_train_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Called by Lightning."""
        # Lightning does not count the epoch after one that it resumed at its last batch. From the
        # next such checkpoint it would train on an epoch twice.
        progress = trainer.fit_loop.epoch_progress
        if progress.current.ready == progress.current.processed:
            progress.increment_ready()
            progress.increment_started()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any, **__: Any) -> None:
        """Called by Lightning."""
        self._place = self._loader.state_dict() if self._keeper is self._loader else state_of(batch)

    def state_dict(self) -> Dict[str, Any]:
        """Called by Lightning."""
        return {"place": self._keeper.state_dict() if self._place is None else self._place}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Called by Lightning."""
        self._place, self._resumes = state_dict["place"], True
        if self._loader is not None:
            self._keeper.load_state_dict(self._place)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Called by Lightning."""
        # Lightning would hand back this place, which is one batch ahead within a step.
        checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Dict[str, Any]) -> None:
        """Called by Lightning."""
        fit = checkpoint.get("loops", {}).get("fit_loop", {})
        epochs, batches = fit.get("epoch_progress", {}).get("current", {}), fit.get("epoch_loop.batch_progress", {})
        if epochs.get("ready", 0) > epochs.get("started", 0) and "current" in batches:
            # Saved as an epoch began. The counts are of the one before, with which Lightning would
            # end this one after a batch.
            batches.update(current=dict.fromkeys(batches["current"], 0), is_last_batch=False)


class SteerByLoss(Losses, Callback):  # type: ignore[misc,unused-ignore]
    """A callback that sets the weights of a mix by the losses of its sources.

    ::

        steer = SteerByLoss(loader, on_loss)
        trainer = lightning.Trainer(callbacks=[steer])

        def training_step(self, batch, _):
            losses = cross_entropy(self(batch["x"]), batch["y"], reduction="none")
            self.steer.add(batch["sources"], losses)
            return losses.mean()

    The arguments are those of ``Losses``. The function is called after each step of the optimizer,
    before callbacks that follow this one save a checkpoint, so that the place in it has the
    weights.
    """

    _step = 0

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Called by Lightning."""
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *args: Any, **named: Any) -> None:
        """Called by Lightning."""
        if trainer.global_step == self._step:  # gradients add up
            return
        self._step = trainer.global_step
        if self._after(self._step):
            for callback in trainer.callbacks:
                if isinstance(callback, KeepPlace):  # it may have been called before this one
                    callback.on_train_batch_end(trainer, *args, **named)
