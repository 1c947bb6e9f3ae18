"""shardtool.optimize: the same bytes for any number of processes, and after kills."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from conftest import run
from optimize_help import content, samples
from test_writer import read

import shardtool
from shardtool import ConfigError, EncodeError, ShardtoolError, optimize
from shardtool._write import progress

INPUTS = 3000

#: How many runs a test kills; `make test-kills` takes 100.
KILLS = int(os.environ.get("SHARDTOOL_TEST_KILLS", "10"))


def options() -> Any:
    return {"fields": {"last": "float"}, "attrs": {"label": "cls"}, "shard_size": "64KiB", "block_size": "16KiB", "source": "test"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by this process alone."""
    url = tmp_path_factory.mktemp("optimize") / "whole"
    assert optimize(samples, range(INPUTS), url, workers=0, **options())["samples"] == sum(i % 5 for i in range(INPUTS))
    return url


@pytest.mark.parametrize("workers", [1, 3])
def test_same_bytes(tmp_path: Path, whole: Path, workers: int) -> None:
    optimize(samples, (i for i in range(INPUTS)), tmp_path / "out", workers=workers, **options())
    assert content(tmp_path / "out") == content(whole)
    keys = run("ls", whole).stdout.split()
    assert keys == [f"{i:06d}/{k}" for i in range(INPUTS) for k in range(i % 5)]
    again = optimize(samples, range(INPUTS), tmp_path / "out", workers=workers, **options())
    assert again["written"] == 0 and again["samples"] == len(keys)


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines about the inputs that are left, and none where they are not wanted."""
    monkeypatch.setattr(progress, "ELSEWHERE", 0.0)
    optimize(samples, range(40), tmp_path / "out", workers=1, **options())
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith(f"optimize {tmp_path / 'out'}: ") for line in lines)
    assert ": 40 of 40 inputs, " in lines[-1] and lines[-1].endswith(" left")
    optimize(samples, iter(range(40)), tmp_path / "parts", workers=0, **options())
    assert ": 40 inputs, " in capsys.readouterr().err
    optimize(samples, range(40), tmp_path / "quiet", workers=0, progress=False, **options())
    assert capsys.readouterr().err == ""


def test_killed(tmp_path: Path, whole: Path) -> None:
    """kill -9 at random points, with another number of processes each time."""
    script = Path(__file__).with_name("optimize_help.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(shardtool.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    rng = random.Random(3)
    left = KILLS
    while left > 0:
        signal.alarm(600)
        left -= killed_often(whole, tmp_path / f"out{left}", rng, [sys.executable, str(script)], env, min(left, 10))


def killed_often(whole: Path, url: Path, rng: random.Random, command: List[str], env: Any, kills: int) -> int:
    """Writes a data set in runs of which up to ``kills`` are killed, and returns how many were."""
    killed, last = 0, ""
    for turn in range(100):
        job = subprocess.Popen(
            [*command, str(url), str(INPUTS), str(turn % 4), "0.001"],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert job.stdout is not None
        job.stdout.readline()
        if killed < kills:
            time.sleep(0.3 + rng.random() * 0.7)
            while killed == kills - 1 and job.poll() is None and not list(url.glob("data-*")):
                time.sleep(0.01)  # on a busy machine no run may have come to a shard
            killed += 1
            os.kill(job.pid, signal.SIGKILL)
        last = job.stdout.read()
        job.stdout.close()
        if job.wait() == 0:
            break
        # Nothing is visible, or all of it: the kill came after the publication.
        assert run("ls", url, check=False).returncode == 6 or content(url) == content(whole)
    assert kills < 4 or (killed > 3 and int(last.split()[1]) > 0)
    assert content(url) == content(whole)
    return killed


def test_process_killed(tmp_path: Path) -> None:
    """A process that dies, such as for lack of memory, is an error, not a hang."""

    def dies(i: int) -> Any:
        if i == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": i}

    with pytest.raises(ShardtoolError, match="was killed at input number"):
        optimize(dies, range(100), tmp_path / "out", workers=2)
    assert run("ls", tmp_path / "out", check=False).returncode == 6


@pytest.mark.parametrize("method", ["", "fork", "spawn"])
def test_start_methods(tmp_path: Path, method: str) -> None:
    """Any function works without a choice, whatever Python's default is. A program may choose."""
    text = f"""
import multiprocessing, sys, shardtool
def top(i):
    return {{"x": i}}
if __name__ == "__main__":
    if {method!r}:
        multiprocessing.set_start_method({method!r})
    multiprocessing.Queue()  # makes the default the method of the program
    print(shardtool.optimize(top, range(20), sys.argv[1], workers=2)["samples"])
    print(shardtool.optimize(lambda i: {{"x": i}}, range(20), sys.argv[1] + "2", workers=2)["samples"])
"""
    script = tmp_path / "script.py"
    script.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(Path(shardtool.__file__).parents[1])}
    command = [sys.executable, str(script), str(tmp_path / "out")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    if method != "spawn":
        assert (done.stdout, done.returncode) == ("20\n20\n", 0), done.stderr
        return
    assert done.stdout == "20\n"
    assert "cannot be sent to processes started by spawn: define it at the top of a module, or give workers=0" in done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_exception(tmp_path: Path, workers: int) -> None:
    def fails(i: int) -> Any:
        if i == 70:
            raise KeyError("lost")
        return {"x": i}

    with pytest.raises(KeyError, match="lost") as caught:
        optimize(fails, range(100), tmp_path / "out", workers=workers)
    if hasattr(caught.value, "__notes__"):
        assert "input number 70" in " ".join(caught.value.__notes__)
    assert run("ls", tmp_path / "out", check=False).returncode == 6

    class Odd(Exception):  # cannot be sent to another process
        def __init__(self, a: int, b: int) -> None:
            super().__init__("odd")

    def odd(i: int) -> Any:
        raise Odd(1, 2)

    with pytest.raises(Odd if workers == 0 else ShardtoolError, match="odd"):
        optimize(odd, range(3), tmp_path / "out", workers=workers)


def test_ends_processes(tmp_path: Path) -> None:
    """An error leaves no process and no thread, although it refers to what the call was doing."""
    threads = threading.active_count()
    with pytest.raises(EncodeError, match="fn returned int") as caught:
        optimize(lambda i: i, range(20), tmp_path / "out", workers=2)
    assert caught.value is not None
    assert multiprocessing.active_children() == [] and threading.active_count() == threads


@pytest.mark.parametrize("workers", [0, 2])
def test_types(tmp_path: Path, workers: int) -> None:
    """Inputs that disagree on the type of a field."""
    optimize(lambda i: {"x": 0.5 if i == 0 else i}, range(20), tmp_path / "ok", workers=workers)
    assert [s["x"] for s in read(tmp_path / "ok")] == [0.5, *range(1, 20)]
    with pytest.raises(EncodeError, match="field 'x' is txt, and int in earlier samples"):
        optimize(lambda i: {"x": "a" if i == 11 else i}, range(20), tmp_path / "no", workers=workers)
    with pytest.raises(EncodeError, match="samples are dicts"):
        optimize(lambda i: [i], range(20), tmp_path / "no2", workers=workers)
    with pytest.raises(EncodeError, match="fn returned int"):
        optimize(lambda i: i, range(20), tmp_path / "no3", workers=workers)


def test_tables(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")

    def tables(i: int) -> "Iterator[Any]":
        yield pa.table({"__key__": [f"{i}/{k}" for k in range(5)], "x": [i] * 5})
        yield {"__key__": f"{i}/one", "x": -i}

    results = [
        optimize(tables, range(40), tmp_path / f"w{n}", workers=n, samples_per_shard=13, block_size="4KiB")["digest"] for n in (0, 1, 3)
    ]
    assert len(set(results)) == 1
    got = [s["x"] for s in read(tmp_path / "w3")]
    assert got == [x for i in range(40) for x in [i] * 5 + [-i]]
    # A run that stopped in the middle of a table.
    with pytest.raises(ZeroDivisionError):
        optimize(
            lambda i: tables(i) if i < 30 else 1 // 0,
            range(40),
            tmp_path / "r",
            workers=0,
            samples_per_shard=13,
            block_size="4KiB",
            source="t",
        )
    result = optimize(tables, range(40), tmp_path / "r", workers=2, samples_per_shard=13, block_size="4KiB", source="t")
    assert result["resumed"] >= 26 and result["resumed"] % 13 == 0 and [s["x"] for s in read(tmp_path / "r")] == got


@pytest.mark.parametrize("workers", [0, 2])
def test_small_samples(tmp_path: Path, workers: int) -> None:
    """Small samples are in the store while the function makes others."""

    def waits(i: int) -> Any:
        if i == 99:
            end = time.monotonic() + 300
            while not list((tmp_path / "out").glob("data-000000.tar.zst")):
                assert time.monotonic() < end
                time.sleep(0.01)
        if i == 50:
            time.sleep(0.2)  # the work of a process at a time ends before
        return {"x": i}

    assert optimize(waits, range(100), tmp_path / "out", workers=workers, samples_per_shard=20)["samples"] == 100


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_types_apart(tmp_path: Path, workers: int) -> None:
    """The types of an input's samples do not depend on other inputs, whichever process has made
    those."""

    def mixed(i: int) -> Any:
        yield {"x": [0.5, i][i % 2], "y": i}
        if i % 3 == 0:
            yield {"x": 1, "z": [i] if i % 2 else None}
        if i % 5 == 0:
            yield {"x": i, "y": True, "late": str(i)}

    def fails(i: int) -> Any:
        return {"x": 1} if i < 50 else [{"x": 1}, {"x": 0.5}]

    fields = {"y": "json"}
    optimize(mixed, range(400), tmp_path / "out", workers=workers, fields=fields, samples_per_shard=13, block_size="4KiB", source="t")
    if workers:
        optimize(mixed, range(400), tmp_path / "0", workers=0, fields=fields, samples_per_shard=13, block_size="4KiB", source="t")
        assert content(tmp_path / "out") == content(tmp_path / "0")
    with pytest.raises(EncodeError, match="sample '000000001': field 'x': float in a field of type int"):
        optimize(fails, range(60), tmp_path / "no", workers=workers)


def test_torch_threads(tmp_path: Path) -> None:
    """A program that has used torch with several threads forks processes that use torch."""
    pytest.importorskip("torch")
    script = tmp_path / "script.py"
    script.write_text("""
import sys, shardtool, torch
def total(i):
    return {"x": float(torch.ones(1000, 1000).sum())}
torch.set_num_threads(4)
total(0)
print(shardtool.optimize(total, range(8), sys.argv[1], workers=2)["samples"], torch.get_num_threads())
""")
    env = {**os.environ, "PYTHONPATH": str(Path(shardtool.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "out")], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == ["8", "4"], done.stderr


def test_other_inputs(tmp_path: Path) -> None:
    """What is left of a run of other inputs is not continued."""

    def fails(i: int) -> Any:
        if i == 40:
            while not list((tmp_path / "out").glob("data-*.tar.zst")):
                time.sleep(0.01)
            raise ZeroDivisionError
        return {"x": bytes(20_000)}

    with pytest.raises(ZeroDivisionError):
        optimize(fails, range(50), tmp_path / "out", workers=0, samples_per_shard=5)
    with pytest.raises(ShardtoolError, match="other sources"):
        optimize(fails, range(40), tmp_path / "out", workers=0, samples_per_shard=5)


def test_arguments(tmp_path: Path) -> None:
    for wrong in ({"workers": -1}, {"fn": 5}, {"rank": 0}, {"fields": {"x": "mp3"}}):
        with pytest.raises(ConfigError):
            optimize(**{"fn": samples, "inputs": [], "url": tmp_path, **wrong})  # type: ignore[arg-type]
    none: Any = tmp_path.glob("*.json")
    for inputs in ([], none, ()):
        with pytest.raises(ConfigError, match="a glob that matches no file gives an empty list"):
            optimize(samples, inputs, tmp_path / "out", workers=0)
    for parts in (1, 3):
        with pytest.raises(ConfigError, match="there are none"):
            optimize(samples, iter(()), tmp_path / "out", parts=parts, part=0)
    with pytest.raises(ShardtoolError, match="no samples"):
        optimize(lambda _: None, [1], tmp_path / "out", workers=0)


def test_a_complete_data_set_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for again in (False, True):
        shardtool.optimize(numbered, range(3), tmp_path / "out", workers=0, progress=False)
        assert ("complete already, so the function is not called: on_exists='overwrite'" in caplog.text) == again


def numbered(i: int) -> Dict[str, Any]:
    return {"__key__": f"{i:03}", "x": i}


class Numbered:
    """A data set as torch has them: it has __getitem__ and no __iter__."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> int:
        if i >= len(self):
            raise IndexError(i)
        return i


def test_inputs_by_number(tmp_path: Path) -> None:
    inputs: Any = Numbered()
    shardtool.optimize(numbered, inputs, tmp_path / "out", workers=0, progress=False)
    with shardtool.open(tmp_path / "out") as data:
        assert [s.key for s in data] == ["000", "001", "002"]
