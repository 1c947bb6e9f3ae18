"""shardtool.optimize in parts: what a process takes from its environment, and that parts together
are one data set. engines.py runs parts on Ray, Dask and Spark."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import run
from optimize_help import content, samples

import shardtool
from shardtool import ConfigError, ExistsError, ShardtoolError, optimize
from shardtool._write import engines
from shardtool._write.parts import mine, share

INPUTS = 1000
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}  # the script of a batch job has these too


def options() -> Any:
    return {"fields": {"last": "float"}, "attrs": {"label": "cls"}, "shard_size": "64KiB", "block_size": "16KiB", "source": "test"}


@pytest.mark.parametrize(
    "env, want",
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        (BATCH, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "2"}, [3]),
        ({"SLURM_ARRAY_TASK_ID": "3", **BATCH}, [3]),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, [3]),
        ({"JOB_COMPLETION_INDEX": "7"}, [7]),
        ({"JOB_COMPLETION_INDEX": "7", "SLURM_ARRAY_TASK_ID": "7"}, [7]),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "SLURM_STEP_NUM_TASKS": "3"}, [1, 4, 7]),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}, [0]),
    ],
    ids=str,
)
def test_mine(env: Dict[str, str], want: List[int]) -> None:
    assert list(mine(8, None, env)) == want and list(mine(8, 5, env)) == [5]


@pytest.mark.parametrize(
    "env, why",
    [
        ({"SLURM_ARRAY_TASK_ID": "8"}, "SLURM_ARRAY_TASK_ID is 8: parts count from 0, so that parts=8 takes the numbers 0-7"),
        ({"SLURM_ARRAY_TASK_ID": "-1"}, "is -1"),
        ({"JOB_COMPLETION_INDEX": "x"}, "JOB_COMPLETION_INDEX is 'x', no number: give part"),
        ({"JOB_COMPLETION_INDEX": "1", "SLURM_ARRAY_TASK_ID": "2"}, "SLURM_ARRAY_TASK_ID is 2 and JOB_COMPLETION_INDEX is 1: give part"),
        ({"SLURM_ARRAY_TASK_ID": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, "is 2 for each of the 2 tasks that were started"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "9"}, "parts=8: 9 tasks were started"),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "2"}, "SLURM_PROCID is 2 and SLURM_STEP_NUM_TASKS is 2"),
    ],
    ids=str,
)
def test_wrong_environment(env: Dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        mine(8, None, env)


def test_share() -> None:
    for n in (0, 1, 7, 8, 1000):
        cuts = [share(range(n), p, 8) for p in range(8)]
        assert [i for lo, hi in cuts for i in range(lo, hi)] == list(range(n))
        assert max(hi - lo for lo, hi in cuts) - min(hi - lo for lo, hi in cuts) <= 1


def test_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process writes all parts; tasks of an array write one each, in any order, with other
    numbers of processes; tasks of srun write several."""
    whole = optimize(samples, (i for i in range(INPUTS)), tmp_path / "whole", workers=0, parts=4, **options())
    assert whole["published"] and whole["samples"] == whole["written"] == 2 * INPUTS
    keys = run("ls", tmp_path / "whole").stdout.split()
    assert keys == [f"{i:06d}/{k}" for i in range(INPUTS) for k in range(i % 5)]
    for task, workers in ((2, 0), (0, 2), (2, 1), (3, 0), (1, 3)):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        result = optimize(samples, range(INPUTS), tmp_path / "array", workers=workers, parts=4, **options())
        assert result["published"] == (task == 1)
    assert content(tmp_path / "array") == content(tmp_path / "whole")
    monkeypatch.delenv("SLURM_ARRAY_TASK_ID")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    for task in (0, 2, 1):
        monkeypatch.setenv("SLURM_PROCID", str(task))
        result = optimize(samples, range(INPUTS), tmp_path / "srun", workers=0, parts=4, **options())
        assert result["published"] == (task == 1) and result["written"] == (1000 if task == 0 else 500)
    assert content(tmp_path / "srun") == content(tmp_path / "whole")
    # A part that was complete is left alone, and its function is not called.
    again = optimize(lambda i: 1 // 0, range(INPUTS), tmp_path / "whole", workers=0, parts=4, part=3, **options())
    assert again["published"] and again["written"] == 0
    # Without parts the environment is ignored.
    assert optimize(samples, range(INPUTS), tmp_path / "one", workers=0, **options())["samples"] == 2 * INPUTS


def test_other_inputs(tmp_path: Path) -> None:
    """Parts of other inputs, or of another number of parts, are not mixed."""
    given = {"fn": lambda i: {"x": i}, "url": tmp_path / "out", "workers": 0}
    optimize(inputs=range(100), parts=2, part=0, **given)  # type: ignore[arg-type]
    with pytest.raises(ShardtoolError, match="other sources"):
        optimize(inputs=range(99), parts=2, part=0, **given)  # type: ignore[arg-type]
    with pytest.raises(ShardtoolError, match=r"part-data-0000-of-0002\.bin|other"):
        optimize(inputs=range(100), parts=3, part=0, **given)  # type: ignore[arg-type]
    optimize(inputs=range(100), parts=2, part=1, **given)  # type: ignore[arg-type]
    with pytest.raises(ExistsError):
        optimize(inputs=range(99), parts=2, **given)  # type: ignore[arg-type]


def test_workers_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative url is that of the program, not of the directories in which an engine's workers
    run."""

    def engine(job: Any, tasks: Any, _: Any) -> Any:
        (tmp_path / "worker").mkdir()
        os.chdir(tmp_path / "worker")
        yield from [engines._run(job, task) for task in tasks]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(engines._ENGINES, "dask", engine)
    optimize(samples, range(10), "out", engine="dask", parts=2, **options())
    assert run("ls", tmp_path / "out").stdout and list((tmp_path / "worker").iterdir()) == []


def test_notes(tmp_path: Path) -> None:
    """The number of an input is that of the whole list."""

    def fails(i: int) -> Any:
        if i == 70:
            raise KeyError("lost")
        return {"x": i}

    for workers in (0, 2):
        with pytest.raises(KeyError, match="lost") as caught:
            optimize(fails, range(100), tmp_path / "out", workers=workers, parts=3)
        if hasattr(caught.value, "__notes__"):
            assert "input number 70" in " ".join(caught.value.__notes__)


def test_killed(tmp_path: Path) -> None:
    """kill -9 of a process that writes several parts."""
    whole = optimize(samples, range(INPUTS), tmp_path / "whole", workers=0, parts=4, **options())
    script = Path(__file__).with_name("optimize_help.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(shardtool.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    rng = random.Random(11)
    last = ""
    for turn in range(40):
        command = [sys.executable, str(script), str(tmp_path / "out"), str(INPUTS), "0", "0.0005", "4"]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert job.stdout is not None
        job.stdout.readline()
        if turn < 3:
            time.sleep(0.2 + rng.random() * 0.4)
            os.kill(job.pid, signal.SIGKILL)
        last = job.stdout.read()
        job.stdout.close()
        if job.wait() == 0:
            break
        assert run("ls", tmp_path / "out", check=False).returncode == 6 or content(tmp_path / "out") == content(tmp_path / "whole")
    assert last.split()[0] == whole["digest"] and content(tmp_path / "out") == content(tmp_path / "whole")


def test_twice(tmp_path: Path) -> None:
    """Two processes that write the same parts at the same time, as when a scheduler takes one for
    dead: both succeed, and the data set is that of one."""
    whole = optimize(samples, range(INPUTS), tmp_path / "whole", workers=0, parts=2, **options())
    script = Path(__file__).with_name("optimize_help.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(shardtool.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(script), str(tmp_path / "out"), str(INPUTS), "0", "0.0003", "2"]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    for job in jobs:
        text = job.communicate(timeout=300)[0]
        assert job.returncode == 0 and text.split()[1] == whole["digest"]
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_arguments(tmp_path: Path) -> None:
    for wrong, why in (
        ({"part": 1}, "give parts too"),
        ({"parts": 0}, "parts=0"),
        ({"parts": 2, "part": 2}, "part=2, parts=2"),
        ({"parts": "two"}, "parts='two'"),
        ({"engine": "beam", "parts": 2}, "engine='beam'"),
        ({"engine": "ray"}, "engine='ray': give parts"),
        ({"engine": "ray", "parts": 2, "part": 1}, "an engine writes all parts"),
        ({"engine": "ray", "parts": 2, "workers": 3}, "one process each"),
        ({"engine": "ray", "parts": 0}, "parts=0"),
        ({"task_options": {}}, "give engine too"),
        ({"parts": 2, "rank": 0, "world_size": 2}, "rank and world_size: give parts"),
    ):
        with pytest.raises(ConfigError, match=why):
            optimize(samples, range(3), tmp_path, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine, module", [("ray", "ray"), ("dask", "distributed"), ("spark", "pyspark.sql")])
def test_engine_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"engine='{engine}'.*pip install 'shardtool\[{engine}\]'"):
        optimize(samples, range(3), tmp_path / "out", engine=engine, parts=2)
