"""annotate: layers that a function computes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import annotate_help
import pytest
from annotate_help import Slow, call, check, content, made, write_base
from conftest import run

import shardtool
from shardtool._write.parts import tasks

N = 300


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("annotate") / "photos"
    write_base(data, N)
    return data


@pytest.fixture
def photos(base: Path, tmp_path: Path) -> Path:
    """A data set of the test's own."""
    return Path(shutil.copytree(base, tmp_path / "photos"))


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> "List[Any]":
    """The objects of the layer."""
    data = Path(shutil.copytree(base, tmp_path_factory.mktemp("whole") / "photos"))
    result = call(data)
    assert result["published"] and result["written"] == N and result["resumed"] == 0 and not result["failed"]
    return content(data / "layers" / "captions")


def test_annotate(photos: Path, whole: "List[Any]", caplog: pytest.LogCaptureFixture) -> None:
    """Batches begin anew at each shard, every field belongs to its sample, and a second call does
    nothing."""
    calls: List[Any] = []

    def function(batch: shardtool.Batch) -> Dict[str, Any]:
        calls.append(batch.numbers)
        return made(batch["n"].tolist())

    with shardtool.open(photos) as data:
        shards = data.info["shards"]
    call(photos, "mine", function)
    assert [n for numbers in calls for n in numbers] == list(range(N))
    sizes = [len(numbers) for numbers in calls]
    assert set(sizes) == {15, 2, 12} and sizes.count(2) == shards - 1
    check(photos, "mine", N)
    calls.clear()
    assert "complete already" not in caplog.text
    assert call(photos, "mine", function)["resumed"] == N
    assert not calls and "the layer is complete already, so the function is not called: on_exists='overwrite'" in caplog.text
    run("verify", photos, "--layer", "mine", "--deep")
    call(photos)
    assert content(photos / "layers" / "captions") == whole


