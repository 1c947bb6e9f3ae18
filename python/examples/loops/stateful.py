"""A training loop over torchdata's StatefulDataLoader, whose workers run Python code for each
batch. It can be killed at any moment.

    python stateful.py DATA RUN --epochs 10
    ... kill -9 it, and start it again: it continues after its last checkpoint, and ends with the
    same weights, to the bit, as a run that nothing happened to.

DATA has vectors of 16 numbers, x.npy, and classes, cls. RUN/log.jsonl has the steps.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Dict

import torch
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

import shardtool


def augment(batch: shardtool.Batch) -> Dict[str, Any]:
    """Runs in a worker. What is random about a sample comes from its seed."""
    noise = [torch.randn(16, generator=torch.Generator().manual_seed(seed)) for seed in batch.seeds]
    return {"x": batch["x.npy"] + 0.01 * torch.stack(noise), "cls": batch["cls"], "samples": batch.numbers}


def main() -> None:
    """Trains, from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    fields = {"x.npy": "npy", "cls": "int"}
    dataset = shardtool.Dataset(args.data, 32, shuffle=True, seed=7, epochs=args.epochs, tail="drop", fields=fields, map_batch=augment)
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=2)

    checkpoint, step = args.run / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]

    steps = len(dataset) * args.epochs
    with open(args.run / "log.jsonl", "a") as log:
        while step < steps:
            for batch in loader:  # the rest of an epoch
                loss = nn.functional.cross_entropy(model(batch["x"]), batch["cls"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                log.write(json.dumps({"step": step, "loss": loss.item().hex(), "samples": batch["samples"]}) + "\n")
                log.flush()
                if step % 20 == 0:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict(), "step": step}
                    torch.save(state, args.run / "checkpoint.tmp")
                    os.replace(args.run / "checkpoint.tmp", checkpoint)  # a kill leaves the old one or the new one
    torch.save(model.state_dict(), args.run / "final.pt")


if __name__ == "__main__":
    main()
