"""Writer.state_dict: the samples that it counts survive a kill, and a writer continues with it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from optimize_help import content

from shardtool import ClosedError, ConfigError, Writer

N, OPTIONS = 300, {"samples_per_shard": 20, "block_size": "4KiB", "on_exists": "resume", "source": "queue"}


def sample(i: int) -> Dict[str, Any]:
    return {"x": i, "text": f"sample {i} " * 20, **({"early": 0.5} if i < 3 else {})}


def write(url: Path, begin: int, rank: Optional[int], stop: int = -1) -> Dict[str, Any]:
    """Writes all samples from one on, and publishes; or kills its child after ``stop`` of them, and
    returns the state that was taken before."""
    ranks = {} if rank is None else {"rank": rank, "world_size": 2}
    with Writer(url, **OPTIONS, **ranks) as w:  # type: ignore[arg-type]
        for i in range(begin, N):
            if i == stop:
                end = time.monotonic() + 300
                while w.state_dict()["samples"] < stop // 20 * 20 - 20:  # the last complete shard may be on its way
                    assert time.monotonic() < end
                    time.sleep(0.01)
                state = w.state_dict()
                assert w._child is not None
                os.kill(w._child.process.pid, signal.SIGKILL)
                w.abort()
                return state
            w.write(sample(i))
        assert w.samples == N
    return w.state_dict()


@pytest.mark.parametrize("rank", [None, 1])
def test_killed(tmp_path: Path, rank: Optional[int]) -> None:
    url = tmp_path / "out"
    for to, other in ((tmp_path / "whole", None if rank is None else 0), (url, None if rank is None else 0)):
        if to != url or other is not None:
            write(to, 0, other)
    if rank is not None:
        write(tmp_path / "whole", 0, rank)
    state: Dict[str, Any] = json.loads(json.dumps(write(url, 0, rank, stop=110)))
    assert state == {"samples": state["samples"], "rank": rank, "world_size": None if rank is None else 2, "source": "queue"}
    assert 80 <= state["samples"] <= 100 and state["samples"] % 20 == 0
    ranks = {} if rank is None else {"rank": rank, "world_size": 2}
    old = dict(state, samples=47)  # taken before more was stored
    with Writer(url, **OPTIONS, **ranks) as w:  # type: ignore[arg-type]
        assert w.resume_from >= state["samples"]
        w.load_state_dict(old)
        assert w.resume_from == w.samples == 47
        for i in range(47, 60):
            w.write(sample(i))
        assert w.samples == 60 and w.state_dict()["samples"] >= state["samples"]
        w.write_batch({"x": list(range(60, 75)), "text": [f"sample {i} " * 20 for i in range(60, 75)]})
        for i in range(75, N):
            w.write(sample(i))
    assert w.result is not None and w.result["published"] and content(url) == content(tmp_path / "whole")
    # Of a data set that is complete, everything is safe.
    with Writer(url, **OPTIONS, **ranks) as w:  # type: ignore[arg-type]
        assert w.state_dict()["samples"] == N
        w.load_state_dict(state)
        for i in range(state["samples"], N):
            w.write(sample(i))
        with pytest.raises(ConfigError, match="complete, with"):
            w.write(sample(N))
    assert w.state_dict()["samples"] == N


def test_batches_and_tables(tmp_path: Path) -> None:
    """The samples that are left out end in the middle of a batch, and of a table."""
    pa = pytest.importorskip("pyarrow")
    for i, cut in enumerate((7, 20, 33)):
        url = tmp_path / str(i)
        state = write(url, 0, None, stop=61)
        with Writer(url, **OPTIONS) as w:  # type: ignore[arg-type]
            w.load_state_dict(dict(state, samples=cut))
            rows = range(cut, N)
            texts = [f"sample {k} " * 20 for k in rows]
            if i == 1:
                w.write_batch({"x": list(rows), "text": texts})
            else:
                w.write_table(pa.table({"x": list(rows), "text": texts}))
    write(tmp_path / "whole", 0, None)
    assert content(tmp_path / "0") == content(tmp_path / "1") == content(tmp_path / "2") == content(tmp_path / "whole")


def wait_for(shard: Path) -> None:
    end = time.monotonic() + 300
    while not shard.exists():
        assert time.monotonic() < end, f"{shard.name} is not in the store"
        time.sleep(0.01)


@pytest.mark.parametrize(("per_shard", "size", "shards"), [(500, None, 8), (None, "512KiB", 7)])
def test_small_samples(tmp_path: Path, per_shard: Optional[int], size: Optional[str], shards: int) -> None:
    """Shards of small samples are in the store when their last sample was written."""
    for run in range(1, 4):
        w = Writer(tmp_path, on_exists="resume", samples_per_shard=per_shard, shard_size=size, block_size="16KiB")
        assert per_shard is None or w.resume_from == 4000 * (run - 1)
        for i in range(4000):
            w.write({"x": i})
        wait_for(tmp_path / f"data-{shards * run - 1:06d}.tar.zst")
        assert w._child is not None
        os.kill(w._child.process.pid, signal.SIGKILL)
        w.abort()
    with Writer(tmp_path, on_exists="resume", samples_per_shard=per_shard, shard_size=size, block_size="16KiB") as w:
        assert w.resume_from >= 3 * shards * 500
        w.abort()


def test_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are with the child after a second, however few they are."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Writer(tmp_path) as w:
        w.write({"x": 1})
        child = w._start()
        sent: List[int] = []
        monkeypatch.setattr(child, "send", lambda kind, parts: sent.append(kind))
        w.write({"x": 2})
        assert sent == []
        now += 1.1
        w.write({"x": 3})
        assert len(sent) == 2  # a layout and samples
        w.abort()


def test_refused(tmp_path: Path) -> None:
    state = {"samples": 0, "rank": None, "world_size": None, "source": ""}
    with Writer(tmp_path / "a") as w:
        assert w.state_dict() == state
        with pytest.raises(ConfigError, match="on_exists='resume'"):
            w.load_state_dict(state)
        w.write({"x": 1})
    w = Writer(tmp_path / "a", on_exists="append")
    w.write({"x": 1})
    w.abort()
    with pytest.raises(ClosedError, match="ended without publishing"):
        w.state_dict()
    for wrong, why in (
        ({**state, "source": "other"}, "source='other', and this writer ''"),
        ({**state, "rank": 1, "world_size": 2}, "rank=1, and this writer None"),
        ({**state, "samples": 5}, "the state has 5 samples, and the store 0"),
    ):
        with Writer(tmp_path / "b", on_exists="resume") as w:
            with pytest.raises(ConfigError, match=why):
                w.load_state_dict(wrong)
            w.write({"x": 1})
            with pytest.raises(ConfigError, match="before the first one"):
                w.load_state_dict(state)
            w.abort()
