"""The last batch of an epoch: padding repeats samples and is marked."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import SAMPLES, cat, payload, run
from test_units import write

import shardtool
from oracle import Order
from shardtool import Bucket, Faults, Loader, Tuning

NUMPY = Tuning(out="numpy")
FIELDS = {"cls": "int", "txt": "str", "x.npy": "npy", "bin": "bytes"}


def right(batch: Any) -> None:
    """Each sample of a batch has its own key and fields."""
    for i, number in enumerate(batch.numbers):
        want = payload(number)
        assert batch.sample_keys[i] == f"s{number:04d}" and batch["txt"][i] == want["txt"].decode()
        assert batch["cls"][i] == int(want["cls"]) and batch["bin"][i] == want["bin"]
        assert batch["x.npy"][i].tobytes() == want["x.npy"][-24:]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.usefixtures("memory")
def test_padding_of_ranks(small: Path, shuffle: bool) -> None:
    """The samples are those that the order lists, on ranks too whose part has no others."""
    options: Dict[str, Any] = {"shuffle": shuffle, "seed": 3, "tail": "pad", "epochs": 2}
    order = Order.of(str(small), global_batch=96, world_size=4, **options)
    want = list(order.batches(96, epochs=2))
    padding = 0
    for rank in range(4):
        tuning = Tuning(out="numpy", memory="1MiB")
        with Loader(small, 24, fields=FIELDS, rank=rank, world_size=4, tuning=tuning, **options) as loader:
            got = [batch for _ in range(2) for batch in map(checked, loader)]
        assert [numbers for numbers, _ in got] == [list(b.part(rank, 4)) for b in want]
        for (_, marked), b in zip(got, want):
            assert marked == max(0, min(24, 24 * (rank + 1) - b.real))
            padding += marked
    assert padding == 2 * (96 - SAMPLES % 96) and got[-1][1] == 24  # the last rank has nothing else


def checked(batch: Any) -> Any:
    right(batch)
    return batch.numbers, batch.padding


def test_padding_is_marked(small: Path) -> None:
    """In a batch, a copy of it, a dict that a framework made of it, and a record batch."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from shardtool.torch.named import NamedBatch, named

    with Loader(small, 300, fields=FIELDS, tail="pad") as loader:
        last = list(loader)[-1]
    moved = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in named(dict(last), last).items()}
    for batch in (last, pickle.loads(pickle.dumps(last)), shardtool.Batch(dict(last)), named(dict(last), last), NamedBatch(moved)):
        assert (batch.padding, batch.holes) == (200, 0)
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with Loader(small, 300, fields=FIELDS, tail="pad", tuning=Tuning(out="arrow")) as loader:
        batches = list(loader)
    assert [b.schema.metadata for b in batches] == [None] * 3 + [{b"shardtool.padding": b"200"}]
    assert len(arrow.Table.from_batches(batches)) == 1200


def test_padding_of_micro_batches(tmp_path: Path) -> None:
    """The micro-batches that fill the last batch repeat the others of it."""
    docs = write(tmp_path / "docs")
    options: Dict[str, Any] = {"tail": "pad", "epochs": 1, "tuning": NUMPY, "units": Bucket(600, by="tokens", long="drop")}
    with Loader(docs, 16, fields=["input_ids.npy"], **options) as loader:
        last = list(loader)[-1]
    starts = last["unit_start"]
    groups = [last.numbers[a:b] for a, b in zip(starts, starts[1:])]
    real = next(n for n in range(1, 17) if starts[n] == last.size - last.padding)
    assert 0 < real < 16 and len(groups) == 16 and groups == [groups[i % real] for i in range(16)]
    of = {number: ids.tolist() for number, ids in zip(last.numbers, last["input_ids.npy"])}
    assert [ids.tolist() for ids in last["input_ids.npy"]] == [of[number] for number in last.numbers] and all(of.values())


def test_padding_of_mixes(small: Path) -> None:
    """Of several sources, with all their ranks."""
    mix = {"sources": {"a": {"data": str(small)}, "b": {"data": str(small)}}}
    seen: List[Any] = []
    for rank in range(3):
        with Loader(mix, 99, fields=FIELDS, shuffle=True, tail="pad", epochs=1, rank=rank, world_size=3, tuning=NUMPY) as loader:
            for batch in loader:
                right(batch)
                n = batch.size - batch.padding
                seen += zip(batch.sources[:n], batch.numbers[:n])
            assert batch.size == 99 and batch.padding == (79 if rank == 2 else 0)
    assert len(seen) == len(set(seen)) == 2 * SAMPLES


def test_padding_that_is_missing(small: Path, damaged: Path, tmp_path: Path) -> None:
    """A removed or damaged sample that would be repeated is a hole in the padding too."""
    options: Dict[str, Any] = {"fields": FIELDS, "tail": "pad", "epochs": 1, "tuning": NUMPY, "faults": Faults("skip", max_skipped=1000)}
    with Loader(damaged, SAMPLES, **{**options, "tail": "short"}) as loader:
        (whole,) = loader
    lost = {*range(SAMPLES)} - {*whole.numbers}
    size = min(lost) if min(lost) > 500 else 1500
    left = SAMPLES % size
    with Loader(damaged, size, **options) as loader:
        *_, last = loader
    right(last)
    want = [(SAMPLES - left + i % left, i >= left) for i in range(size)]
    want = [(number, padding) for number, padding in want if number not in lost]
    assert last.numbers == [number for number, _ in want] and last.padding == sum(padding for _, padding in want)
    assert last.size + last.holes == size and last.padding < size - left
    copied = tmp_path / "out"
    run("pack", str(small), copied, "--quiet")
    run("remove", copied, "s0990", "s0995")
    with Loader(copied, 300, **options) as loader:
        *_, last = loader
    right(last)
    assert (last.size, last.holes, last.padding) == (294, 6, 196) and not {990, 995} & {*last.numbers}


