"""The arguments of Loader, Dataset and open: groups, types, and the keywords of earlier
versions."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import typing
import warnings
from pathlib import Path
from typing import Any, Callable, List

import pytest

import shardtool
from shardtool import ConfigError, Faults, Loader, Order, Tuning, options

DIRECT = [
    "url",
    "batch_size",
    "fields",
    "shuffle",
    "seed",
    "epochs",
    "rank",
    "world_size",
    "tail",
    "out",
    "map",
    "cache",
    "where",
    "keys",
    "change_mix",
    "skip_steps",
    "pack",
    "bucket",
]


def test_same_names() -> None:
    """All have the same arguments, none takes any other name, and every member of a group is
    documented."""
    loader = inspect.signature(Loader).parameters
    assert list(loader) == [*DIRECT, "order", "tuning", "faults"]
    assert list(inspect.signature(shardtool.open).parameters) == list(inspect.signature(shardtool.Samples).parameters)
    assert set(inspect.signature(shardtool.open).parameters) < set(loader)
    names: List[str] = []
    for group in options.GROUPS.values():
        source = inspect.getsource(group)
        for field in dataclasses.fields(group):
            names.append(field.name)
            after = source.split(f"    {field.name}: ", 1)[1].split("\n", 1)[1]
            assert after.lstrip().startswith('"""'), field.name
    assert len(set(names)) == len(names) and not set(names) & set(loader)


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
    (lambda: Loader("x", 1, seed=-1), "seed=-1: the least is 0"),
    (lambda: Loader("x", 1, rank="0", world_size=1), "rank='0': give a whole number or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, tail="long"), "tail='long': give 'short' or 'wrap' or 'drop' or 'pad' or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, out="jax"), "out='jax': give 'torch' or 'numpy' or 'bytes'"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, map="f"), "map='f': give a function or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, cache=b"c"), "cache=b'c': give text or a path or None"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, order=Tuning()), "give a shardtool.Order"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, tuning={"memory": 5}), "give a shardtool.Tuning"),  # type: ignore[arg-type]
    (lambda: Loader("x", 1, fields=5), "fields=5: give a list of names"),  # type: ignore[arg-type]
    (lambda: shardtool.open("x", out="jax"), "out='jax'"),  # type: ignore[arg-type]
    (lambda: shardtool.open("x", tuning=Order()), "give a shardtool.Tuning"),  # type: ignore[arg-type]
    (lambda: Order(affinity="node"), "affinity='node': give 'epoch' or 'run' or None"),  # type: ignore[arg-type]
    (lambda: Order(global_batch=0), "global_batch=0: the least is 1"),
    (lambda: Order(epoch=-1), "epoch=-1: the least is 0"),
    (lambda: Order(shuffle_memory="much"), "shuffle_memory='much': give bytes, or a size such as '64MiB'"),
    (lambda: Tuning(memory=-1), "memory=-1: the least is 0"),
    (lambda: Tuning(memory=1.5), "memory=1.5: give a whole number or text or None"),  # type: ignore[arg-type]
    (lambda: Tuning(copy="no"), "copy='no': give True or False"),  # type: ignore[arg-type]
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


# Keywords of earlier versions


def test_moved(small: Path) -> None:
    """They work, with a warning that is the caller's and names the new place."""
    want = (
        "the keyword arguments delay, copy, lanes are deprecated: write order=shardtool.Order(delay=..., lanes=...),"
        " tuning=shardtool.Tuning(copy=...)"
    )
    with pytest.warns(DeprecationWarning, match=re.escape(want)) as caught:
        old = Loader(small, 50, shuffle=True, fields=[], tail="short", delay=3, copy=False, lanes=2)  # type: ignore[call-arg]
    assert [w.filename for w in caught] == [__file__]
    tuning = Tuning(copy=False)
    with Loader(small, 50, shuffle=True, fields=[], tail="short", order=Order(delay=3, lanes=2), tuning=tuning) as new, old:
        assert [b.numbers for b in old] == [b.numbers for b in new]
    with pytest.warns(DeprecationWarning, match=r"write tuning=shardtool.Tuning\(memory=...\)") as caught:
        shardtool.open(small, memory="8MiB").close()  # type: ignore[call-arg]
    assert [w.filename for w in caught] == [__file__]


def test_moved_and_group() -> None:
    """Both go together, unless they contradict each other; unknown names are errors."""
    with pytest.warns(DeprecationWarning, match="prefetch"):
        loader = Loader("x", 1, prefetch=2, tuning=Tuning(depth=3))  # type: ignore[call-arg]
    assert (loader._order["prefetch"], loader._order["depth"]) == (2, 3)
    with pytest.raises(ConfigError, match="prefetch is given twice"):
        Loader("x", 1, prefetch=2, tuning=Tuning(prefetch=3))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nonsense"):
        Loader("x", 1, nonsense=2)  # type: ignore[call-arg]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ConfigError, match="on_error='ignore'"):
            Loader("x", 1, on_error="ignore")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [f.name for group in options.GROUPS.values() for f in dataclasses.fields(group)])
def test_every_keyword_moved(name: str) -> None:
    argument, group = next((a, g) for a, g in options.GROUPS.items() if name in g.__dataclass_fields__)
    default = getattr(group(), name)
    with pytest.warns(DeprecationWarning, match=rf"{argument}=shardtool.{group.__name__}\({name}=...\)"):
        Loader("x", **{name: default})  # type: ignore[arg-type]
