"""A training job of Lightning that can be killed at any moment.

    python with_lightning.py DATA RUN --epochs 10
    ... kill -9 it, and start it again: it continues after its last checkpoint, and ends with the
    same weights, to the bit, as a run that nothing happened to.

DATA has vectors of 16 numbers, x.npy, and classes, cls. RUN/log.jsonl has the steps.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn

import shardtool
import shardtool.torch


class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
    """A small classifier that notes its steps."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
        self._log = log

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """Returns the loss of a batch."""
        loss = nn.functional.cross_entropy(self.model(batch["x.npy"]), batch["cls"])
        self._log.write(json.dumps({"step": self.global_step + 1, "loss": loss.item().hex(), "samples": batch["samples"]}) + "\n")
        self._log.flush()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer."""
        return torch.optim.AdamW(self.parameters(), 1e-2)


class Save(lightning.Callback):  # type: ignore[misc,name-defined,unused-ignore]
    """Saves every 20 steps; a kill leaves the old checkpoint or the new one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Called after each step."""
        if trainer.global_step % 20 == 0:
            trainer.save_checkpoint(self.path.with_suffix(".tmp"))
            os.replace(self.path.with_suffix(".tmp"), self.path)


def with_numbers(batch: shardtool.Batch) -> "dict[str, Any]":
    """The fields, and which samples they are."""
    return {**batch, "samples": batch.numbers}


def main() -> None:
    """Trains, from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(7)
    fields = {"x.npy": "npy", "cls": "int"}
    loader = shardtool.Loader(args.data, 32, shuffle=True, seed=7, epochs=args.epochs, tail="drop", fields=fields, map_batch=with_numbers)
    checkpoint = args.run / "checkpoint.ckpt"
    with shardtool.torch.Prefetcher(loader) as batches, open(args.run / "log.jsonl", "a") as log:
        module = Module(log)
        trainer = lightning.Trainer(
            max_epochs=args.epochs,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            callbacks=[Save(checkpoint)],
        )
        # Lightning keeps the place of the Prefetcher in its checkpoints.
        trainer.fit(module, train_dataloaders=batches, ckpt_path=str(checkpoint) if checkpoint.exists() else None)
    torch.save(module.model.state_dict(), args.run / "final.pt")


if __name__ == "__main__":
    main()
