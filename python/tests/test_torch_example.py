"""The example: trained, killed with SIGKILL in the middle of an epoch, resumed on another number of
ranks, with the curve of a run that nothing happened to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
from conftest import ROOT

EXAMPLE = ROOT / "python" / "examples" / "authors"
# Python 3.11's enums and the torchrun of torch 1.13 only get on with each other where output is
# redirected.
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--redirects", "1", "--tee", "1"]


def start(args: List[Any], **options: Any) -> "subprocess.Popen[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
        **options,
    )


def finish(args: List[Any]) -> str:
    process = start(args)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


def descendants(pid: int) -> Set[int]:
    """A process and all that came from it."""
    parents: Dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    out = {pid}
    while True:
        more = {p for p, parent in parents.items() if parent in out} - out
        if not more:
            return out
        out |= more


def curve(run: Path) -> List[Any]:
    try:
        return [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines() if line.endswith("}")]
    except FileNotFoundError:
        return []


def samples(run: Path, world: int, steps: range) -> List[List[int]]:
    """The global batches, put together from what each rank saw."""
    parts: Dict[int, Dict[int, List[int]]] = {step: {} for step in steps}
    for rank in range(world):
        for line in (run / f"samples-{rank}-of-{world}.jsonl").read_text().splitlines():
            said = json.loads(line)
            if said["step"] in parts:
                parts[said["step"]][said["first"]] = said["numbers"]
    return [[n for _, part in sorted(parts[step].items()) for n in part] for step in steps]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authors")
    subprocess.run([sys.executable, EXAMPLE / "prepare.py", ROOT / "testdata" / "text" / "prose.txt", folder], check=True, timeout=300)
    return folder / "data"


def test_killed_and_resumed(data: Path, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    process = start([*TORCHRUN, "--nproc_per_node", 2, EXAMPLE / "train.py", data, run, "--steps", 100000])
    try:
        deadline = time.monotonic() + 300
        while len(curve(run)) < 25:
            assert process.poll() is None and time.monotonic() < deadline, process.stdout and process.stdout.read()
            time.sleep(0.01)
    finally:
        for pid in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=300)
    killed = len(curve(run))
    checkpoint = __import__("torch").load(run / "checkpoint.pt")
    saved, place = checkpoint["step"], json.loads(checkpoint["loader"]["checkpoint"])
    assert 0 < saved <= killed + 1 and place["position"] % 3469 != 0
    steps = saved + 45
    finish([*TORCHRUN, "--nproc_per_node", 3, EXAMPLE / "train.py", data, run, "--steps", steps - 5])
    finish([EXAMPLE / "train.py", data, run, "--steps", steps])  # and without torchrun
    finish([EXAMPLE / "train.py", data, whole, "--steps", steps])

    want = samples(whole, 1, range(steps))
    assert samples(run, 2, range(saved)) == want[:saved]
    assert samples(run, 3, range(saved, steps - 5)) == want[saved : steps - 5]
    assert samples(run, 1, range(steps - 5, steps)) == want[steps - 5 :]
    got, expected = curve(run), curve(whole)
    assert [(p["step"], p["epoch"]) for p in got] == [(p["step"], p["epoch"]) for p in expected] and len(got) == steps
    assert [p["loss"] for p in got] == pytest.approx([p["loss"] for p in expected], rel=1e-3, abs=1e-4)
    assert expected[-1]["loss"] < expected[0]["loss"] / 2
