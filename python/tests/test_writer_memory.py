"""The memory that shardtool.Writer shares with its child."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List

import pytest

import shardtool
from shardtool._wire import receiver

np = pytest.importorskip("numpy")


def _mixed_sizes(url: Path) -> str:
    """Writes samples whose frames take all slots several times, and some that do not fit."""
    with shardtool.Writer(url, shard_size="8MiB") as w:
        for i in range(60):
            w.write({"bin": bytes([i]) * (6 << 20 if i == 30 else 400_000), "n": i})
            if i % 20 == 10:
                w._flush()
                w.write({"bin": b"small", "n": i})
                w._flush()
        for size in (10, 2000, 200_000):
            w.write_batch({"x": np.arange(8 * size, dtype="f4").reshape(size, 8), "n": np.arange(size)})
    assert w.result is not None
    return str(w.result["digest"])


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes whether frames are in shared memory or pass through the pipe."""
    slots: List[int] = []
    put = receiver._Memory.put

    def counted(memory: receiver._Memory, *args: Any) -> int:
        slots.append(put(memory, *args))
        return slots[-1]

    monkeypatch.setattr(receiver._Memory, "put", counted)
    digest = _mixed_sizes(tmp_path / "shared")
    assert len(slots) > receiver._SLOTS and set(slots) <= set(range(receiver._SLOTS))
    monkeypatch.setattr(receiver, "_memory", lambda: None)
    del slots[:]
    assert _mixed_sizes(tmp_path / "pipe") == digest and not slots


@pytest.mark.parametrize("copied", [False, True])
def test_child_dies_while_all_slots_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool) -> None:
    """The writer waits for a slot, and raises when the child has ended, even if another process has
    a copy of the child's end of the pipe."""
    if copied:
        monkeypatch.setattr(receiver._Memory, "inherited", lambda memory: os.close(memory.file))
    w = shardtool.Writer(tmp_path / "out")
    w.write({"x": b"1"})
    child = w._start()
    child.process.kill()
    assert child._memory is not None
    del child._memory._slots[:]
    with pytest.raises(shardtool.ServerDiedError, match="ended"):
        for _ in range(100):
            w.write({"x": bytes(100_000)})
    if copied:
        os.close(child._memory.free)
    w.abort()


def test_descriptors(tmp_path: Path) -> None:
    """A writer that ended has left no descriptor open."""
    for i in range(2):
        with shardtool.Writer(tmp_path / str(i)) as w:
            w.write({"x": b"1"})
        if i == 0:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) == before
