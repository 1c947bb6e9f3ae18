"""Trains a small classifier: which of two authors wrote a piece of text. It can be killed at any
moment, and resumed on any number of ranks.

    python prepare.py ../../../testdata/text/prose.txt /tmp/authors
    python -m torch.distributed.run --standalone --nproc_per_node 2 train.py /tmp/authors/data RUN
    ... kill -9 it, then continue with three ranks, or without torchrun with one:
    python -m torch.distributed.run --standalone --nproc_per_node 3 train.py /tmp/authors/data RUN

The loss curve, RUN/curve.jsonl, is the same for any number of ranks and any number of
kills: the global batches are the same, and the loss is the mean over the global batch. Only the
order in which numbers are added differs.
"""

from __future__ import annotations

import argparse
import json
import os
import zlib
from pathlib import Path
from typing import Any, Iterable

import torch
import torch.distributed as dist
from torch import nn

import shardtool

BUCKETS = 2048


def features(texts: "Iterable[str]") -> torch.Tensor:
    """How often each group of three letters occurs, of shape (texts, BUCKETS)."""
    rows = []
    for text in texts:
        data = text.lower().encode()
        found = torch.tensor([zlib.crc32(data[i : i + 3]) % BUCKETS for i in range(len(data) - 2)], dtype=torch.long)
        rows.append(torch.bincount(found, minlength=BUCKETS))
    return torch.stack(rows).float().sqrt() if rows else torch.zeros(0, BUCKETS)


class Run:
    """The files of a run: checkpoint and curve, which rank 0 writes, and what each rank saw."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.rank, self.world = folder, rank, world
        self.step = 0

    def load(self, **parts: Any) -> None:
        """Restores everything from the checkpoint, if there is one."""
        path = self.folder / "checkpoint.pt"
        if path.exists():
            saved = torch.load(path)
            self.step = saved.pop("step")
            for name, part in parts.items():
                part.load_state_dict(saved[name])
        if self.rank == 0:  # the steps after the checkpoint are repeated
            curve = self.folder / "curve.jsonl"
            kept = [line for line in curve.read_text().splitlines() if json.loads(line)["step"] < self.step] if curve.exists() else []
            curve.write_text("".join(line + "\n" for line in kept))

    def save(self, **parts: Any) -> None:
        """Writes the checkpoint atomically: model, optimizer and place in the data are of one
        step."""
        if self.rank == 0:
            temporary = self.folder / "checkpoint.tmp"
            torch.save({"step": self.step, **{name: part.state_dict() for name, part in parts.items()}}, temporary)
            os.replace(temporary, self.folder / "checkpoint.pt")

    def log(self, loss: float, batch: shardtool.Batch) -> None:
        """Notes the step."""
        if self.rank == 0:
            with open(self.folder / "curve.jsonl", "a") as file:
                file.write(json.dumps({"step": self.step, "epoch": batch.epoch, "loss": loss}) + "\n")
        with open(self.folder / f"samples-{self.rank}-of-{self.world}.jsonl", "a") as file:
            file.write(json.dumps({"step": self.step, "first": batch.first, "numbers": batch.numbers}) + "\n")


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data set that prepare.py made")
    parser.add_argument("run", type=Path, help="folder for checkpoint and curve")
    parser.add_argument("--steps", type=int, default=200, help="steps of the whole run (200)")
    parser.add_argument("--cache", help="folder on a local disk for what was read from a bucket")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints (10)")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:  # torchrun
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

    net = nn.Sequential(nn.Linear(BUCKETS, 32), nn.ReLU(), nn.Linear(32, 2))
    model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    run = Run(args.run, rank, world)
    # The global batch is given, not that of a rank: so it stays the same on any number of ranks.
    with shardtool.Loader(
        args.data,
        order=shardtool.Order(global_batch=64),
        shuffle=True,
        seed=7,
        fields={"txt": "txt", "cls": "int"},
        cache=args.cache,
        tail="wrap",  # full batches, the same for any number of processes
    ) as loader:
        parts = {"model": net, "optimizer": optimizer, "loader": loader}
        run.load(**parts)
        while run.step < args.steps:
            for batch in loader:
                total = nn.functional.cross_entropy(model(features(batch["txt"])), batch["cls"], reduction="sum")
                optimizer.zero_grad()
                # DistributedDataParallel takes the mean over the ranks; this makes it the mean over
                # the global batch.
                (total * world / batch.global_size).backward()
                optimizer.step()
                total = total.detach()
                if world > 1:
                    dist.all_reduce(total)
                run.log(total.item() / batch.global_size, batch)
                run.step += 1
                if run.step % args.save_every == 0:
                    run.save(**parts)
                if run.step == args.steps:
                    break
        run.save(**parts)
        if rank == 0:
            print(f"step {run.step}, epoch {loader.epoch}, loss {total.item() / batch.global_size:.4f}")


if __name__ == "__main__":
    main()
