"""Sets the weights of a mix by losses, in the Trainer of transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

from .losses import Losses


class SteerByLoss(Losses, TrainerCallback):  # type: ignore[misc,unused-ignore]
    """A callback that sets the weights of a mix by the losses of its sources.

    ::

        steer = SteerByLoss(batches, on_loss)

        class MixTrainer(transformers.Trainer):
            def compute_loss(self, model, inputs, **_):
                sources = inputs.pop("sources")
                losses = cross_entropy(model(**inputs), inputs["labels"], reduction="none")
                if model.training:
                    steer.add(sources, losses)
                return losses.mean()

    The arguments are those of ``Losses``. The function is called after each step of the optimizer,
    before the Trainer saves a checkpoint.
    """

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called by the Trainer."""
        self._after(state.global_step)
