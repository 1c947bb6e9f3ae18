"""What trainers of frameworks tell a loader, and what only they know.

Lightning tells the sampler of a loader the epoch that it begins: see Told. It keeps the place of
loaders that have ``state_dict``, but hands it back only for an epoch that it resumes in the middle.
Programs that keep the place themselves, or with a callback such as torch.lightning.KeepPlace, need
nothing else. A program that forgot it would silently train on the wrong samples, and is refused. In
two cases nothing tells the loader, so the trainer is looked for on the stack, see callers:

- A data set in a DataLoader under Lightning. Lightning looks for ``state_dict`` on the DataLoader
  and for ``set_epoch`` on its sampler. torch makes both, and neither reaches an iterable data set.
  An epoch would not be enough: to a job that resumes in the middle of epoch 0, it is 0. The entry
  points by which Lightning takes callbacks of packages reach all programs of an environment, also
  those that do not use this one, and none that has this package in its path only.
- The Trainer of transformers. It calls ``set_epoch`` of what ``get_train_dataloader`` returns, with
  the epoch and never the step, and only if it is there, which it is not for a DataLoader. Then it
  skips the batches before the step, or does not, by ``ignore_data_skip``: in a loader that was
  given a place they would be skipped twice. Only the program can add callbacks.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional, Tuple

from ..errors import ConfigError
from .callers import callers


class Told:
    """The epoch that a trainer tells the sampler of a loader, as it tells a DistributedSampler."""

    def __init__(self, loader: Any) -> None:
        self._loader = weakref.ref(loader)  # no cycle: the reader ends with the loader
        self._epoch: Optional[int] = None  # told since the last batch

    @property
    def sampler(self) -> Told:
        """Itself: a loader has it as ``batch_sampler``, because Lightning examines what has a
        ``sampler``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Makes the loader begin an epoch, if it does not continue at a place that it was given."""
        self._epoch = epoch
        loader = self._loader()
        if loader is not None and not loader._placed:
            loader.set_epoch(epoch)

    def check(self, epoch: int) -> None:
        """Raises ConfigError if an iteration begins in another epoch."""
        told, self._epoch = self._epoch, None
        if told is not None and told != epoch:
            raise ConfigError(
                f"the trainer begins epoch {told}, but the place that the loader was given is in epoch {epoch}: resume the trainer, too,"
                " from the checkpoint of this place, or set its epoch before fit: progress = trainer.fit_loop.epoch_progress.current;"
                f" progress.processed = progress.completed = {epoch}"
            )


_ADVICE = "; docs/pytorch.md has what keeps the place. To begin there on purpose say so before: loader.load_state_dict(loader.state_dict())"


def unfit(told: bool, dataset: bool = False) -> str:
    """Explains why a first iteration would begin at another place than its trainer; empty if it
    does not, or if there is no trainer. told: whether the loader was given a state. dataset:
    whether it is in a DataLoader."""
    trainer, kind = _trainer()
    try:
        if kind == "lightning" and dataset:
            return _lightning(trainer, told)
        if kind == "transformers":
            return _transformers(trainer, told)
    except (AttributeError, TypeError, ValueError):  # another release of the framework
        pass
    return ""


def _lightning(trainer: Any, told: bool) -> str:
    if told or not trainer.ckpt_path or not trainer.global_step:
        return ""
    epochs = trainer.fit_loop.epoch_progress.current
    epoch = epochs.processed + int(epochs.ready != epochs.processed and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)
    return (
        f"Lightning resumes at step {trainer.global_step}, and the data set in the DataLoader was given no place: it would begin at its"
        " first sample. Give Lightning a shardtool.torch.Prefetcher around the DataLoader, whose place it keeps, or the callback of"
        f" docs/pytorch.md. With this checkpoint, call dataset.set_epoch({epoch}) before fit, which begins the epoch that follows"
    )


def _transformers(trainer: Any, told: bool) -> str:
    steps, done = int(trainer.state.global_step), float(trainer.state.epoch or 0)
    if not steps:
        return ""
    if not told:
        return (
            f"the Trainer resumes at step {steps}, in epoch {done:.2f}, and the loader was given no state. The Trainer does not keep"
            " the place in the data: load the state that was saved with its checkpoint, and set ignore_data_skip=True in its arguments"
            + _ADVICE
        )
    if trainer.args.ignore_data_skip:
        return ""
    return (
        f"the Trainer resumes at step {steps} and would skip the batches of its epoch before it, but the state that the loader was given"
        " is already there: set ignore_data_skip=True in its arguments"
    )


def _trainer() -> Tuple[Any, str]:
    """Returns the trainer whose training loop begins an iteration, and its framework."""
    for method, owner in callers("lightning", "pytorch_lightning", "transformers"):
        for kind in type(owner).__mro__:
            if kind.__name__ in ("_EvaluationLoop", "_PredictionLoop"):
                return None, ""
            if kind.__name__ == "_FitLoop":
                return owner.trainer, "lightning"
            if kind.__name__ == "Trainer" and kind.__module__.partition(".")[0] == "transformers":
                if method in ("evaluate", "predict", "evaluation_loop", "prediction_loop"):
                    return None, ""
                if "train" in method and "dataloader" not in method:
                    return owner, "transformers"
    return None, ""
