"""A training loop of Accelerate that can be killed at any moment.

    python with_accelerate.py DATA RUN --epochs 10
    ... kill -9 it, and start it again: it continues after its last checkpoint, and ends with the
    same weights, to the bit, as a run that nothing happened to.

DATA has vectors of 16 numbers, x.npy, and classes, cls. RUN/log.jsonl has the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict

import accelerate
import torch
from torch import nn

import shardtool
import shardtool.torch


class Step:
    """The number of steps done, as a part of the checkpoint."""

    number = 0

    def state_dict(self) -> Dict[str, int]:
        """Returns the number."""
        return {"number": self.number}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """Restores the number."""
        self.number = state["number"]


def main() -> None:
    """Trains, from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)

    accelerator = accelerate.Accelerator(cpu=True)
    accelerate.utils.set_seed(7)
    model: Any = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-2))  # and not the loader
    loader = shardtool.Loader(
        args.data,
        32,
        shuffle=True,
        seed=7,
        epochs=args.epochs,
        tail="drop",
        fields={"x.npy": "npy", "cls": "int"},
        map_batch=lambda batch: {**batch, "samples": batch.numbers},
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )
    step, checkpoint = Step(), args.run / "checkpoint"
    with shardtool.torch.Prefetcher(loader, accelerator.device) as batches, open(args.run / "log.jsonl", "a") as log:
        accelerator.register_for_checkpointing(batches, step)
        saved = sorted(args.run.glob("checkpoint-[0-9]*"))  # a kill leaves at most one more than needed
        if saved:
            accelerator.load_state(str(saved[-1]))
        for _ in range(batches.epoch, args.epochs):
            for batch in batches:
                loss = nn.functional.cross_entropy(model(batch["x.npy"]), batch["cls"])
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                step.number += 1
                log.write(json.dumps({"step": step.number, "loss": loss.item().hex(), "samples": batch["samples"]}) + "\n")
                log.flush()
                if step.number % 20 == 0:
                    accelerator.save_state(str(args.run / "unfinished"))
                    os.replace(args.run / "unfinished", f"{checkpoint}-{step.number:09d}")
                    for old in saved:
                        shutil.rmtree(old)
                    saved = sorted(args.run.glob("checkpoint-[0-9]*"))
    torch.save(accelerator.unwrap_model(model).state_dict(), args.run / "final.pt")


if __name__ == "__main__":
    main()
