"""A training loop of plain PyTorch that can be killed at any moment.

    python plain.py DATA RUN --epochs 10
    ... kill -9 it, and start it again: it continues after its last checkpoint, and ends with the
    same weights, to the bit, as a run that nothing happened to.

DATA has vectors of 16 numbers, x.npy, and classes, cls. RUN/log.jsonl has the steps.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
from torch import nn

import shardtool


def main() -> None:
    """Trains, from the last checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    fields = {"x.npy": "npy", "cls": "int"}
    loader = shardtool.Loader(args.data, 32, shuffle=True, seed=7, epochs=args.epochs, tail="drop", fields=fields)

    checkpoint, step = args.run / "checkpoint.pt", 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        torch.set_rng_state(saved["random"])  # of the dropout
        step = saved["step"]

    with loader, open(args.run / "log.jsonl", "a") as log:
        for _ in range(loader.epoch, args.epochs):
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch["x.npy"]), batch["cls"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                log.write(json.dumps({"step": step, "loss": loss.item().hex(), "samples": batch.numbers}) + "\n")
                log.flush()
                if step % 20 == 0:
                    state = {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),
                        "random": torch.get_rng_state(),
                        "step": step,
                    }
                    torch.save(state, args.run / "checkpoint.tmp")
                    os.replace(args.run / "checkpoint.tmp", checkpoint)  # a kill leaves the old one or the new one
    torch.save(model.state_dict(), args.run / "final.pt")


if __name__ == "__main__":
    main()
