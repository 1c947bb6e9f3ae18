"""A hundred epochs: the memory and files of the process and its child stay constant."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Dict, List

import pytest
from conftest import SAMPLES, children

from shardtool import Loader


def usage(pid: int) -> Dict[str, int]:
    """Descriptors, threads and resident KiB of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    values = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS:", "Threads:"))}
    return {"files": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(values["Threads"]), "resident": int(values["VmRSS"])}


@pytest.mark.usefixtures("memory")
def test_hundred_epochs(small: Path) -> None:
    """Epoch after epoch of one loader, some of them left early: complete epochs have every sample
    once, and nothing accumulates."""
    seen: List[Dict[str, int]] = []
    with Loader(small, 64, shuffle=True, seed=3, tail="short", fields=["txt", "x.npy"]) as loader:
        for epoch in range(110):
            numbers: List[int] = []
            for batch in loader:
                assert batch.epoch == epoch
                numbers += batch.numbers
                if epoch % 10 == 4 and len(numbers) > 300:
                    break
            else:
                assert sorted(numbers) == list(range(SAMPLES))
            if epoch in (10, 109):
                gc.collect()
                (child,) = children()
                seen += [usage(os.getpid()), usage(child)]
                maps = Path("/proc/self/maps").read_text().count("memfd:shardtool")
                seen[-2].update(maps=maps, active=threading.active_count())
    ours, child, ours_later, child_later = seen
    for name in ("files", "maps", "active"):
        assert ours_later[name] <= ours[name], (ours, ours_later)
    assert child_later["files"] <= child["files"]
    # The child's runtime adds threads when calls into the kernel block, and its heap may double
    # before garbage is collected.
    assert child_later["threads"] <= child["threads"] + 4, (child, child_later)
    assert ours_later["resident"] < ours["resident"] + 1024, (ours, ours_later)
    assert child_later["resident"] < 2 * child["resident"], (child, child_later)
