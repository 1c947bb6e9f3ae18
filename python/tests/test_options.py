"""The arguments of Loader, Dataset and open: groups and types."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from pathlib import Path
from typing import Any, Callable, List

import pytest

import shardtool
from shardtool import ConfigError, Faults, Lanes, Loader, Order, Tuning

DIRECT = [
    "url", "batch_size", "fields", "layers", "where", "shuffle", "seed", "epochs", "rank", "world_size", "tail", "map_batch",
    "cache", "cache_size", "units", "cost", "format", "order", "tuning", "faults",
]  # fmt: skip


def test_same_names() -> None:
    """All have the same arguments, none takes any other name, and every member of a group is
    documented."""
    loader = inspect.signature(Loader).parameters
    assert list(loader) == DIRECT
    assert list(inspect.signature(shardtool.open).parameters) == list(inspect.signature(shardtool.Samples).parameters)
    assert set(inspect.signature(shardtool.open).parameters) < set(loader)
    names: List[str] = []
    for group in (Order, Lanes, Tuning, Faults):
        source = inspect.getsource(group)
        for field in dataclasses.fields(group):
            names += [field.name] if group is not Lanes else []  # which Order has too, from before
            after = source.split(f"    {field.name}: ", 1)[1].split("\n", 1)[1]
            assert after.lstrip().startswith('"""'), field.name
    assert len(set(names)) == len(names) and set(names) & set(loader) == {"cache_size"}


def test_dataset_has_the_names_of_the_loader() -> None:
    torch = pytest.importorskip("shardtool.torch", reason="torch is not installed")
    ours, theirs = (inspect.signature(kind).parameters.values() for kind in (torch.Dataset, Loader))
    assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs]


def test_groups() -> None:
    """A group cannot be changed, can be compared, copied and pickled, and has sizes in bytes."""
    tuning = Tuning(memory="64MiB", ring_memory=5, stats_every=2)
    assert (tuning.memory, tuning.ring_memory, tuning.stats_every) == (64 << 20, 5, 2.0)
    assert tuning == pickle.loads(pickle.dumps(tuning)) == copy.copy(tuning) != Tuning()
    with pytest.raises(dataclasses.FrozenInstanceError):
        tuning.memory = 5  # type: ignore[misc]
    assert dataclasses.replace(tuning, memory=None) == Tuning(ring_memory=5, stats_every=2)


def test_used(small: Path) -> None:
    """What groups ask for arrives: the batches are those of the direct arguments."""
    with Loader(small, 50, fields=[], shuffle=True, tail="short") as one:
        batches = [b.numbers for b in one]
    order, tuning = Order(global_batch=50, shuffle_memory="2GiB"), Tuning(prefetch=1, workers=1)
    with Loader(small, fields=[], shuffle=True, tail="short", order=order, tuning=tuning) as two:
        assert [b.numbers for b in two] == batches
    with Loader(small, 50, fields=[], shuffle=True, tail="short", order=Order(lanes=3, delay=2)) as other:
        assert [b.numbers for b in other] != batches
    with shardtool.open(small, fields={"txt": "txt"}, tuning=Tuning(memory="8MiB", workers=1)) as ds:
        assert ds[3]["txt"]


def test_mapped_type() -> None:
    """Loader is generic over what map returns; the parameter costs nothing at run time."""
    assert typing.get_origin(Loader[int]) is Loader


