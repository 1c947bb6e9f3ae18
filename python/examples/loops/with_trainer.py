"""A training job of the Hugging Face Trainer that can be killed at any moment.

    python with_trainer.py DATA RUN --epochs 10
    ... kill -9 it, and start it again: it continues after its last checkpoint, and ends with the
    same weights, to the bit, as a run that nothing happened to.

DATA has vectors of 16 numbers, x.npy, and classes, cls. RUN/log.jsonl has the steps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict

import torch
import transformers
from torch import nn

import shardtool
import shardtool.torch


class Model(nn.Module):
    """A small classifier that notes its steps."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
        self.log, self.step = log, 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor, samples: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Returns the loss of a batch."""
        loss = nn.functional.cross_entropy(self.layers(x), labels)
        self.step += 1
        self.log.write(json.dumps({"step": self.step, "loss": loss.item().hex(), "samples": samples.tolist()}) + "\n")
        self.log.flush()
        return {"loss": loss}


class ShardtoolTrainer(transformers.Trainer):  # type: ignore[misc,name-defined,unused-ignore]
    """Trains on the batches of a Prefetcher, given as train_dataset."""

    def get_train_dataloader(self) -> Any:
        """Returns the Prefetcher: it needs no sampler and no collator."""
        return self.train_dataset


class KeepPlace(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
    """Keeps the place in the data with each checkpoint. It is written last: a checkpoint without it
    was not finished."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called after a checkpoint was written."""
        path = Path(args.output_dir, f"checkpoint-{state.global_step}", "shardtool.tmp")
        path.write_text(json.dumps(self.batches.state_dict()))
        path.rename(path.with_suffix(".json"))


def inputs(batch: shardtool.Batch) -> Dict[str, Any]:
    """The arguments of the model."""
    return {"x": batch["x.npy"], "labels": batch["cls"], "samples": torch.tensor(batch.numbers)}


def main() -> None:
    """Trains, from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    given.run.mkdir(parents=True, exist_ok=True)

    transformers.set_seed(7)
    args = transformers.TrainingArguments(
        str(given.run),
        num_train_epochs=given.epochs,
        per_device_train_batch_size=32,
        save_steps=20,
        learning_rate=1e-2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ignore_data_skip=True,  # the batches before the checkpoint need not be read again
    )
    loader = shardtool.Loader(given.data, 32, shuffle=True, seed=7, epochs=given.epochs, tail="drop", map_batch=inputs)
    with shardtool.torch.Prefetcher(loader, "cpu") as batches, open(given.run / "log.jsonl", "a") as log:
        model = Model(log)
        places = sorted(given.run.glob("checkpoint-*/shardtool.json"), key=lambda path: int(path.parent.name.rpartition("-")[2]))
        checkpoint = None
        if places:
            batches.load_state_dict(json.loads(places[-1].read_text()))
            checkpoint, model.step = str(places[-1].parent), int(places[-1].parent.name.rpartition("-")[2])
        trainer = ShardtoolTrainer(model=model, args=args, train_dataset=batches, callbacks=[KeepPlace(batches)])
        trainer.train(resume_from_checkpoint=checkpoint)
    torch.save(model.layers.state_dict(), given.run / "final.pt")


if __name__ == "__main__":
    main()
