"""Ctrl-C in a loop over workers, and the process killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict

import pytest
from conftest import ROOT, needs_proc
from torch.utils.data import DataLoader
from torch_help import expected, make

from shardtool import Batch

LOOP = """
import json, sys, time, torch
from torch.utils.data import DataLoader
from torch_help import make

dataset = make(sys.argv[1], batch_size=10, **({"map_batch": None} if sys.argv[4] == "alone" else {}))
got, state, slow = [], dataset.state_dict(), int(sys.argv[2])
while True:
    try:
        for batch in DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[3]):
            step = batch.numbers, batch.state_dict()  # both or neither
            got.append(step)
            print(len(got), flush=True)
            if len(got) >= slow:  # else it may be over before the signal arrives
                time.sleep(0.05)
        break
    except KeyboardInterrupt:
        slow = 1 << 30
        if got:
            dataset.load_state_dict(got[-1][1])
        print("interrupted", flush=True)
print(json.dumps([n for step in got for n in step[0]]))
"""


def start(small: Path, slow: int, method: str = "fork", kind: str = "") -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(ROOT / "python" / "src"), str(ROOT / "python" / "tests")])
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, "-c", LOOP, str(small), str(slow), method, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


def lines(process: "subprocess.Popen[str]", until: str) -> None:
    assert process.stdout is not None
    while True:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        if line.strip() == until:
            return


#: Options of a data set whose workers deliver batches, and of one whose loop reads by itself.
KINDS: Dict[str, Dict[str, Any]] = {"workers": {}, "alone": {"map_batch": None}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [1, 23])
def test_interrupted(small: Path, at: int, kind: str) -> None:
    """Ctrl-C, sent to all processes as a terminal does: the state of the last batch resumes,
    nothing is lost or repeated."""
    process = start(small, at, kind=kind)
    lines(process, str(at))
    os.killpg(process.pid, signal.SIGINT)
    lines(process, "interrupted")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == [n for b in expected(small, 0, batch_size=10) for n in b]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_are_for_the_loop(small: Path, method: str, number: int, kind: str) -> None:
    """Signals of a terminal or a scheduler to all processes stop no worker: the loop may continue,
    to save."""
    dataset = make(small, batch_size=10, **KINDS[kind])
    loop = iter(DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method))
    got = []
    for i, batch in enumerate(loop):
        got.append(batch.numbers)
        if i in (0 if kind == "alone" else 1, 7, 30):  # a worker has begun once it has delivered
            for worker in loop._workers:  # type: ignore[attr-defined]
                os.kill(worker.pid, number)
    assert got == expected(small, 0, batch_size=10)
    del loop
    dataset.close()


def test_own_handlers_stay(small: Path) -> None:
    """A handler that was set for a worker is the one it has."""
    loop = DataLoader(make(small, map_batch=handlers), batch_size=None, num_workers=1, worker_init_fn=handle)
    assert next(iter(loop)) == [True, False]


def handle(worker: int) -> None:
    signal.signal(signal.SIGUSR1, handled)


def handled(number: int, frame: object) -> None:
    pass


def handlers(batch: Batch) -> Any:
    return [signal.getsignal(n) is handled for n in (signal.SIGUSR1, signal.SIGUSR2)]


def session(of: int) -> Any:
    """The processes of a session that run."""
    out = set()
    for entry in Path("/proc").iterdir():
        try:
            said = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if entry.name.isdigit() and int(said[3]) == of and said[0] not in "ZX":
            out.add(int(entry.name))
    return out


@needs_proc
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_killed(small: Path, method: str) -> None:
    """When the process is killed, its workers and their reader end by themselves."""
    process = start(small, 5, method)
    lines(process, "5")
    assert len(session(process.pid)) >= 4
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 300
    while session(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