def test_a_function_that_returns_nothing(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    def forgets(batch: shardtool.Batch) -> None:
        made(batch["n"].tolist())

    assert call(photos, "none", forgets)["written"] == N
    assert "the function returned None for all" in caplog.text and "did it forget to return?" in caplog.text


@pytest.mark.parametrize("workers", [1, 3])
def test_workers(photos: Path, whole: "List[Any]", workers: int) -> None:
    assert call(photos, workers=workers)["written"] == N
    assert content(photos / "layers" / "captions") == whole


def test_class(photos: Path) -> None:
    """A class is made once in a process."""
    mine = []

    class Model:
        def __init__(self) -> None:
            mine.append(self)

        def __call__(self, batch: shardtool.Batch) -> Dict[str, Any]:
            return made(batch["n"].tolist())

    call(photos, "model", Model)
    assert len(mine) == 1
    check(photos, "model", N)


def test_tasks(photos: Path, whole: "List[Any]", monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has its share, and the last one publishes."""
    published = []
    for rank in (2, 0, 1):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        published.append(call(photos)["published"])
    assert published == [False, False, True]
    assert content(photos / "layers" / "captions") == whole


def test_environments() -> None:
    """What tasks find in the environment."""
    assert tasks(None, None, {}) == [(0, 1)]
    assert tasks(None, None, {"RANK": "1", "WORLD_SIZE": "4"}) == [(1, 4)]
    assert tasks(None, None, {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}) == [(3, 8)]
    assert tasks(None, None, {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) == [(0, 1)]  # the script of a batch job
    assert tasks(None, None, {"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}) == [(5, 8)]
    assert tasks(4, None, {"JOB_COMPLETION_INDEX": "3"}) == [(3, 4)]
    assert tasks(4, None, {"SLURM_ARRAY_TASK_ID": "0"}) == [(0, 4)]
    assert tasks(4, 2, {"JOB_COMPLETION_INDEX": "3"}) == [(2, 4)]
    assert tasks(3, None, {}) == [(0, 3), (1, 3), (2, 3)]
    with pytest.raises(shardtool.ConfigError, match="JOB_COMPLETION_INDEX is set: give parts"):
        tasks(None, None, {"JOB_COMPLETION_INDEX": "3"})


def test_view(photos: Path) -> None:
    """Samples outside a view, and removed ones, have nothing."""
    keys = photos.parent / "keys"
    keys.write_text("".join(f"{n:06d}\n" for n in range(0, N, 2) if not 60 <= n < 140))
    run("select", photos, "--name", "even", "--keys", keys)
    run("remove", photos, "--keys", write(photos.parent / "removed", "000010\n000200\n"))
    result = call(f"{photos}#even", "ones", lambda b: {"one": [f"of {n}" for n in b["n"].tolist()]}, attrs=None)
    assert result["published"]
    with shardtool.Loader(photos, 64, layers=["ones"], fields={"n": "int", "one": "txt?"}, epochs=1) as loader:
        for batch in loader:
            for n, one in zip(batch["n"].tolist(), batch["one"]):
                assert one == (f"of {n}" if n % 2 == 0 and not 60 <= n < 140 else None)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_wrong(photos: Path) -> None:
    """Functions that return what does not fit: the error has the key of the first sample."""

    def later(batch: shardtool.Batch) -> Dict[str, Any]:
        return {"x": [str(n) if n >= 40 else n for n in batch["n"].tolist()]}

    for name, function, text in (
        ("few", lambda b: {"x": [1] * (b.size - 1)}, r"14 values of 'x' for 15 samples.* begins with '000000'"),
        ("many", lambda b: {"x": [1] * (b.size + 1)}, r"16 values of 'x' for 15 samples"),
        ("later", later, r"'x'.*int.*as earlier samples"),
        ("single", lambda b: {"x": 1}, r"a single int.*begins with '000000'"),
        ("list", lambda b: [1] * b.size, r"the function returned list"),
        ("key", lambda b: {"__key__": ["a"] * b.size}, r"'__key__'"),
        ("object", lambda b: {"x": [object()] * b.size}, r"object"),
    ):
        with pytest.raises(shardtool.EncodeError, match=text) as caught:
            call(photos, name, function, attrs=None)
        assert caught.value.key is not None
        assert not (photos / "layers" / name / "manifest.json").exists()


def test_raises(photos: Path, whole: "List[Any]") -> None:
    """An exception in one batch ends the call, which continues; or the batch has nothing."""
    calls: List[int] = []

    def function(batch: shardtool.Batch, at: int = 104) -> Dict[str, Any]:
        calls.append(batch.numbers[0])
        if at in batch.numbers:
            raise ValueError("no such caption")
        return made(batch["n"].tolist())

    with pytest.raises(ValueError, match="no such caption") as caught:
        call(photos, "raises", function)
    if sys.version_info >= (3, 11):
        assert "samples that begins with '0000" in caught.value.__notes__[0]
    with pytest.raises(ValueError):
        call(photos, "raises", function, workers=2)
    calls.clear()
    result = call(photos, "raises", function, on_error="skip")
    assert result["published"] and result["resumed"] > 0 and min(calls) > 0
    (failed,) = result["failed"]
    assert "no such caption" in failed["error"] and failed["samples"] <= 15
    first = int(failed["key"])
    with shardtool.Loader(photos, 64, layers=["raises"], fields={"n": "int", "caption": "txt?"}, epochs=1) as loader:
        for batch in loader:
            for n, caption in zip(batch["n"].tolist(), batch["caption"]):
                assert caption == (None if first <= n < first + failed["samples"] else made([n])["caption"][0])


class Stop(Exception):
    pass


def part_of(photos: Path, shards: int = 3, **options: Any) -> None:
    """Leaves a layer of which some shards are there."""
    with pytest.raises(Stop):
        call(photos, function=Stopping(shards * 3), **options)
    assert not (photos / "layers" / "captions" / "manifest.json").exists()


class Stopping(Slow):
    """Slow, which raises after some batches. It has the same name."""

    def __init__(self, batches: int) -> None:
        super().__init__(0)
        self.left = batches

    def __call__(self, batch: shardtool.Batch) -> Dict[str, Any]:
        self.left -= 1
        if self.left < 0:
            raise Stop
        return super().__call__(batch)


Stopping.__qualname__, Stopping.__module__ = Slow.__qualname__, Slow.__module__


def test_another(photos: Path, whole: "List[Any]") -> None:
    """Another function, version, batch size or other fields than the shards that are there, or than
    a complete layer, are refused."""
    part_of(photos)
    others: "List[Dict[str, Any]]" = [
        {"function": lambda b: made(b["n"].tolist())}, {"version": "2"}, {"batch_size": 17}, {"fields": {"n": "int"}},
        {"types": {"score": "float"}},
    ]  # fmt: skip
    for other in others:
        with pytest.raises(shardtool.ShardtoolError, match="was packed with other"):
            call(photos, **other)
    assert call(photos)["resumed"] > 0
    assert content(photos / "layers" / "captions") == whole
    for other in others:
        with pytest.raises(shardtool.ExistsError, match="on_exists='overwrite'"):
            call(photos, **other)
    with pytest.raises(shardtool.ExistsError):
        call(photos, on_exists="fail")
    assert call(photos, version="2", on_exists="overwrite")["generation"] == 2
    check(photos, "captions", N)


def test_meanwhile(photos: Path) -> None:
    """The data set gets samples and loses some while a layer is computed."""
    part_of(photos)
    write_base(photos, 60, "append", N)
    run("remove", photos, "--keys", write(photos.parent / "removed", "000000\n000150\n"))
    result = call(photos)
    assert result["samples"] == N
    with pytest.raises(shardtool.ExistsError, match="on_exists='append'"):
        call(photos)
    assert call(photos, on_exists="append")["samples"] == N + 60
    check(photos, "captions", N + 60, (0, 150))


def test_two(photos: Path, whole: "List[Any]") -> None:
    """Two annotators of one layer do the same work, or share it: it is published once."""
    command = [sys.executable, annotate_help.__file__, str(photos), "0", "0.01"]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [p.wait(300) for p in both] == [0, 0]
    assert content(photos / "layers" / "captions") == whole


def test_hangs(photos: Path, whole: "List[Any]") -> None:
    """A call whose function hangs ends with Ctrl-C, and the next one continues."""
    for workers in ("0", "2"):
        process = subprocess.Popen(
            [sys.executable, annotate_help.__file__, str(photos), workers, "3600"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.7)
        for again in range(20):  # Python drops a signal that comes while it forks: its hooks of logging ignore exceptions
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired if again < 19 else ()):
                assert process.wait(20) != 0
                break
        process.stdout.close()
    call(photos)
    assert content(photos / "layers" / "captions") == whole


FULL = """mount -t tmpfs -o size=40k tmpfs "$3" || exit 77
"$1" "$2" "$4" 0 0 > "$5/out" 2>&1 && exit 1
grep -qi "no space left" "$5/out" || exit 2
mount -o remount,size=16m "$3" && "$1" "$2" "$4" 0 0 && cp -r "$3/captions" "$5"
"""


def test_full(photos: Path, whole: "List[Any]", tmp_path: Path) -> None:
    """The disk gets full. With more room, the same call continues."""
    (photos / "layers").mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", FULL, "sh", sys.executable, annotate_help.__file__]
    done = subprocess.run([*command, photos / "layers", photos, tmp_path], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no mount namespace to be had here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 0  # resumed
    assert content(tmp_path / "captions") == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_killed(photos: Path, whole: "List[Any]", workers: int) -> None:
    """Calls that are killed at any time: the last one continues, and the bytes are the same."""
    rnd = random.Random(workers)
    kills = int(os.environ.get("SHARDTOOL_TEST_KILLS", "5"))
    command = [sys.executable, annotate_help.__file__, str(photos), str(workers), "0.01"]
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rnd.uniform(0, 0.5))
        process.kill()
        process.wait()
        process.stdout.close()
        if (photos / "layers" / "captions" / "manifest.json").exists():
            assert content(photos / "layers" / "captions") == whole
            shutil.rmtree(photos / "layers")
    call(photos)
    assert content(photos / "layers" / "captions") == whole


def test_names(photos: Path, tmp_path: Path) -> None:
    """Names with a slash are refused; layers elsewhere have an address."""
    for name in ("a/b", "", "-x", "0123456789abcdef"):
        with pytest.raises(shardtool.ConfigError, match="a name has 1 to 64"):
            call(photos, name)
    call(photos, tmp_path / "elsewhere")  # type: ignore[arg-type]
    check(photos, str(tmp_path / "elsewhere"), N)


def test_arguments(photos: Path) -> None:
    for options, text in (
        ({"function": 1}, "give a function of a batch"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"workers": -1}, "workers=-1"),
        ({"engine": "ray"}, "give parts"),
        ({"part": 1}, "give parts too"),
        ({"task_options": {}}, "give engine too"),
        ({"types": {"x": "what"}}, "write one of"),
        ({"tuning": shardtool.Tuning(out="arrow")}, "to_arrow"),
    ):
        given: Dict[str, Any] = {"function": Slow(0), "batch_size": 16, **options}
        with pytest.raises(shardtool.ConfigError, match=text):
            shardtool.annotate(photos, "wrong", given.pop("function"), **given)
