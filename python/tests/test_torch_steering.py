"""Ranks that set the weights of a mix, with torch.distributed between them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, List

import pytest
import skips_help
import torch
import torch.distributed
import torch.utils.data
from mix_help import mix_of, pack
from skips_help import on_ranks

import shardtool
from shardtool import Dataset, Loader
from shardtool._read import steering
from shardtool.torch import Prefetcher

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("mixes")
    for name in ("code", "web"):
        pack(out, name, 90)
    return mix_of(out, {"code": 1, "web": 3})


def steps(rank: int, size: int, mix: Any, sets: List[Any]) -> Any:
    """Goes on for six steps. sets has by rank the step and the weights that the rank sets."""
    step, weights = sets[rank]
    problem, sources = "", []
    with Loader(mix, 10, shuffle=True, seed=1, fields=["txt"]) as loader:
        for number, batch in enumerate(loader):
            sources.append(batch.sources)
            if number == step:
                try:
                    loader.set_weights(weights)
                except shardtool.ShardtoolError as err:
                    problem = f"{type(err).__name__}: {err}"
            if number == 5:
                break
        return problem, loader.state_dict(), sources


def test_agreed(mix: Any, tmp_path: Path) -> None:
    """The state is the same on all ranks, and that of one rank."""
    want = steps(0, 1, {**mix}, [(2, {"code": 0.5})])
    assert {source for batch in want[2][3:] for source in batch} == {"code"}
    got = on_ranks(3, tmp_path, steps, mix, [(2, {"code": 0.5})] * 3)
    assert all(problem == "" and state == got[0][1] for problem, state, _ in got)
    assert '"steered":[90,0,' in got[0][1]["checkpoint"]


def test_differ(mix: Any, tmp_path: Path) -> None:
    """Other weights, another step, and weights that one rank cannot set are refused on all ranks,
    which go on as before."""
    none = on_ranks(2, tmp_path, steps, mix, [(9, {})] * 2)
    for sets, problem in (
        ([(2, {"code": 1}), (2, {"code": 1, "web": 1})], "CheckpointError: set_weights: rank 1 sets other weights: rank 0 has"),
        ([(2, {"code": 1}), (3, {"code": 1})], "CheckpointError: set_weights: rank 1 sets at another place: rank 0 has position 60"),
        ([(2, {"code": 1}), (2, {"code": -1})], "source 'code': weight -1"),
    ):
        got = on_ranks(2, tmp_path, steps, mix, sets)
        for (text, state, sources), (_, same, before) in zip(got, none):
            assert problem in text
            assert state == same
            assert sources == before


def breaking(rank: int, size: int, mix: Any, how: str, patience: float) -> Any:
    """Rank 1 ends, never sets weights, or stops for a while, as the others set them."""
    steering._PATIENCE = patience  # type: ignore[assignment]
    with Loader(mix, 10, shuffle=True, seed=1, fields=["txt"]) as loader:
        it = iter(loader)
        next(it)
        try:
            loader.set_weights({"code": 1, "web": 1})  # all meet
        except shardtool.ShardtoolError:
            return ["late"]
        if rank == 1 and how == "ends":
            os._exit(3)
        if rank == 1 and how == "never":
            time.sleep(2 * patience)
            return ["never", len(next(it).numbers)]
        if rank == 1 and how == "stops":
            resume = subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            resume.wait()
        try:
            loader.set_weights({"code": 1})
        except shardtool.ShardtoolError as err:
            return ["refused", str(err), len(next(it).numbers)]
        return ["set", loader.state_dict(), set(next(it).sources)]


@pytest.mark.parametrize("how", ["never", "stops"])
def test_a_rank_that_does_not_come(mix: Any, tmp_path: Path, how: str) -> None:
    """Ranks wait for one that is stopped. If one never comes they get an error that says so, and
    can go on as before."""
    patience = 4.0 if how == "never" else 120.0
    got = on_ranks(3, tmp_path, breaking, mix, how, patience)
    while ["late"] in got and patience < 120:  # a busy machine held one up before
        patience *= 2
        got = on_ranks(3, tmp_path, breaking, mix, how, patience)
    if how == "stops":
        assert all(one == got[0] and one[2] == {"code"} for one in got) and got[0][0] == "set"
        return
    assert got[1] == ["never", 10]
    for kind, text, size in (got[0], got[2]):
        assert kind == "refused" and f"the other ranks did not call it within {patience} s, or ended: call it on all ranks" in text
        assert size == 10


def test_a_rank_that_ends(mix: Any, tmp_path: Path) -> None:
    """Ranks that wait for one that dies get an error at once, and can go on as before."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    ranks = [
        context.Process(target=skips_help._run, args=(rank, 3, str(tmp_path / "meet"), breaking, (mix, "ends", 3000.0), {}, out))
        for rank in range(3)
    ]
    for process in ranks:
        process.start()
    got = dict(out.get(timeout=300) for _ in range(2))
    for process in ranks:
        process.join(300)
    assert [process.exitcode for process in ranks] == [0, 3, 0] and sorted(got) == [0, 2]
    for kind, text, size in got.values():
        assert kind == "refused" and "or ended: call it on all ranks" in text and size == 10


