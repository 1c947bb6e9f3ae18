"""Data sets to read, made by the program itself."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib.util
import io
import json
import os
import random
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import shardtool
from shardtool._system import PORTABLE

# A job in the background of a shell begins with SIGINT ignored, and processes that it starts
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("SHARDTOOL_BINARY", str(ROOT / "bin" / "shardtool"))
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")
for name in list(os.environ):
    if name in LAUNCHERS or name.startswith("SLURM_"):
        os.environ.pop(name)

# Where torch is missing, `make test-torch` runs these.
if "SHARDTOOL_TEST_TORCH" not in os.environ and importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_torch_*.py"]

SAMPLES = 1000


@pytest.fixture(params=["given", "private"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches in the memory in which the child delivers them, and in copies, as peers of a rank and
    other systems than Linux have them."""
    from shardtool._wire.client import Client

    monkeypatch.setattr(Client, "private", PORTABLE or request.param == "private")


#: Of tests that look at processes as only Linux shows them.
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="this system has no /proc")


def run(*args: object, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Runs shardtool."""
    return subprocess.run([os.environ["SHARDTOOL_BINARY"], *map(str, args)], check=check, capture_output=True, text=True, timeout=300)


def cat(*args: object) -> List[Dict[str, Any]]:
    """The lines of `shardtool cat --json`."""
    return [json.loads(line) for line in run("cat", "--json", *args).stdout.splitlines()]


def npy(descr: str, shape: "tuple[int, ...]", data: bytes) -> bytes:
    """An npy file."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def payload(i: int) -> Dict[str, bytes]:
    """The fields of sample i of the data set `small`."""
    rng = random.Random(i)
    fields = {
        "txt": f"document {i} é ".encode() * (1 + i % 7),
        "json": json.dumps({"number": i, "even": i % 2 == 0}).encode(),
        "cls": b"%d" % (i % 10),
        "x.npy": npy("<f4", (2, 3), rng.randbytes(24)),
        "ragged.npy": npy("<i2", (i % 4,), rng.randbytes(2 * (i % 4))),
        "tokens": rng.randbytes(4 * 16),
        "pieces": rng.randbytes(4 * (i % 5)),
        "bin": rng.randbytes(rng.randrange(200)),
    }
    if i % 3 == 0:
        fields["extra"] = b"extra %d" % i
    return fields


#: All fields of `small` as bytes.
RAW = {name: "bytes?" if name == "extra" else "bytes" for name in sorted(payload(0))}


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 samples of all kinds of fields, in several shards of many blocks."""
    base = tmp_path_factory.mktemp("small")
    source, out = base / "src.tar", base / "out"
    with tarfile.open(source, "w") as tar:
        for i in range(SAMPLES):
            for name, data in sorted(payload(i).items()):
                info = tarfile.TarInfo(f"s{i:04d}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    run("pack", source, out, "--quiet", "--block-size", "16KiB", "--shard-size", "512KiB")
    return out


@pytest.fixture(scope="session")
def damaged(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one flipped byte in the second shard."""
    out = tmp_path_factory.mktemp("damaged") / "out"
    shutil.copytree(small, out)
    shard = sorted(out.glob("*.tar.zst"))[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 3] ^= 0xFF
    shard.chmod(0o644)
    shard.write_bytes(data)
    return out


@pytest.fixture(scope="session")
def holes(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a flipped byte in many blocks."""
    out = tmp_path_factory.mktemp("holes") / "out"
    shutil.copytree(small, out)
    for shard in sorted(out.glob("*.tar.zst")):
        data = bytearray(shard.read_bytes())
        for at in range(len(data) // 10, len(data) - 20000, 25000):
            data[at] ^= 0xFF
        shard.chmod(0o644)
        shard.write_bytes(data)
    return out


def in_groups(**options: Any) -> Dict[str, Any]:
    """Options as a Loader takes them: members of a group in their group."""
    for argument, group in (("order", shardtool.Order), ("tuning", shardtool.Tuning), ("faults", shardtool.Faults)):
        members = {f.name: options.pop(f.name) for f in dataclasses.fields(group) if f.name in options}
        if members:
            options[argument] = dataclasses.replace(options.get(argument, group()), **members)
    return options


def processes(of: object) -> Iterator[Tuple[int, str]]:
    """The processes that a process started, the ones not waited for included; their programs."""
    if PORTABLE:
        done = subprocess.run(["ps", "-Ao", "ppid=,pid=,comm="], capture_output=True, text=True, timeout=300, check=True)
        for parent, pid, program in (line.split(None, 2) for line in done.stdout.splitlines()):
            if int(parent) == (os.getpid() if of == "self" else of):
                yield int(pid), Path(program).name.split()[0]
        return
    for task in os.listdir(f"/proc/{of}/task"):
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            for pid in Path(f"/proc/{of}/task/{task}/children").read_text().split():
                yield int(pid), (Path("/proc") / pid / "stat").read_text().split()[1].strip("()")


def children(of: object = "self") -> List[int]:
    """The serve processes that a process has, the ones not waited for included."""
    return [pid for pid, program in processes(of) if program == "shardtool"]


def end_sessions() -> None:
    """Kills processes in their own sessions that a failed test left running; they would slow down
    all other tests."""
    for pid, _ in processes("self"):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a child running, and none waits for ever."""
    limit = 600  # seconds, many times what any test takes: a busy machine is no failure

    def late(*_: object) -> None:
        raise TimeoutError(f"the test takes longer than {limit} seconds")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    yield
    signal.alarm(0)
    end_sessions()
    gc.collect()
    assert children() == []
