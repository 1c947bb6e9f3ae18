"""shardtool.Writer: what it publishes when, and what errors, forks and other writers leave."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from conftest import cat, children, run
from test_writer import read

import shardtool
from shardtool import ClosedError, ConfigError, EncodeError, ExistsError, ShardtoolError, Writer, optimize

np = pytest.importorskip("numpy")


def test_exception_publishes_nothing(tmp_path: Path) -> None:
    def source() -> Iterator[Dict[str, int]]:
        yield {"x": 1}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Writer(tmp_path / "out") as w:
        for s in source():
            w.write(s)
    assert run("ls", tmp_path / "out", check=False).returncode == 6
    with pytest.raises(ClosedError, match="closed"):
        w.write({"x": 1})
    with pytest.raises(ClosedError, match="closed"), w:
        pass


@pytest.mark.parametrize("ranks", [{}, {"rank": 0, "world_size": 1}], ids=["whole", "parts"])
def test_append_numbers_keys_on(tmp_path: Path, ranks: Dict[str, int]) -> None:
    """Samples without keys can be appended, in all ways of writing, and errors name their keys."""
    url = tmp_path / "out"
    for begin in (0, 3, 6):
        with Writer(url, on_exists="append", source=f"from {begin}", **ranks) as w:
            w.write({"x": begin})
            w.write_batch({"x": np.arange(begin + 1, begin + 3)})
            with pytest.raises(EncodeError) as err:
                w.write({"x": object()})
            assert err.value.key is not None and err.value.key.endswith(f"{begin + 3:09d}")
    prefix = "00000-" if ranks else ""
    assert [(s["__key__"], s["x"]) for s in read(url)] == [(f"{prefix}{i:09d}", i) for i in range(9)]


def test_exists(tmp_path: Path) -> None:
    url = tmp_path / "out"
    with Writer(url) as w:
        w.write({"x": 1, "y": "a"})
    with pytest.raises(ClosedError, match="closed"):
        w.write({"x": 2})
    with pytest.raises(ExistsError, match="data set already") as err, Writer(url):
        pass
    assert str(err.value).startswith(str(url))  # without the name of a package in Go
    with pytest.raises(FileExistsError), Writer(url, on_exists="resume", source="other"):
        pass
    with Writer(url, on_exists="append") as w:
        with pytest.raises(EncodeError, match=r"in a field of type int .as earlier"):
            w.write({"__key__": "n", "x": "text"})
        w.write({"__key__": "n", "x": 2, "z": 0.5})
    assert [(g["x"], g["y"], g["z"]) for g in read(url)] == [(1, "a", None), (2, None, 0.5)]
    with Writer(url, on_exists="overwrite") as w:
        w.write({"x": "other type"})
    assert [g["x"] for g in read(url)] == ["other type"]
    with pytest.raises(ConfigError, match="fields: 'x' is npy here and txt"), Writer(url, on_exists="append", fields={"x": "npy"}):
        pass


def killed(url: Path, **options: Any) -> None:
    """A run that is killed when some of its shards are in the store."""
    before = len(list(url.glob("*.tar.zst")))
    w = Writer(url, samples_per_shard=10, **options)
    for i in range(35):
        w.write({"x": i})
    end = time.monotonic() + 300
    while len(list(url.glob("*.tar.zst"))) < before + 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert w._child is not None
    os.kill(w._child.process.pid, signal.SIGKILL)
    w.abort()


def test_leftovers(tmp_path: Path) -> None:
    """What a killed run left is in the way of a changed program, which hears so when it begins, and
    is told what works."""
    url = tmp_path / "out"
    killed(url, on_exists="resume")
    with pytest.raises(ExistsError, match=r"from data-000000\.tar\.zst to .*on_exists='resume' continues .* on_exists='overwrite'"):
        Writer(url).__enter__()
    with pytest.raises(ShardtoolError, match=r"other sources.*on_exists='overwrite' replaces"):
        Writer(url, on_exists="resume", source="other").__enter__()
    with pytest.raises(ShardtoolError, match=r"other sources.*on_exists='overwrite' replaces"):
        optimize(lambda i: {"x": i}, range(9), url, workers=0)
    with Writer(url, on_exists="overwrite", samples_per_shard=10) as w:
        w.write_batch({"x": range(100, 125)})
    assert [s["x"] for s in read(url)] == list(range(100, 125))

    killed(url, on_exists="append")
    with pytest.raises(ExistsError, match=r"from data-v0002-000000\.tar\.zst to .*: delete them with `shardtool (.*)`") as err:
        Writer(url, on_exists="append").__enter__()
    command = str(err.value).split("`")[1].split()
    run(*command[1:])
    with Writer(url, on_exists="append") as w:
        w.write({"x": 7})
    killed(url, on_exists="overwrite")
    assert optimize(lambda i: {"x": i}, range(3), url, workers=0, on_exists="overwrite")["samples"] == 3
    assert [s["x"] for s in read(url)] == [0, 1, 2]


def test_resume_of_published(tmp_path: Path) -> None:
    url = tmp_path / "out"
    for _ in range(2):
        with Writer(url, on_exists="resume") as w:
            for i in range(w.resume_from, 5):
                w.write({"x": i})
    assert w.resume_from == 5 and w.result is not None and w.result["written"] == 0
    with pytest.raises(ConfigError, match="complete, with 5 samples"), Writer(url, on_exists="resume") as w:
        w.write({"x": 9})
    assert len(read(url)) == 5


def test_duplicates(tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match="duplicate key") as caught, Writer(tmp_path / "a") as w:
        w.write({"__key__": "k", "x": 1})
        w.write({"__key__": "k", "x": 2})
    assert caught.value.key == "k"
    with pytest.raises(EncodeError, match="duplicate key"), Writer(tmp_path / "b", samples_per_shard=1) as w:
        w.write({"__key__": "k", "x": 1})
        w.write({"__key__": "k", "x": 2})
    with Writer(tmp_path / "c", samples_per_shard=1, duplicate_keys="keep") as w:
        w.write({"__key__": "k", "x": 1})
        w.write({"__key__": "k", "x": 2})
    assert len(read(tmp_path / "c")) == 2 and run("ls", tmp_path / "a", check=False).returncode == 6


def test_error_inside_block_is_kept(tmp_path: Path) -> None:
    """A failure of the child that the program swallows does not publish a part of the samples."""
    with pytest.raises(ClosedError, match="nothing was published"), Writer(tmp_path / "out") as w:
        w.write({"__key__": "k", "x": 1})
        for _ in range(100):
            try:
                w.write({"__key__": "k", "x": bytes(1 << 20)})
            except (EncodeError, ClosedError):
                break
            except ConfigError:
                pytest.fail("bytes in a field of type int")
        w._child.process.kill()  # type: ignore[union-attr]
        for i in range(100):
            try:
                w.write({"__key__": f"{i}", "y": bytes(1 << 20)})
            except (shardtool.ShardtoolError, OSError):
                break
    assert run("ls", tmp_path / "out", check=False).returncode == 6


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a frame is sent: the writer raises the reason, and publishes nothing."""
    w = Writer(tmp_path / "out")
    with pytest.raises(ClosedError, match=r"a write failed: KeyboardInterrupt"), w:
        w.write({"x": 1})

        def interrupted(*_: Any) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "write", interrupted)
            w._flush()
        with pytest.raises(ClosedError, match=r"has failed \(KeyboardInterrupt\)"):
            w.write({"x": 2})
    assert not (tmp_path / "out").exists()


