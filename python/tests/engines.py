"""optimize and annotate on Ray, Dask and Spark, on one machine, with workers that are killed.

`make test-engines` installs what they need and runs them.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import annotate_help
import pytest
from conftest import ROOT, run
from optimize_help import content, samples

from shardtool import ConfigError, EncodeError, ShardtoolError, Tuning, optimize

pytestmark = pytest.mark.filterwarnings("ignore")
INPUTS, PARTS = 6000, 5
PART = INPUTS // PARTS


def options() -> Any:
    return {"fields": {"last": "float"}, "attrs": {"label": "cls"}, "shard_size": "32KiB", "block_size": "16KiB", "source": "test"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same parts, made by this process alone."""
    url = tmp_path_factory.mktemp("engines") / "whole"
    optimize(samples, range(INPUTS), url, workers=0, parts=PARTS, **options())
    return url


@pytest.fixture(scope="module", params=["ray", "dask", "spark"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an engine that runs, with two workers."""
    # Workers import what the functions of this file need.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    start: Callable[[], Callable[[], Any]] = globals()[f"start_{request.param}"]
    stop = start()
    yield request.param
    stop()


def start_ray() -> Any:
    import ray  # type: ignore[import-not-found,unused-ignore]

    ray.init(num_cpus=2, include_dashboard=False, _system_config={"task_retry_delay_ms": 10})
    return ray.shutdown


def start_dask() -> Any:
    from distributed import Client, LocalCluster  # type: ignore[import-not-found,unused-ignore]

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)

    def stop() -> None:
        client.close()
        cluster.close()

    return stop


def start_spark() -> Any:
    from pyspark.sql import SparkSession  # type: ignore[import-not-found,unused-ignore]

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]")  # a task may fail four times
    session = builder.config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session.stop


def until(what: Callable[[], Any]) -> None:
    """Waits, not for ever: signals do not reach the engines' own waiting."""
    end = time.monotonic() + 300
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def counted(folder: Path) -> Callable[[int], Any]:
    """samples, which makes a file for each input of a part's beginning."""

    def fn(i: int) -> Any:
        if i % PART == 0:
            (folder / f"{i}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return samples(i)

    return fn


def test_same_bytes(engine: str, tmp_path: Path, whole: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    for again in (False, True):
        result = optimize(counted(seen), (i for i in range(INPUTS)), tmp_path / "out", engine=engine, parts=PARTS, **options())  # type: ignore[arg-type]
        assert result["published"] and result["samples"] == 2 * INPUTS
        assert result["written"] == (0 if again else 2 * INPUTS)
        assert content(tmp_path / "out") == content(whole)
    assert len(list(seen.iterdir())) == PARTS  # each part once, and the second call none


def test_worker_killed(engine: str, tmp_path: Path, whole: Path) -> None:
    """A worker is killed in the middle of a part. The engine repeats the task, which continues
    after the complete shards."""
    url, marks = tmp_path / "out", tmp_path / "marks"
    marks.mkdir()

    def fn(i: int) -> Any:
        if i // PART == 2:
            if not (marks / "killed").exists() and i % PART == PART - 100:
                until(lambda: list(url.glob("data-p0002-*")))
                assert not (url / "manifest.json").exists()
                (marks / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (marks / f"{i}-{(marks / 'killed').exists()}").touch()
        return samples(i)

    result = optimize(fn, range(INPUTS), url, engine=engine, parts=PARTS, **options())  # type: ignore[arg-type]
    assert (marks / "killed").exists() and result["resumed"] > 0
    assert not (marks / f"{2 * PART}-True").exists() and (marks / f"{3 * PART - 1}-True").exists()
    assert content(url) == content(whole)


def test_driver_fails(engine: str, tmp_path: Path, whole: Path) -> None:
    """The exception is that of the function. The next call makes only the missing parts."""
    url, seen = tmp_path / "out", tmp_path / "seen"
    seen.mkdir()

    def fails(i: int) -> Any:
        if i == INPUTS - 100:
            until(lambda: len(list(url.glob("part-*.bin"))) >= 3)
            raise KeyError("lost")
        return samples(i)

    with pytest.raises(KeyError, match="lost") as caught:
        optimize(fails, range(INPUTS), url, engine=engine, parts=PARTS, **options())  # type: ignore[arg-type]
    if hasattr(caught.value, "__notes__"):
        assert f"input number {INPUTS - 100}" in " ".join(caught.value.__notes__)
    assert run("ls", url, check=False).returncode == 6
    optimize(counted(seen), range(INPUTS), url, engine=engine, parts=PARTS, **options())  # type: ignore[arg-type]
    assert content(url) == content(whole)
    assert len(list(seen.iterdir())) <= 1  # of the parts that were left, the last one had shards


def test_errors(engine: str, tmp_path: Path) -> None:
    def dies(i: int) -> Any:
        if i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": i}

    with pytest.raises(ShardtoolError, match=f"(?i){engine} could not complete a part.*Repeat the call"):
        optimize(dies, range(8), tmp_path / "dies", engine=engine, parts=2)  # type: ignore[arg-type]
    assert run("ls", tmp_path / "dies", check=False).returncode == 6
    with pytest.raises(EncodeError, match="samples are dicts"):
        optimize(lambda i: [i], range(8), tmp_path / "no", engine=engine, parts=2)  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="duplicate key"):
        optimize(lambda i: {"__key__": "k", "x": i}, range(8), tmp_path / "twice", engine=engine, parts=2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="task_options"):
        optimize(samples, range(8), tmp_path / "no", engine=engine, parts=2, task_options={"gpus": 1})  # type: ignore[arg-type]
    result = optimize(samples, range(8), tmp_path / "empty", engine=engine, parts=20)  # type: ignore[arg-type]
    assert result["samples"] == sum(i % 5 for i in range(8))


def test_annotate(engine: str, tmp_path: Path) -> None:
    """Tasks compute the shards. A worker is killed; the bytes are those of one process."""
    data, marks = tmp_path / "photos", tmp_path / "killed"
    annotate_help.write_base(data, 300)
    marks.touch()

    def dies(batch: Any) -> Any:
        if 150 in batch.numbers and not marks.exists():
            until(lambda: list((data / "layers" / "captions").glob("part-*")))
            marks.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return annotate_help.made(batch["n"].tolist())

    tuning = Tuning(out="numpy")  # torch is not installed
    annotate_help.call(data, "alone", dies, tuning=tuning)
    marks.unlink()
    result = annotate_help.call(data, "captions", dies, tuning=tuning, engine=engine, parts=3)
    assert marks.exists() and result["published"]
    assert annotate_help.content(data / "layers" / "captions") == annotate_help.content(data / "layers" / "alone")


def test_page(engine: str, tmp_path: Path) -> None:
    """The program of docs/clusters.md."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    found = re.search(rf"<!-- tested: {engine} -->\n```python\n(.*?)```", page, re.S)
    assert found
    scope = {"__name__": "__main__", "url": tmp_path / "out", "inputs": []}
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * 5)
        scope["inputs"].append(tmp_path / f"{name}.txt")  # type: ignore[attr-defined]
    if engine == "dask":
        import distributed

        scope["scheduler"] = distributed.default_client().scheduler.address
    exec(found[1].replace("ray.init()", "ray.init(ignore_reinit_error=True)"), scope)
    if engine == "dask":
        scope["client"].close()  # type: ignore[attr-defined]
    assert run("ls", tmp_path / "out").stdout.split() == [f"{name}/{i:06d}" for name in "abc" for i in range(5)]