def test_padding_on_the_command_line(small: Path) -> None:
    """``cat`` writes the samples again."""
    lines = cat(small, "--tail", "pad", "--global-batch", "300")
    assert [x["key"] for x in lines[1000:]] == [x["key"] for x in lines[900:1000]] * 2
    assert [x.get("padding", False) for x in lines] == [False] * 1000 + [True] * 200
    said = subprocess.run(
        [os.environ["SHARDTOOL_BINARY"], "cat", str(small), "--tail", "pad", "--global-batch", "300"], check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(said.stdout)) as tar:
        names = [m.name for m in tar if m.name.endswith(".cls")]
    assert names == [x["key"] + ".cls" for x in lines]


def numbers_of(loader: Any) -> List[int]:
    """The samples that a loop delivers, without padding."""
    return [number for batch in loader for number in batch.numbers[: batch.size - batch.padding]]


def test_each_loop_has_each_sample_once(small: Path) -> None:
    """Without an argument about epochs, and with a number of them."""
    everything = [*range(SAMPLES)]
    for options in ({}, {"epochs": 3}):
        with Loader(small, 64, shuffle=True, **options) as loader:
            loops = [[batch.numbers for batch in loader] for _ in range(3)]
        assert [sorted(itertools.chain(*loop)) for loop in loops] == [everything] * 3 and {len(loop) for loop in loops} == {16}
        ranks = [Loader(small, 64, shuffle=True, rank=rank, world_size=3, **options) for rank in range(3)]
        for _ in range(2):
            batches = [list(loader) for loader in ranks]
            assert {len(loop) for loop in batches} == {6} and {b.size for loop in batches for b in loop} == {64}
            assert sorted(itertools.chain(*map(numbers_of, batches))) == everything
        for loader in ranks:
            loader.close()
    mix = {"sources": {"a": {"data": str(small)}, "b": {"data": str(small)}}}
    with Loader(mix, 64, shuffle=True) as loader:
        for _ in range(2):
            assert len({(s, n) for b in loader for s, n in zip(b.sources, b.numbers)}) == 2 * SAMPLES


def test_no_end_wraps(small: Path) -> None:
    """``epochs=0`` is one stream: every batch is full."""
    with Loader(small, 64, shuffle=True, epochs=0, rank=1, world_size=3) as loader:
        sizes = [batch.size for _ in range(3) for batch in loader]
        assert {*sizes} == {64} and '"tail":"wrap"' in loader.state_dict()["checkpoint"]


@pytest.mark.parametrize("tail", ["wrap", "pad", "short"])
def test_checkpoints_keep_their_tail(small: Path, tail: Any) -> None:
    """A default does not change what a checkpoint recorded, and another explicit one is refused."""
    with Loader(small, 300, shuffle=True, tail=tail) as loader:
        it = iter(loader)
        next(it), next(it)
        state = loader.state_dict()
        want = [batch.numbers for batch in it] + [batch.numbers for batch in loader]
    assert f'"tail":"{tail}"' in state["checkpoint"]
    with Loader(small, 300) as loader:
        loader.load_state_dict(state)
        assert [b.numbers for _ in range(2) for b in loader] == want and len(loader) == (3 if tail == "wrap" else 4)
    with Loader(small, 300, tail="drop") as loader:
        loader.load_state_dict(state)
        with pytest.raises(shardtool.CheckpointError, match="tail"):
            next(iter(loader))


BEFORE = Path(__file__).parent / "before"


@pytest.mark.parametrize("done", [2, 4, 5, 8])
@pytest.mark.parametrize("tail", ["pad", "wrap", "default"])
def test_states_of_the_version_before(tail: str, done: int) -> None:
    """States that another version made, in the middle of an epoch, at its end and after it, on any
    number of ranks: the batches are those that it went on with, but padding has the content of the
    samples that it repeats. See before/make.py."""
    told = json.loads((BEFORE / "states.json").read_text())[tail]
    assert sum(padding for _, padding, _ in told["batches"]) == (60 if tail == "pad" else 0)
    want = told["batches"][done:]
    for ranks, given in itertools.product((1, 2, 3), {None, tail} - {"default"}):
        parts = []
        for rank in range(ranks):
            options: Dict[str, Any] = {"shuffle": True, "seed": 3, "fields": ["cls"], "rank": rank, "world_size": ranks, "tail": given}
            with Loader(BEFORE / "out", 30 // ranks, **options) as loader:
                loader.load_state_dict(told["states"][str(done)])
                batches = itertools.islice((batch for _ in range(3) for batch in loader), len(want))
                part = [(batch.epoch, batch.padding, batch.numbers, batch["cls"].tolist()) for batch in batches]
            assert all(content == numbers for _, _, numbers, content in part)
            parts.append(part)
        got = [[steps[0][0], sum(s[1] for s in steps), [n for s in steps for n in s[2]]] for steps in zip(*parts)]
        assert got == want
