"""The loops of examples/loops: each killed twice with SIGKILL, and resumed. The losses of all
steps and the weights at the end are those of a run that nothing happened to, to the bit.

`make test-compat` runs them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from conftest import ROOT

import shardtool

LOOPS = ROOT / "python" / "examples" / "loops"
SAMPLES, BATCH, EPOCHS = 1000, 32, 5
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("loops") / "data"
    generator = torch.Generator().manual_seed(1)
    with shardtool.Writer(url, fields={"x.npy": "npy", "cls": "int"}, block_size="16KiB") as w:
        for _ in range(SAMPLES):
            x = torch.randn(16, generator=generator)
            w.write({"x.npy": x, "cls": int(x[:10].argmax())})
    return url


def start(loop: str, data: Path, run: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "ignore", LOOPS / loop, data, run, "--epochs", EPOCHS]
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENV, start_new_session=True
    )


def log(run: Path) -> List[Dict[str, Any]]:
    try:
        return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines() if line.endswith("}")]
    except FileNotFoundError:
        return []


def kill(loop: str, data: Path, run: Path, step: int) -> None:
    """Runs the loop until it has done a step, and kills it and its workers."""
    process = start(loop, data, run)
    try:
        deadline = time.monotonic() + 200
        while not any(line["step"] >= step for line in log(run)):
            assert process.poll() is None and time.monotonic() < deadline, process.stdout and process.stdout.read()
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finish(loop: str, data: Path, run: Path) -> None:
    process = start(loop, data, run)
    out, _ = process.communicate(timeout=250)
    assert process.returncode == 0, out


@pytest.mark.parametrize("loop", sorted(path.name for path in LOOPS.glob("*.py")))
def test_killed_and_resumed(data: Path, tmp_path: Path, loop: str) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    finish(loop, data, whole)
    want = log(whole)
    assert [line["step"] for line in want] == list(range(1, EPOCHS * (SAMPLES // BATCH) + 1))
    draw = random.Random(loop)
    for low in (25, 85):
        kill(loop, data, run, low + draw.randrange(40))
    finish(loop, data, run)
    got = log(run)
    assert len(got) > len(want)  # some steps were repeated
    assert all(line == want[line["step"] - 1] for line in got) and {line["step"] for line in got} == set(range(1, len(want) + 1))
    ours, theirs = (torch.load(folder / "final.pt") for folder in (run, whole))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
