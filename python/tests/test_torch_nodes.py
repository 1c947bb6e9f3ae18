"""The programs of docs/many-nodes.md and docs/gpu.md, on several processes and on slow data."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import ROOT
from pages_help import blocks
from test_torch_example import descendants

import shardtool

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


def port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    rnd = np.random.default_rng(1)
    for name, n in (("train", 4000), ("test", 203)):
        with shardtool.Writer(tmp_path / "digits" / name, fields={"cls": "int"}, block_size="4KiB") as w:
            for _ in range(n):
                cls = int(rnd.integers(10))
                x = rnd.standard_normal(16).astype("f4")
                x[cls] += 3
                w.write({"x.npy": x, "cls": cls})
    (tmp_path / "train.py").write_text(next(text for kind, text in blocks("many-nodes.md") if kind == "python"))
    return tmp_path


def environment(folder: Path) -> Dict[str, str]:
    """Has a torchrun for every Python: that of torch 1.13 fails under 3.11 unless output is
    redirected."""
    program = folder / "bin" / "torchrun"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torch.distributed.run --redirects 1 --tee 1 "$@"\n')
        program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "OMP_NUM_THREADS": "1", "PATH": path}


def fitted(text: str, at: str, run: Path, processes: int = 2) -> str:
    """A command of the page for this machine."""
    for there, here in (
        ("--nproc_per_node 8", f"--nproc_per_node {processes}"),
        ("node-a", "127.0.0.1"),
        ("29500", at),
        ("s3://bucket/digits", "digits"),
        ("/shared/run", run.name),
    ):
        text = text.replace(there, here)
    return text


def node(folder: Path, number: int, at: str, run: Path) -> "subprocess.Popen[str]":
    lines = blocks("many-nodes.md")[0][1].splitlines()
    args = shlex.split(fitted(lines[number], at, run), comments=True)
    with (folder / f"node-{number}.log").open("w") as log:
        return subprocess.Popen(args, cwd=folder, env=environment(folder), stdout=log, stderr=log, text=True, start_new_session=True)


def rights(out: str) -> List[str]:
    return re.findall(r"epoch \d+: [\d.]+ right", out)


def test_two_nodes(digits: Path) -> None:
    """Both nodes are killed; the job continues on one process, and ends with the weights of a run
    of one process that nothing happened to."""
    run, whole = digits / "run", digits / "whole"
    run.mkdir()
    whole.mkdir()

    def alone(folder: Path) -> List[str]:
        line = fitted(blocks("many-nodes.md")[0][1].splitlines()[0], port(), folder, 1).replace("--nnodes 2", "--nnodes 1")
        done = subprocess.run(
            shlex.split(line, comments=True), cwd=digits, env=environment(digits), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return rights(done.stdout)

    want = alone(whole)
    assert len(want) == 6 and float(want[-1].split()[2]) > 0.8
    at = port()
    nodes = [node(digits, i, at, run) for i in range(2)]

    def logs() -> List[str]:
        return [(digits / f"node-{i}.log").read_text() for i in range(2)]

    deadline = time.monotonic() + 300
    try:
        while not (run / "checkpoint.pt").exists():
            assert all(n.poll() is None for n in nodes) and time.monotonic() < deadline, logs()
            time.sleep(0.01)
    finally:
        for n in nodes:
            for pid in descendants(n.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            n.wait(timeout=300)
    saved = torch.load(run / "checkpoint.pt")
    assert saved["step"] % 10 == 0
    got = alone(run)
    assert got and got == want[-len(got) :]
    ends = [torch.load(folder / "final.pt") for folder in (run, whole)]
    assert all(torch.allclose(ends[0][name], ends[1][name], rtol=1e-3, atol=1e-4) for name in ends[0])


def test_slurm(digits: Path) -> None:
    """The batch script, with what Slurm gives it."""
    run = digits / "run"
    run.mkdir()
    env = {**environment(digits), "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2"}
    for name, text in (
        ("scontrol", '[ "$*" = "show hostnames n[1-2]" ] && echo 127.0.0.1 && echo 127.0.0.2'),
        ("srun", 'SLURM_NODEID=1 "$@" & SLURM_NODEID=0 "$@" && wait $!'),
    ):
        (digits / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (digits / "bin" / name).chmod(0o755)
    (script,) = [text for _, text in blocks("many-nodes.md") if text.startswith("#!")]
    done = subprocess.run(
        ["bash", "-c", fitted(script, port(), run)], cwd=digits, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rights(done.stdout)) == 6 and (run / "final.pt").exists()


@pytest.mark.parametrize("slow", ["data", "step"])
def test_gpu_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], slow: str) -> None:
    """The measurements say which of the two is slow."""
    monkeypatch.chdir(tmp_path)
    with shardtool.Writer("out/") as w:
        for i in range(4000):
            w.write({"x.npy": np.full(4, i, "f4")})
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def decode(data: bytes) -> int:
        now[0] += 0.001 if slow == "data" else 0
        return len(data)

    def step(batch: Any) -> None:
        assert len(batch["x.npy"]) == 64
        now[0] += 0.02 if slow == "step" else 0.001
        torch.ones(8).sum()

    scope: Dict[str, Any] = {"step": step, "fields": {"x.npy": decode}}
    for kind, text in blocks("gpu.md"):
        if kind == "python":
            exec(text, scope)
    out = capsys.readouterr().out
    said = {"data": ("0.0650", "0.0010", 98), "step": ("0.0200", "0.0200", 0)}[slow]
    assert out.startswith("{} s a step, {} s without reading: data costs {}%\nwaits by cause:".format(*said))
    assert set(scope["spent"]) == {"wait for data", "step"} and (tmp_path / "trace.json").stat().st_size > 0
