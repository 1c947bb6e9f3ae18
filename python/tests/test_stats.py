"""What the loop waited for, and who may ask."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from conftest import SAMPLES, in_groups, payload
from web import served

import shardtool
from shardtool import Loader, Stats

#: Whether the web server gives shards.
opened = threading.Event()


@pytest.fixture
def gated(small: Path) -> Any:
    """The address of the data set through the gate, which is closed."""
    opened.clear()
    with served(small, lambda: opened.wait(300)) as address:
        try:
            yield address
        finally:
            opened.set()


def consistent(stats: Stats) -> Stats:
    """Checks what always holds."""
    assert stats.wait == sum(stats.stalls) and min(stats.stalls) >= 0
    assert 0 <= stats.first_wait <= stats.wait + 1e-9
    assert 0 <= stats.wait + stats.opening <= stats.elapsed + 1e-6 or stats.elapsed == 0
    assert json.loads(json.dumps(stats.as_dict()))["stalls"]["request"] == stats.stalls.request
    return stats


def test_counts(small: Path) -> None:
    """At each moment the delivered count is that of the loop, and the causes sum to the wait;
    after the end nothing changes."""
    loader = Loader(small, 70, tail="pad", rank=1, world_size=2, fields=["txt"])
    assert consistent(loader.stats()) == Stats(rank=1, world_size=2)
    size = [sum(len(p) for p in payload(i).values()) for i in range(SAMPLES)]
    numbers: List[int] = []
    before = loader.stats()
    for _ in range(2):
        for n, batch in enumerate(loader, 1):
            numbers += batch.numbers[: batch.size - batch.padding]
            stats = consistent(loader.stats())
            assert (stats.samples, stats.bytes) == (len(numbers), sum(size[i] for i in numbers))
            assert stats.batches == n + before.batches and stats.wait >= before.wait
        before = stats
    assert stats.blocks > 0 and stats.stored_bytes > 0 and stats.held > 0 and stats.opening > 0 and stats.first_wait > 0
    assert len(numbers) < 2 * 70 * len(loader)  # there was padding
    one = stats - before
    assert one.batches == 0 and one.wait == sum(one.stalls)
    loader.close()
    ended = loader.stats()
    assert ended.batches == stats.batches and ended.wait >= stats.wait
    time.sleep(0.01)
    assert loader.stats() == ended
    assert pickle.loads(pickle.dumps(loader)).stats().batches == 0
    assert f"rank 1 of 2: {stats.batches} batches" in str(ended)


def test_while_waiting(small: Path, gated: str) -> None:
    """Another thread sees the wait grow, and its cause, while the loop is in it."""
    loader = Loader(gated, 10, fields=["txt"])
    seen: List[Stats] = []

    def watch() -> None:
        try:
            while len(seen) < 3:
                stats = consistent(loader.stats())
                if stats.wait > (seen[-1].wait if seen else 0):
                    seen.append(stats)
                time.sleep(0.01)
        finally:
            opened.set()

    thread = threading.Thread(target=watch)
    thread.start()
    begin = time.monotonic()
    for _ in zip(range(3), loader):
        pass
    took = time.monotonic() - begin
    thread.join()
    assert [s.batches for s in seen] == [0, 0, 0]
    stats = consistent(loader.stats())
    assert seen[-1].wait <= stats.wait <= took
    assert seen[0].stalls.request + seen[0].stalls.window > 0
    assert seen[-1].stalls.request + seen[-1].stalls.window <= stats.stalls.request + stats.stalls.window
    loader.close()


def test_map_counts(small: Path) -> None:
    """Time in map is the loop's wait; time in the loop is not."""
    begin = time.perf_counter()
    spent = 0.0

    def slow(batch: Any) -> Any:
        nonlocal spent
        at = time.perf_counter()
        time.sleep(0.01)
        spent += time.perf_counter() - at
        return batch

    with Loader(small, 100, fields=[], map_batch=slow) as loader:
        for _ in loader:
            time.sleep(0.02)
        stats = consistent(loader.stats())
    assert stats.batches == 10 and spent <= stats.stalls.map <= stats.wait <= time.perf_counter() - begin - 10 * 0.02


def test_over_children(small: Path) -> None:
    """The figures continue after a killed child, a loaded state, and an iteration that was left."""
    loader = Loader(small, 10, fields=["txt"], tuning=shardtool.Tuning(prefetch=0))
    before = loader.stats()
    for n in range(1, 5):
        for batch in loader:
            break
        stats = consistent(loader.stats())
        assert stats.batches == n and stats.samples == 10 * n and stats.wait >= before.wait and stats.opening > before.opening
        before = stats
        if n % 2:
            loader.load_state_dict(batch.state_dict())
        else:
            assert loader._session.client is not None
            os.kill(loader._session.client.process.pid, signal.SIGKILL)
            with pytest.raises(shardtool.ServerDiedError):
                for _ in loader:
                    pass
            before = consistent(loader.stats())
            assert before.batches == n
    loader.close()