def test_two_writers(tmp_path: Path) -> None:
    one, two = Writer(tmp_path / "out").__enter__(), Writer(tmp_path / "out").__enter__()
    one.write({"x": 1})
    two.write({"x": 2})
    one.close()
    with pytest.raises(shardtool.ShardtoolError, match="another writer"):
        two.close()
    assert [g["x"] for g in read(tmp_path / "out")] == [1]


def test_fork(tmp_path: Path) -> None:
    """A fork neither writes nor publishes, and does not keep the child from noticing that the
    program was killed."""
    with Writer(tmp_path / "out") as w:
        w.write({"x": 1})
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                w.write({"x": 2})
            except ClosedError as err:
                code = 0 if "fork" in str(err) else 2
            w.__exit__(None, None, None)
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        w.write({"x": 3})
    assert [g["x"] for g in read(tmp_path / "out")] == [1, 3]


def test_abandoned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A writer that is left open publishes nothing, and says so once."""
    w = Writer(tmp_path / "out")
    w.write({"x": 1})
    with pytest.warns(ResourceWarning, match="left without close.*nothing was published.*1 samples"):
        del w
    assert children() == [] and run("ls", tmp_path / "out", check=False).returncode == 6
    assert caplog.text.count("left without close()") == 1
    del caplog.records[:]
    for end in ("close", "abort", "error"):
        w = Writer(tmp_path / end)
        w.write({"x": 1})
        if end == "error":  # the program was told
            os.kill(w._child.process.pid, signal.SIGKILL)  # type: ignore[union-attr]
            with pytest.raises(ShardtoolError):
                w.close()
        else:
            getattr(w, end)()
        del w
    Writer(tmp_path / "unused")
    assert not caplog.records


@pytest.mark.parametrize("what", ["writer", "layer", "raise"])
def test_left_at_exit(tmp_path: Path, what: str) -> None:
    """A program that ends without close() says what it lost, whatever its filters of warnings."""
    with Writer(tmp_path / "base") as w:
        w.write({"__key__": "a", "x": 1})
    made = "Layer(url, 'more')" if what == "layer" else "Writer(url + '/out')"
    program = f"import shardtool, sys; url = sys.argv[1]; w = shardtool.{made}; w.write({{'__key__': 'a', 'y': 1}})"
    if what == "raise":
        program += "; 1 / 0"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(shardtool.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    for options in ([], ["-Werror"]):
        command = [sys.executable, *options, "-c", program, str(tmp_path / "base")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == (what == "raise"), done.stderr
        assert done.stderr.count("was left without close(): nothing was published") == 1, done.stderr
        assert "call close() after the last sample" in done.stderr and ("ZeroDivisionError" in done.stderr) == (what == "raise")


@pytest.mark.parametrize("what", ["writer", "layer"])
def test_signals_are_the_parents(tmp_path: Path, what: str) -> None:
    """The child survives signals that terminals and launchers send to all processes of a job."""
    with Writer(tmp_path / "out") as w:
        w.write({"__key__": "a", "x": 1})
        if what == "writer":
            signalled(w)
    if what == "layer":
        with shardtool.Layer(tmp_path / "out", "more") as layer:
            layer.write({"__key__": "a", "y": 2})
            signalled(layer._writer)
    assert len(read(tmp_path / "out")) == 1


def signalled(w: Writer) -> None:
    assert w._child is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(w._child.process.pid, number)


def test_full_disk(tmp_path: Path) -> None:
    """The error of the store reaches the program, and nothing is published."""
    if not os.path.exists("/dev/full") or os.geteuid() != 0:
        pytest.skip("a small file system is mounted by root only")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, check=False).returncode != 0:
        pytest.skip("mount is not permitted here")
    try:
        rng = random.Random(1)
        with pytest.raises(shardtool.ShardtoolError, match="no space left"), Writer(small / "out", shard_size="1MiB") as w:
            for _ in range(100):
                w.write({"x": rng.randbytes(1 << 18)})
        assert run("ls", small / "out", check=False).returncode == 6
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_options(tmp_path: Path) -> None:
    for options in (
        {"rank": 0}, {"rank": 2, "world_size": 2}, {"level": "most"}, {"on_exists": "ask"}, {"workers": 0}, {"shard_size": "many"},
        {"attrs": ["x"]},        {"samples_per_shard": 0}, {"url": 5},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            Writer(**{"url": tmp_path, **options})  # type: ignore[arg-type]
    for options in ({"name": "../x"}, {"shard_size": 1}, {"url": f"{tmp_path}@0123456789abcdef"}):
        with pytest.raises(shardtool.ShardtoolError), Writer(**{"url": tmp_path, **options}):  # type: ignore[arg-type]
            pass


def test_order_is_that_of_writing(tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as w:
        for i in (3, 1, 2):
            w.write({"__key__": str(i), "x": i})
    assert [line["key"] for line in cat(tmp_path / "out")] == ["3", "1", "2"]
