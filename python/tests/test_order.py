"""Batches and keys are those of `shardtool cat --json`, for every split, and through resumes."""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import ROOT, SAMPLES, cat, in_groups

import shardtool
from shardtool import Loader

ORDERS: List[Dict[str, Any]] = [
    {},
    {"shuffle": True, "seed": 7, "lanes": 6, "delay": 3},
    {"shuffle": True, "seed": 2**64 - 1, "tail": "pad", "lanes": 8, "delay": 2},
    {"shuffle": True, "tail": "drop", "epoch": 3, "shuffle_memory": "4MiB"},
    {"shuffle": True, "tail": "wrap", "affinity": "run", "run_blocks": 2, "lanes": 4, "delay": 2, "head": 1},
]


def flags(order: Dict[str, Any]) -> List[str]:
    out = []
    for name, value in order.items():
        out.append(f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}"))
    return out


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("order", ORDERS)
def test_same_as_cat(small: Path, order: Dict[str, Any], world: int) -> None:
    order = {"tail": "short", **order}  # the default of Python is another one
    lengths = set()
    for rank in range(world):
        said = cat(
            small,
            *flags(order),
            "--epochs=2",
            "--global-batch=96",
            f"--world-size={world}",
            f"--rank={rank}",
            "--checkpoints",
        )
        want: List[Any] = [[]]
        for line in said:
            if "checkpoint" in line:
                want[-1] = (want[-1], line["checkpoint"])
                want.append([])
            else:
                want[-1].append((line["number"], line.get("key"), line["epoch"], line["position"]))
        got = []
        with Loader(small, **in_groups(global_batch=96, rank=rank, world_size=world, epochs=2, fields=["txt"], **order)) as loader:
            for e in range(2):
                assert loader.epoch == order.get("epoch", 0) + e
                length = len(loader)
                count = 0
                for batch in loader:
                    places = []
                    for i in range(batch.size):
                        at = batch.position + batch.first + i
                        padded = i >= batch.size - batch.padding
                        places.append((batch.epoch, at) if padded else (batch.epoch + at // SAMPLES, at % SAMPLES))
                    lines = [(n, k, *p) for n, k, p in zip(batch.numbers, batch.sample_keys, places)]
                    assert batch.state_dict() == loader.state_dict()
                    got.append((lines, json.loads(batch.checkpoint)))
                    count += 1
                    assert len(loader) == length
                assert count == length
                lengths.add((e, length))
        assert got == want[:-1]
    assert len(lengths) == 2  # the same on all ranks


def test_payloads(small: Path) -> None:
    from conftest import RAW, payload

    seen = set()
    with Loader(small, 64, shuffle=True, seed=3, tail="short", fields=RAW) as loader:
        for batch in loader:
            assert list(batch) == sorted(payload(0))
            for i, key in enumerate(batch["__key__"]):
                want = payload(int(key[1:]))
                assert {name: batch[name][i] for name in batch if batch[name][i] is not None} == want
                seen.add(key)
    assert len(seen) == SAMPLES


def whole_epochs(seen: List[int], epochs: int) -> None:
    """Batches assembled from the parts of their ranks, in order: each sample is delivered once in
    each epoch."""
    assert len(seen) >= epochs * SAMPLES
    for epoch in range(epochs):
        assert sorted(seen[epoch * SAMPLES : (epoch + 1) * SAMPLES]) == list(range(SAMPLES)), epoch


def test_elastic(small: Path) -> None:
    """Jobs of many sizes, each stopped somewhere, each resumed from any rank's state."""
    rng = random.Random(5)
    seen: List[int] = []
    state: Any = None
    job = 0
    while len(seen) < 3 * SAMPLES:
        job += 1
        world, steps = rng.choice([1, 2, 3, 5, 8]), rng.randrange(1, 9)
        states, parts = [], []
        for rank in range(world):
            loader = Loader(small, 10 + job, rank=rank, world_size=world, shuffle=True, seed=11, tail="wrap", fields=[])
            if state is not None:
                loader.load_state_dict(state)
            numbers: List[List[int]] = []
            while len(numbers) < steps:
                for batch in loader:
                    numbers.append(batch.numbers)
                    if len(numbers) == steps:
                        break
            parts.append(numbers)
            states.append(loader.state_dict())
            loader.close()
        for step in range(steps):
            for numbers in parts:
                seen += numbers[step]
        assert all(s == states[0] for s in states)
        state = json.loads(json.dumps(rng.choice(states)))
    whole_epochs(seen, 3)
    place = json.loads(state["checkpoint"])
    assert place["epoch"] * SAMPLES + place["position"] == len(seen)


RANK = """
import json, sys, shardtool
url, rank, world, batch, state = sys.argv[1:]
order = {"shuffle": True, "seed": 4, "tail": "wrap", "epochs": 2}
loader = shardtool.Loader(url, int(batch), rank=int(rank), world_size=int(world), fields=["bin"], **order)
if state != "null":
    loader.load_state_dict(json.loads(state))
while loader.epoch < 2:
    for b in loader:
        b["bin"]
        print(json.dumps([b.numbers, loader.state_dict()]), flush=True)
"""


def test_killed(small: Path) -> None:
    """Jobs whose ranks are killed, each at its own step, resume on other numbers of ranks from the
    last step that all ranks have reported: each sample is delivered exactly once an epoch."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    state = "null"
    seen: List[int] = []
    rng = random.Random(9)
    for world, batch in [(3, 11), (2, 24), (4, 9), (1, 30)]:
        ranks = []
        for rank in range(world):
            args = [sys.executable, "-c", RANK, str(small), str(rank), str(world), str(batch), state]
            ranks.append(subprocess.Popen(args, stdout=subprocess.PIPE, text=True, env=env))
        told = []
        for process in ranks:
            assert process.stdout is not None
            lines = []
            stop = rng.randrange(6, 14) if world > 1 else 10**9
            for line in process.stdout:
                lines.append(json.loads(line))
                if len(lines) == stop:
                    process.kill()
                    break
            told.append(lines)
            process.stdout.close()
            assert process.wait(300) in ((-9, 0) if world > 1 else (0,))  # it may have been done
        steps = min(map(len, told))
        for step in range(steps):
            assert len({json.dumps(lines[step][1]) for lines in told}) == 1
            for lines in told:
                seen += lines[step][0]
        state = json.dumps(told[0][steps - 1][1])
    whole_epochs(seen, 2)


def test_length(small: Path) -> None:
    """It counts the whole epoch, wherever one is in it, and needs the environment's world size and
    nothing more."""
    for tail, want in [("short", [16, 16, 16]), ("drop", [15, 15, 15]), ("pad", [16, 16, 16]), ("wrap", [16, 16, 15])]:
        with Loader(small, 64, shuffle=True, tail=tail, fields=[]) as loader:
            assert len(loader) == want[0]
            it = iter(loader)
            for _ in range(5):
                next(it)
            assert len(loader) == want[0]
            copied = pickle.loads(pickle.dumps(loader))
        with copied as loader:
            assert len(loader) == want[0]
            assert sum(1 for _ in loader) == want[0] - 5
            for length in want[1:]:
                assert len(loader) == length
                assert sum(1 for _ in loader) == length


def test_environment(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with Loader(small, 25, fields=[]) as loader:
        assert (loader.rank, loader.world_size, len(loader)) == (2, 4, 10)
        assert next(iter(loader)).numbers == [
            x["number"] for x in cat(small, "--global-batch=100", "--world-size=4", "--rank=2", "--limit=25")
        ]
    monkeypatch.setenv("RANK", "4")
    with Loader(small, 25, fields=[]) as loader, pytest.raises(shardtool.ConfigError, match="rank 4 of 4"):
        iter(loader)
    with Loader(small, 25, rank=1, world_size=3, fields=[]) as loader:
        assert (loader.rank, loader.world_size) == (1, 3)


def test_little_mixing(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An order that mixes little is reported before the first batch, once, by rank 0, in Python's
    terms."""

    def said(**order: Any) -> str:
        caplog.clear()
        with (
            caplog.at_level(logging.WARNING, "shardtool"),
            Loader(small, **in_groups(global_batch=96, epochs=1, shuffle=True, **order)) as loader,
        ):
            next(iter(loader))
            return "\n".join(r.getMessage() for r in caplog.records if "mixed little" in r.getMessage())

    text = said(lanes=1, delay=1)
    assert text.count("mixed little") == 1 and "Give a new run" in text and "shuffle_memory=" in text and "--" not in text
    assert not said(lanes=1, delay=1, rank=1, world_size=2)
    assert not said()
