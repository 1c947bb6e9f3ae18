"""Jobs in which several ranks see the same samples: tensor, pipeline and context parallel, on 8, 6
and 16 processes in turn, each killed. The global batches are those of one process.

`make test-compat` runs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from conftest import in_groups
from torch.distributed.device_mesh import init_device_mesh

import shardtool

GLOBAL, EVERY = 48, 4  # samples of a global batch; steps between checkpoints
OPTIONS: Dict[str, Any] = {"shuffle": True, "seed": 5, "global_batch": GLOBAL, "fields": {"tokens": ("uint8", (64,))}}


def note(run: Path, step: int, rank: int, dp: int, batch: shardtool.Batch) -> None:
    """Notes what a rank saw, in one write."""
    with open(run / f"seen-{rank}.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "dp": dp, "first": batch.first, "numbers": batch.numbers}) + "\n")


def seen(run: Path) -> "Dict[int, Dict[int, Dict[int, List[int]]]]":
    """The samples by step, rank and first position in the global batch."""
    out: Dict[int, Dict[int, Dict[int, List[int]]]] = {}
    for path in run.glob("seen-*.jsonl"):
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # cut off by the kill
                said = json.loads(line)
                out.setdefault(said["step"], {})[int(path.stem[5:])] = {said["first"]: said["numbers"]}
    return out


# A job in the way of torchtitan: a mesh with names, and torch.distributed.checkpoint.


def titan(rank: int, world: int, shape: "Dict[str, int]", url: Path, run: Path, steps: int) -> None:
    mesh = init_device_mesh("cpu", tuple(shape.values()), mesh_dim_names=tuple(shape))
    dp = mesh["dp"]
    model = torch.nn.Linear(64, 4)
    loader = shardtool.Loader(url, **in_groups(**OPTIONS), rank=dp.get_local_rank(), world_size=dp.size())
    parts: Dict[str, Any] = {"model": model.state_dict(), "loader": loader, "step": 0}
    checkpoints = sorted(run.glob("step-[0-9]*"))
    if checkpoints:
        dcp.load(parts, checkpoint_id=str(checkpoints[-1]))
        model.load_state_dict(parts["model"])
    step, batches = parts["step"], iter(loader)
    while step < steps:
        batch = next(batches, None)
        if batch is None:  # the end of an epoch
            batches = iter(loader)
            continue
        note(run, step, rank, dp.get_local_rank(), batch)
        loss = model(batch["tokens"].float() / 255).square().sum() / GLOBAL
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=dp.get_group())
            p.data -= 0.01 * p.grad
            p.grad = None
        step += 1
        if step % EVERY == 0:
            dcp.save({"model": model.state_dict(), "loader": loader, "step": step}, checkpoint_id=str(run / "unfinished"))
            if rank == 0:
                os.replace(run / "unfinished", run / f"step-{step:05d}")
            dist.barrier()


# A job in the way of Megatron-LM: groups made by hand in the order tp, cp, dp, pp; only the first
# rank of each tensor-parallel group reads, and broadcasts to the others.


def megatron(rank: int, world: int, shape: "Dict[str, int]", url: Path, run: Path, steps: int) -> None:
    tp, cp, pp = shape["tp"], shape["cp"], shape["pp"]
    dp = world // (tp * cp * pp)
    my_tp, my_dp = rank % tp, rank // (tp * cp) % dp
    groups = [dist.new_group(list(range(first, first + tp))) for first in range(0, world, tp)]
    group, source = groups[rank // tp], rank - my_tp
    checkpoint = run / "checkpoint.pt"
    saved = torch.load(checkpoint) if checkpoint.exists() else {"step": 0, "loader": None}
    loader, batches = None, iter(())
    if my_tp == 0:
        loader = shardtool.Loader(url, **in_groups(**OPTIONS), rank=my_dp, world_size=dp)
        if saved["loader"] is not None:
            loader.load_state_dict(saved["loader"])
        batches = iter(loader)
    step = saved["step"]
    while step < steps:
        tokens = torch.empty(GLOBAL // dp, 64, dtype=torch.uint8)
        size = torch.zeros(1, dtype=torch.int64)
        if loader is not None:
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            note(run, step, rank, my_dp, batch)
            size[0] = batch.size
            tokens[: batch.size] = batch["tokens"]
        dist.broadcast(size, source, group)
        dist.broadcast(tokens, source, group)
        check = torch.cat([size.double(), tokens[: int(size)].double().sum()[None]])
        both = [torch.empty_like(check) for _ in range(tp)]
        dist.all_gather(both, check, group)
        assert all(torch.equal(b, check) for b in both)
        step += 1
        if step % EVERY == 0:
            if rank == 0 and loader is not None:
                torch.save({"step": step, "loader": loader.state_dict()}, run / "checkpoint.tmp")
                os.replace(run / "checkpoint.tmp", checkpoint)
            dist.barrier()


def process(rank: int, job: Any, world: int, shape: "Dict[str, int]", url: Path, run: Path, steps: int, meet: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world)
    job(rank, world, shape, url, run, steps)
    Path(f"{meet}.{rank}").touch()
    while not all(Path(f"{meet}.{r}").exists() for r in range(world)):  # gloo fails where a rank ends before the others
        time.sleep(0.01)
    dist.destroy_process_group()


def launch(job: Callable[..., None], shape: "Dict[str, int]", url: Path, run: Path, steps: int, until: int) -> None:
    """Runs a job on as many processes as its mesh has. All are killed when rank 0 has begun step
    ``until``."""
    world = 1
    for n in shape.values():
        world *= n
    meet = run / f"meet-{world}-{time.time_ns()}"
    context = mp.get_context("fork")  # torch is there already
    ranks = [context.Process(target=process, args=(r, job, world, shape, url, run, steps, str(meet))) for r in range(world)]
    for p in ranks:
        p.start()
    try:
        deadline = time.monotonic() + 300
        while any(p.is_alive() for p in ranks):
            assert time.monotonic() < deadline
            assert all(p.exitcode in (None, 0) for p in ranks)
            first = run / "seen-0.jsonl"
            if first.exists() and f'"step": {until},' in first.read_text():
                break
            time.sleep(0.01)
    finally:
        for p in ranks:
            with contextlib.suppress(ProcessLookupError):
                if p.pid is not None:
                    os.kill(p.pid, signal.SIGKILL)
        for p in ranks:
            p.join()


MESHES: Dict[str, Any] = {
    "titan": [{"pp": 2, "dp": 2, "tp": 2}, {"pp": 1, "dp": 3, "tp": 2}, {"pp": 2, "dp": 2, "cp": 2, "tp": 2}],
    "megatron": [{"tp": 2, "cp": 1, "pp": 2, "dp": 2}, {"tp": 1, "cp": 2, "pp": 1, "dp": 3}, {"tp": 2, "cp": 2, "pp": 2, "dp": 2}],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("job", [titan, megatron])
def test_eight_six_sixteen(small: Path, tmp_path: Path, job: Any) -> None:
    with shardtool.Loader(small, **in_groups(**OPTIONS), rank=0, world_size=1) as loader:
        want = [batch.numbers for _ in range(3) for batch in loader]
    steps = 34  # more than an epoch of 1,000 samples
    for shape, until in zip(MESHES[job.__name__], (11, 23, steps + 1)):
        launch(job, shape, small, tmp_path, steps, until)
        got = seen(tmp_path)
        for ranks in got.values():
            parts: Dict[int, List[int]] = {}
            for part in ranks.values():
                for first, numbers in part.items():
                    assert parts.setdefault(first, numbers) == numbers  # ranks of one replica see the same
        for path in tmp_path.glob("seen-*.jsonl"):
            path.unlink()
        whole = {step: {first: n for part in ranks.values() for first, n in part.items()} for step, ranks in got.items()}
        complete = [step for step, parts in whole.items() if sum(map(len, parts.values())) == GLOBAL]
        for step in complete:
            assert [n for _, numbers in sorted(whole[step].items()) for n in numbers] == want[step]
        first, last = min(complete), max(complete)
        assert complete and first % EVERY == 0 and first <= until and last >= min(until, steps) - 2
    assert last == steps - 1
