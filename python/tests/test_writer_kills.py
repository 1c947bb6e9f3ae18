"""shardtool.Writer in many processes, and what a kill leaves."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import children, run
from test_writer import read
from writer_help import sample

import shardtool
from shardtool import Writer

#: How many runs a test kills; `make test-kills` takes 100.
KILLS = int(os.environ.get("SHARDTOOL_TEST_KILLS", "12"))


def test_ranks(tmp_path: Path) -> None:
    """Parts in any order; a rank that repeats itself changes nothing; the last one publishes."""
    url = tmp_path / "out"
    for rank, published in ((2, False), (0, False), (0, False), (1, True), (0, True), (1, True)):
        with Writer(url, rank=rank, world_size=3, attrs={"n": "x"}) as w:
            for i in range(w.resume_from, 10):
                w.write({"x": 10 * rank + i, **({"only": "here"} if rank == 1 else {})})
        assert w.result is not None and w.result["published"] == published
    got = read(url)
    assert [g["x"] for g in got] == list(range(30)) and got[10]["__key__"] == "00001-000000000" and got[10]["only"] == "here"


def test_ranks_that_disagree(tmp_path: Path) -> None:
    with Writer(tmp_path, rank=0, world_size=2) as w:
        w.write({"x": 1})
    with (
        pytest.raises(shardtool.ShardtoolError, match='field "x" is int in part 0 and txt in part 1'),
        Writer(tmp_path, rank=1, world_size=2) as w,
    ):
        w.write({"x": "a"})


def program(url: Path, samples: int, pause: float) -> "subprocess.Popen[str]":
    script = Path(__file__).with_name("writer_help.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(shardtool.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, str(script), str(url), str(samples), str(pause)], stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.parametrize("kill", ["parent", "child"])
def test_killed(tmp_path: Path, kill: str) -> None:
    """kill -9 of the program, or of its child, at random points: nothing is visible, and the runs
    together publish the bytes of one that was not killed."""
    samples = 8000
    with Writer(tmp_path / "whole", attrs={"label": "cls"}, on_exists="resume", shard_size="64KiB", block_size="16KiB") as w:
        for i in range(samples):
            w.write(sample(i))
    assert w.result is not None
    rng = random.Random(5)
    left = KILLS
    while left > 0:
        signal.alarm(600)
        left -= killed_often(tmp_path / "whole", tmp_path / f"out{left}", rng, kill, samples, min(left, 12))


def killed_often(whole: Path, url: Path, rng: random.Random, kill: str, samples: int, kills: int) -> int:
    """Writes a data set in runs of which up to ``kills`` are killed, and returns how many were."""
    begins, killed = [], 0
    for _ in range(200):
        job = program(url, samples, 0.01)
        assert job.stdout is not None
        begins.append(int(job.stdout.readline()))
        time.sleep(rng.random() * 0.25)
        while killed == kills - 1 and job.poll() is None and not list(url.glob("data-*")):
            time.sleep(0.01)  # on a busy machine no run may have come to a shard
        victim = job.pid if kill == "parent" else next(iter(children(job.pid)), job.pid)
        if killed < kills:
            killed += 1
            os.kill(victim, signal.SIGKILL)
        last = job.stdout.read()
        status = job.wait()
        job.stdout.close()
        if status == 0:
            break
        # Nothing is visible, or all of it: the kill came after the publication.
        manifest = url / "manifest.json"
        assert not manifest.exists() or manifest.read_bytes() == (whole / "manifest.json").read_bytes()
    assert begins == sorted(begins) and (kills < 4 or (begins[-1] > 0 and killed > 3))
    got = read(url)
    assert got[0]["early"] == 1.5 and len(got) == samples
    assert last.strip() == json.loads(run("inspect", whole, "--json").stdout)["digest"]
    assert last.strip() == json.loads(run("inspect", url, "--json").stdout)["digest"]
    assert (url / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()
    return killed