def test_forked(small: Path) -> None:
    """A forked process counts for itself."""
    loader = Loader(small, 10, fields=["txt"])
    next(iter(loader))
    read, write = os.pipe()
    if os.fork() == 0:
        counts = [loader.stats().batches]
        next(iter(loader))
        counts.append(loader.stats().batches)
        os.write(write, json.dumps(counts).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        assert json.load(f) == [0, 1]
    os.wait()
    assert loader.stats().batches == 1
    loader.close()


def test_log(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    """stats_every writes what happened since the line before."""
    with caplog.at_level(logging.INFO, "shardtool"):
        with Loader(small, 100, fields=[], rank=2, world_size=3, tuning=shardtool.Tuning(stats_every=1e-9)) as loader:
            assert len(list(loader)) == 4
    lines = [r.getMessage() for r in caplog.records if "MB/s" in r.getMessage()]
    assert len(lines) == 3 and all(line.startswith("rank 2 of 3: ") and "waited" in line for line in lines)


def scrape(url: str) -> Dict[str, float]:
    with urllib.request.urlopen(url, timeout=300) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("shardtool_stream_")}


def test_metrics(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks with the same port take one each, next to each other, and have different labels."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("SHARDTOOL_METRICS", f":{port}")
        options: Dict[str, Any] = {"global_batch": 40, "fields": ["txt"], "world_size": 2}
        with (
            Loader(small, **in_groups(rank=0, **options)) as a,
            Loader(small, **in_groups(rank=1, **options)) as b,
            Loader(small, 10, tuning=shardtool.Tuning(metrics="")) as c,
        ):
            assert a.metrics_url is None
            for _ in zip(a, b, c):
                pass
            ports = [int(str(x.metrics_url).split(":")[2].split("/")[0]) for x in (a, b)]
            assert c.metrics_url is None and port < min(ports) and max(ports) < port + 64 and ports[0] != ports[1]
            for rank, loader in enumerate((a, b)):
                assert str(loader.metrics_url).startswith("http://127.0.0.1:")
                said = scrape(str(loader.metrics_url))
                assert all(f'rank="{rank}"' in name for name in said)
                assert said[f'shardtool_stream_samples_total{{rank="{rank}"}}'] >= loader.stats().samples > 0
                waits = {n.split('"')[1]: v for n, v in said.items() if n.startswith("shardtool_stream_wait_seconds_total")}
                assert list(waits) == sorted(shardtool.Stalls._fields)
                assert waits["request"] == pytest.approx(loader.stats().stalls.request)
    with Loader(small, 10, tuning=shardtool.Tuning(metrics="127.0.0.1:0")) as loader:
        first = next(iter(loader))
        url = loader.metrics_url
        assert url is not None and scrape(url)
        loader.load_state_dict(first.state_dict())  # another child
        next(iter(loader))
        assert loader.metrics_url is not None and scrape(loader.metrics_url)
    assert loader.metrics_url is None


@pytest.mark.parametrize(
    ("options", "requests", "depth"),
    [({"requests": 3, "depth": 2}, 3, 2), ({"autotune": False}, 64, None), ({"autotune": False, "requests": 5}, 5, None)],
)
def test_fixed(small: Path, options: Dict[str, Any], requests: int, depth: Optional[int]) -> None:
    """What is set for requests and depth stays, and changes no batch."""
    options = {"metrics": "127.0.0.1:0", **options}
    with served(small, lambda: None) as address, Loader(address, 10, **in_groups(**options)) as loader, Loader(small, 10) as plain:
        for batch, same in zip(loader, plain):
            assert batch.sample_keys == same.sample_keys
            said = scrape(str(loader.metrics_url))
            assert said['shardtool_stream_requests_limit{rank="0"}'] == requests
            depth = depth or int(said['shardtool_stream_depth_batches{rank="0"}'])  # what the memory allows
            assert said['shardtool_stream_depth_batches{rank="0"}'] == depth
            assert said['shardtool_stream_tunings_total{rank="0"}'] == 0


def test_options_refused(small: Path) -> None:
    with pytest.raises(shardtool.ConfigError, match=r"stats_every=-1\.0: the least is 0"):
        Loader(small, 10, tuning=shardtool.Tuning(stats_every=-1))
    with pytest.raises(shardtool.ConfigError, match="metrics=9400: give text or None"):
        Loader(small, 10, tuning=shardtool.Tuning(metrics=9400))  # type: ignore[arg-type]
    for option in ("requests", "depth"):
        with pytest.raises(shardtool.ConfigError, match=f"{option}=0: the least is 1"):
            Loader(small, 10, **in_groups(**{option: 0}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "words"), [("nonsense", "write an address such as"), ("127.0.0.1:99999", "port"), ("192.0.2.1:0", "192.0.2.1")]
)
def test_metrics_refused(small: Path, address: str, words: str) -> None:
    with Loader(small, 10, tuning=shardtool.Tuning(metrics=address)) as loader, pytest.raises(shardtool.ConfigError, match=words):
        iter(loader)
