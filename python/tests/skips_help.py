"""Ranks in separate processes, for the tests of skipping together. The processes import this
module."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from conftest import in_groups

import shardtool
from shardtool import Loader

OPTIONS: Dict[str, Any] = {
    "global_batch": 60, "shuffle": True, "seed": 5, "tail": "short", "fields": ["txt"], "on_error": "skip", "max_skipped": 0.5,
}  # fmt: skip


def go_through(loader: Loader, epochs: int = 1) -> Tuple[List[Dict[str, Any]], str]:
    """The states after all batches, and the error that ended them."""
    states = []
    try:
        for _ in range(epochs):
            for batch in loader:
                assert batch.state_dict() == loader.state_dict()
                states.append(loader.state_dict())
    except shardtool.ShardtoolError as err:
        return states, f"{type(err).__name__}: {err}"
    return states, ""


def whole(rank: int, size: int, url: Path, **options: Any) -> Any:
    """All batches of a loader."""
    with Loader(url, **in_groups(**{**OPTIONS, **options})) as loader:
        return go_through(loader)


def failing(rank: int, size: int, url: Path) -> Any:
    """Rank 1 finds a sample that is not as declared."""
    fields = {"txt": "bytes"} if rank != 1 else {"txt": "int"}
    with Loader(url, **in_groups(**{**OPTIONS, "fields": fields})) as loader:
        return go_through(loader)


def apart(rank: int, size: int, url: Path, states: List[Any]) -> Any:
    """Each rank is given another state."""
    with Loader(url, **in_groups(**OPTIONS)) as loader:
        loader.load_state_dict(states[rank])
        return go_through(loader)


def of_two(rank: int, size: int, url: Path) -> Any:
    """Four processes, of which pairs share a data-parallel rank."""
    import torch.distributed as dist

    groups = [dist.new_group([i, i + 2], backend="gloo") for i in range(2)]
    with Loader(url, **in_groups(**OPTIONS, rank=rank // 2, world_size=2, skip_group=groups[rank % 2])) as loader:
        return go_through(loader)


def _run(rank: int, size: int, file: str, work: Callable[..., Any], args: Tuple[Any, ...], options: Dict[str, Any], out: Any) -> None:
    try:
        logging.getLogger("shardtool").setLevel(logging.ERROR)
        if file:
            import torch.distributed as dist

            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
        out.put((rank, work(rank, size, *args, **options)))
    except BaseException:
        out.put((rank, traceback.format_exc()))


def on_ranks(size: int, tmp_path: Path, work: Callable[..., Any], *args: Any, **options: Any) -> List[Any]:
    """What ``work`` returns on each of the ranks of torch.distributed."""
    start = multiprocessing.get_context("spawn")
    out = start.Queue()
    file = str(tmp_path / f"rendezvous-{time.monotonic_ns()}")
    processes = [start.Process(target=_run, args=(rank, size, file, work, args, options, out)) for rank in range(size)]
    for process in processes:
        process.start()
    got: Dict[int, Any] = {}
    try:
        while len(got) < size:
            rank, value = out.get(timeout=300)
            assert not isinstance(value, str), value
            got[rank] = value
    except queue.Empty:
        raise AssertionError(f"ranks {sorted(set(range(size)) - set(got))} hang") from None
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return [got[rank] for rank in range(size)]
