"""Prints what a small network learns from data that is stored class by class, in the order of
shardtool and in a uniform one: the share of test samples that it classifies correctly.

    python bench/peers/learning.py [SHARDTOOL]

100,000 samples of 20 KB, 1,000 of each of 100 classes, are packed class by class. `shardtool order`
lists them. A perceptron of two layers learns in that order, in batches of 256, for three epochs: at
a constant rate, at which what it saw last counts most, and at one that falls to 0. Each seed is
that of the order, of the weights and of the uniform permutation.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Callable, Dict, List

import numpy as np
import torch
from torch import nn

CLASSES, SAMPLES, SIZE, BATCH, EPOCHS, SEEDS, WIDTH = 100, 100_000, 20_000, 256, 3, 5, 64

Order = Callable[[int], np.ndarray]


def packed(shardtool: str, out: Path) -> Path:
    """Packs the samples, whose keys are their numbers. Their bytes do not count: `order` reads no
    payload."""
    with subprocess.Popen([shardtool, "pack", "-", str(out), "--quiet"], stdin=subprocess.PIPE) as child:
        payload = bytes(SIZE)
        with tarfile.open(fileobj=child.stdin, mode="w|") as tar:
            for i in range(SAMPLES):
                info = tarfile.TarInfo(f"{i:06}.x")
                info.size = SIZE
                tar.addfile(info, io.BytesIO(payload))
        assert child.stdin is not None
        child.stdin.close()
    assert child.returncode == 0
    return out


def ordered(shardtool: str, data: Path, *options: str) -> Order:
    """The samples of some epochs."""

    def of(seed: int) -> np.ndarray:
        command = [
            shardtool,
            "order",
            str(data),
            "--keys",
            "--shuffle",
            "--seed",
            str(seed),
            "--global-batch",
            str(BATCH),
            "--epochs",
            str(EPOCHS),
        ]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            assert child.stdout is not None
            return np.fromiter((int(json.loads(line)["key"]) for line in child.stdout), np.int64)

    return of


def uniform(seed: int) -> np.ndarray:
    """A permutation for each epoch."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(SAMPLES) for _ in range(EPOCHS)])


def learned(order: np.ndarray, seed: int, falls: bool) -> float:
    """Trains on the samples in an order. Returns the percentage of test samples classified right."""
    rng = np.random.default_rng(1)  # the same data for all
    centers = rng.normal(size=(CLASSES, WIDTH)).astype("f4")
    near = rng.normal(size=(WIDTH, WIDTH)).astype("f4") / WIDTH**0.5

    def samples(classes: np.ndarray) -> torch.Tensor:
        x = centers[classes] + 1.35 * rng.normal(size=(len(classes), WIDTH)).astype("f4")
        return torch.from_numpy(np.tanh(x @ near) + 0.2 * x)

    classes = np.arange(SAMPLES) * CLASSES // SAMPLES
    x, y = samples(classes), torch.from_numpy(classes)
    test_y = torch.arange(CLASSES).repeat(200)
    test_x = samples(test_y.numpy())
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    steps = len(order) // BATCH
    descent = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    rate = torch.optim.lr_scheduler.LambdaLR(descent, lambda step: 1 - step / steps if falls else 1.0)
    for step in range(steps):
        of = torch.from_numpy(order[step * BATCH : (step + 1) * BATCH])
        loss = nn.functional.cross_entropy(model(x[of]), y[of])
        descent.zero_grad()
        loss.backward()
        descent.step()
        rate.step()
    with torch.no_grad():
        return 100 * float((model(test_x).argmax(1) == test_y).double().mean())


def main() -> None:
    """Prints the table."""
    shardtool = sys.argv[1] if len(sys.argv) > 1 else "shardtool"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = packed(shardtool, Path(folder, "data"))
        stored = np.random.default_rng(9).permutation(SAMPLES)
        orders: Dict[str, Order] = {
            "uniform": uniform,
            "2 GiB, one reader a host": ordered(shardtool, data, "--host"),
            "2 GiB": ordered(shardtool, data),
            "64 MiB": ordered(shardtool, data, "--shuffle-memory", "64MiB"),
            "64 MiB, packed in random order": lambda seed: stored[ordered(shardtool, data, "--shuffle-memory", "64MiB")(seed)],
            "as stored": lambda seed: np.tile(np.arange(SAMPLES), EPOCHS),
        }
        print("| order | constant rate | falling rate |\n|---|---|---|")
        for name, of in orders.items():
            cells: List[str] = []
            for falls in (False, True):
                got = [learned(of(seed), seed, falls) for seed in range(SEEDS)]
                cells.append(f"{np.mean(got):.2f} ± {np.std(got, ddof=1):.2f} ({min(got):.2f} to {max(got):.2f})")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