BAD = [
    (lambda: Loader("x", "64"), "batch_size='64': give a whole number or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 6.4), "batch_size=6.4: give a whole number or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", True), "batch_size=True: give a whole number or None"),
    (lambda: Loader("x", 0), "batch_size=0: the least is 1"),
    (lambda: Loader(5, 1), "url=5: give text or a path"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, shuffle=1), "shuffle=1: give True or False or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, seed=-1), "seed=-1: give 0 to 18446744073709551615"),
    (lambda: Loader("x", 1, rank="0", world_size=1), "rank='0': give a whole number or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, tail="long"), "tail='long': give 'short' or 'wrap' or 'drop' or 'pad' or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, tuning=shardtool.Tuning(out="jax")), "out='jax': give 'torch' or 'numpy' or 'bytes' or 'arrow'"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, map_batch="f"), "map_batch='f': give a function or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, cache=b"c"), "cache=b'c': give text or a path or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, order=Tuning()), "give a shardtool.Order"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, tuning={"memory": 5}), "write Tuning(memory=5)"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, fields=5), "fields=5: give a list of names"),  # type: ignore[arg-type]
    (lambda: shardtool.open("x", tuning=shardtool.Tuning(out="jax")), "out='jax'"),  # type: ignore[arg-type]
    (lambda: shardtool.open("x", tuning=Order()), "give a shardtool.Tuning"),  # type: ignore[arg-type]
    (lambda: Order(affinity="node"), "affinity='node': give 'epoch' or 'run' or None"),  # type: ignore[arg-type]
    (lambda: Order(global_batch=0), "global_batch=0: the least is 1"),
    (lambda: Order(epoch=-1), "epoch=-1: the least is 0"),
    (lambda: Order(shuffle_memory="much"), "shuffle_memory='much': give bytes, or a size such as '64MiB'"),
    (lambda: Tuning(memory=-1), "memory=-1: give bytes, or a size such as '64MiB'"),
    (lambda: Tuning(memory=1.5), "memory=1.5: give a whole number or text or None"),  # type: ignore[arg-type]
    (lambda: Tuning(copy="no"), "copy='no': give True or False or None"),  # type: ignore[arg-type]
    (lambda: Tuning(stats_every=float("nan")), "stats_every=nan: the least is 0"),
    (lambda: Faults(on_error="ignore"), "on_error='ignore': give 'fail' or 'skip'"),  # type: ignore[arg-type]
    (lambda: Faults(max_skipped=1.5), "share such as 0.001"),
    (lambda: Faults(max_skipped=-1), "number of samples"),
    (lambda: Faults(max_skipped="1%"), "max_skipped='1%': give a whole number or a number or None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_types_are_checked(make: Callable[[], Any], words: str) -> None:
    """A wrong type or choice is an error of the call that has it, in Python's words."""
    with pytest.raises(ConfigError) as info:
        make()
    assert words in str(info.value)


def test_integers_of_numpy(small: Path) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    size, share = numpy.int64(100), numpy.float32(0.5)
    with Loader(small, size, fields=[], rank=numpy.int32(0), world_size=numpy.uint8(1), faults=Faults("skip", share)) as loader:
        assert len([b for b in loader]) == 10


@pytest.mark.parametrize("name", [f.name for group in (Order, Tuning, Faults) for f in dataclasses.fields(group) if f.name != "cache_size"])
def test_members_are_no_arguments(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Loader(".", **{name: None})  # type: ignore[arg-type]


def test_format(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of arrays is an argument, and without it the library that is there."""
    fields = {"tokens": ("uint8", (64,))}
    for format in ("numpy", "bytes"):
        with Loader(small, 10, fields=fields, epochs=1, format=format) as loader:  # type: ignore[arg-type]
            got = next(iter(loader))["tokens"]
        assert type(got).__name__ == {"numpy": "ndarray", "bytes": "memoryview"}[format]
        with shardtool.open(small, fields=fields, format=format) as ds:  # type: ignore[arg-type]
            assert type(ds[0]["tokens"]) is type(got)
    with Loader(small, 10, epochs=1, format="arrow") as loader:
        assert next(iter(loader)).num_rows == 10
    with pytest.raises(ConfigError, match=r"format='numpy' and Tuning\(out='bytes'\): leave the second out"):
        Loader(small, 10, format="numpy", tuning=Tuning(out="bytes"))
    with pytest.raises(ConfigError, match="format='jax'"):
        Loader(small, 10, format="jax")  # type: ignore[arg-type]
    monkeypatch.setattr("shardtool.options.installed", lambda module: module != "torch")
    with Loader(small, 10, fields=fields, epochs=1) as loader:
        assert type(next(iter(loader))["tokens"]).__name__ == "ndarray"
