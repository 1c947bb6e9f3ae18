"""The example of batch inference: killed, continued, and read by key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, run
from optimize_help import content

import shardtool

pytest.importorskip("pyarrow")

N = 1000


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("answers") / "prompts"
    with shardtool.Writer(url, block_size="4KiB") as w:
        for i in range(N):
            w.write({"__key__": f"q/{i:05d}", "text": f"prompt number {i}", "id": i})
    return url


def start(prompts: Path, out: Path, rank: int, world: int, seconds: float) -> "subprocess.Popen[str]":
    script = ROOT / "python" / "examples" / "answers" / "answer.py"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "RANK": str(rank), "WORLD_SIZE": str(world)}
    command = [
        sys.executable,
        str(script),
        str(prompts),
        str(out),
        "--batch-size",
        "16",
        "--shard-samples",
        "40",
        "--seconds",
        str(seconds),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def answered(job: Any) -> str:
    text = job.communicate(timeout=300)[0]
    assert job.returncode == 0
    return str(text)


@pytest.mark.parametrize("world", [1, 3])
def test_killed(prompts: Path, tmp_path: Path, world: int) -> None:
    whole = [start(prompts, tmp_path / "whole", rank, world, 0) for rank in range(world)]
    assert sum("published 1000 answers" in answered(job) for job in whole) >= 1
    out = tmp_path / "out"
    slow = start(prompts, out, world - 1, world, 0.02)
    end = time.monotonic() + 300
    while len(list(out.glob("data-*"))) < 2:  # two shards are complete
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(slow.pid, signal.SIGKILL)
    slow.communicate()
    for rank in range(world):
        text = answered(start(prompts, out, rank, world, 0))
        assert (f"rank {rank}: 0 answers" in text) == (rank < world - 1)
        assert ("published" in text) == (rank == world - 1)
    assert content(out) == content(tmp_path / "whole")
    keys = run("ls", out).stdout.split()
    assert sorted(keys) == [f"q/{i:05d}" for i in range(N)]
    with shardtool.open(out) as answers, shardtool.open(prompts) as asked:
        assert answers["q/00007"] == {"answer": "7 number prompt"} and asked["q/00007"]["id"] == 7