def two_loaders(rank: int, size: int, mix: Any, different: bool) -> Any:
    """Each rank has the loaders in another order, and sets their weights in it."""
    made = {}
    for name in ("a", "b")[:: -1 if rank else 1]:
        made[name] = Loader(mix, 10, shuffle=True, seed=1 if name == "a" else 2, fields=["txt"])
        next(iter(made[name]))
    said = []
    for name in ("a", "b")[:: -1 if rank else 1]:
        try:
            made[name].set_weights({"code": 1} if name == "a" or not different else {"web": 1})
            said.append("")
        except shardtool.CheckpointError as err:
            said.append(str(err))
    for loader in made.values():
        loader.close()
    return said


@pytest.mark.parametrize("different", [False, True])
def test_loaders_in_another_order(mix: Any, tmp_path: Path, different: bool) -> None:
    """Weights of two loaders that ranks set in another order are refused on all ranks: they would
    not be those of one loader."""
    got = on_ranks(2, tmp_path, two_loaders, mix, different)
    assert got[0] == got[1] and all("call it on all ranks after the same batch, with the same weights" in text for text in got[0])


def test_prefetcher(mix: Any) -> None:
    """The batch after the one that the loop received has other weights, however far the thread has
    read ahead; also the last of an epoch, and where the weights are refused."""
    given = {"shuffle": True, "seed": 1, "fields": ["txt"], "map_batch": lambda batch: {"sources": batch.sources}}
    with Loader(mix, 10, **given) as loader:
        plain = [[batch["sources"] for batch in loader] for _ in range(2)]
    loader = Loader(mix, 10, **given)
    with pytest.raises(shardtool.ConfigError, match="Prefetcher"), Prefetcher(loader, "cpu"):
        loader.set_weights({"code": 1})
    for made in (Loader, Dataset):
        source = made(mix, 10, **given)
        iterated = source if made is Loader else torch.utils.data.DataLoader(source, batch_size=None)
        with Prefetcher(iterated, "cpu", ahead=3) as batches:
            got = []
            for number, batch in enumerate(batches):
                got.append(batch["sources"])
                if number == 2:
                    with pytest.raises(shardtool.ConfigError):
                        batches.set_weights({"cod": 1})
                if number == 4:
                    batches.set_weights({"code": 1})
                    assert '"steered":[50,' in batches.state_dict()["checkpoint"]
                if number == 49:
                    batches.set_weights({"web": 1})
            assert got[:5] == plain[0][:5] and len(got) == 50
            assert {source for sources in got[5:] for source in sources} == {"code"}
            batches.set_weights({"code": 1, "web": 1})
            batches.set_weights({"web": 1})
            second = [batch["sources"] for batch in batches]
            assert len(second) == 50 and {source for sources in second for source in sources} == {"web"}


def test_dataset(mix: Any) -> None:
    """A DataLoader without workers has other weights from the next batch on. With workers, the loop
    says where it is."""
    given = {"shuffle": True, "seed": 1, "fields": ["txt"], "map_batch": lambda batch: {"sources": batch.sources}}
    dataset = Dataset(mix, 10, **given)
    for number, batch in enumerate(torch.utils.data.DataLoader(dataset, batch_size=None)):
        assert number < 3 or set(batch["sources"]) == {"code"}
        if number == 2:
            dataset.set_weights({"code": 1})
        if number == 5:
            break
    dataset = Dataset(mix, 10, **given)
    for number, batch in enumerate(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)):
        if number == 2:
            break
    with pytest.raises(shardtool.ConfigError, match=r"workers have read ahead .*load_state_dict\(batch.state_dict\(\)\)"):
        dataset.set_weights({"code": 1})
    dataset.load_state_dict(batch.state_dict())
    dataset.set_weights({"code": 1})
    for number, batch in enumerate(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)):
        assert set(batch["sources"]) == {"code"}
        if number == 4:
            break
    dataset.close()
