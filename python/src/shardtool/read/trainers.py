"""Detects that a framework's trainer resumes a job and the loader does not, which would silently
train on the wrong samples.

Lightning keeps the place of loaders that it is given directly, but not of a plain DataLoader; the
Trainer of transformers keeps none. Only the trainer knows that it resumes: see callers.
"""

from __future__ import annotations

from typing import Any, Tuple

from .callers import callers

_ADVICE = "; docs/pytorch.md has what keeps the place. To begin there on purpose say so before: loader.load_state_dict(loader.state_dict())"


def unfit(told: bool) -> str:
    """Explains why a first iteration would begin at another place than its trainer; empty if it
    does not, or if there is no trainer. told: whether the loader was given a state."""
    trainer, kind = _trainer()
    try:
        if kind == "lightning":
            return _lightning(trainer, told)
        if kind == "transformers":
            return _transformers(trainer, told)
    except (AttributeError, TypeError, ValueError):  # another release of the framework
        pass
    return ""


def _lightning(trainer: Any, told: bool) -> str:
    if told or not trainer.ckpt_path or not trainer.global_step:
        return ""
    return (
        f"Lightning resumes at step {trainer.global_step}, and the loader was given no state: it would begin at its first sample."
        " Lightning keeps the state of a shardtool.Loader, a Prefetcher or a StatefulDataLoader that it is given, not of what is"
        " in a plain DataLoader" + _ADVICE
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
