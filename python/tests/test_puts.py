"""Every write to a store fails once, before and after it takes effect: what writes ends with the
store's error, publishes nothing or all, and works when it is repeated."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable, Dict, Iterator

import pytest
from s3 import Server, served

import shardtool
from shardtool import Layer, Loader, ShardtoolError, Writer, annotate, optimize

SAMPLES = 40
#: How often each write fails; 0: every eighth, once, others after their effect than before it.
ROUNDS = int(os.environ.get("SHARDTOOL_TEST_PUTS", "0"))


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Ends a test that waits for ever."""
    signal.alarm(600)
    try:
        yield
    finally:
        signal.alarm(0)


def key(i: int) -> str:
    return f"{i:03d}"


def sample(i: int) -> Dict[str, Any]:
    return {"__key__": key(i), "x": i, "bytes": bytes([i]) * 3000}


def write(url: str, **options: Any) -> None:
    with Writer(url, on_exists="resume", shard_size="32KiB", block_size="8KiB", workers=1, **options) as w:
        for i in range(w.resume_from, SAMPLES):
            w.write(sample(i))


def part(url: str) -> None:
    write(url, rank=0, world_size=1)


def inputs(url: str) -> None:
    optimize(sample, range(SAMPLES), url, workers=0, shard_size="32KiB", block_size="8KiB")


def layer(url: str) -> None:
    with Layer(url, "more", on_exists="overwrite", workers=1) as w:
        for i in reversed(range(SAMPLES)):
            w.write({"__key__": key(i), "y": 2 * i})


def shards(url: str) -> None:
    function = lambda batch: {"y": [2 * int(k) for k in batch.sample_keys]}  # noqa: E731
    annotate(url, "more", function, batch_size=4, fields=["x"], progress=False)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with served(monkeypatch) as server:
        yield server


def read(url: str, **options: Any) -> "Dict[str, Any]":
    with Loader(url, 10, epochs=1, shuffle=False, rank=0, world_size=1, **options) as loader:
        return {k: int(v) for batch in loader for k, v in zip(batch.sample_keys, batch["y" if options else "x"])}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("work", [write, part, inputs, layer, shards], ids=lambda f: f.__name__)
def test_every_put(store: Server, work: "Callable[[str], None]", after: bool) -> None:
    options = {"fields": ["y"], "layers": ["more"]} if work in (layer, shards) else {}
    want = {key(i): 2 * i if options else i for i in range(SAMPLES)}
    if options:
        write(store.url("base"))
    before = dict(store.objects)
    failures, longest = 0, 0.0
    for _ in range(ROUNDS or 1):
        for number in range(0 if ROUNDS else 4 * after, 200, 1 if ROUNDS else 8):
            store.objects.clear()
            store.objects.update(before)
            store.begin(number, after)
            url, told, start = store.url("base"), "", time.monotonic()
            with no_hang():
                try:
                    work(url)
                except ShardtoolError as err:
                    told = str(err)
            if not store.fired:
                assert not told, told
                break
            failures, longest = failures + 1, max(longest, time.monotonic() - start)
            assert not told or "AccessDenied" in told or "denied" in told, told
            store.begin()
            if not told:  # the answer alone was lost
                assert read(url, **options) == want
            else:
                with contextlib.suppress(shardtool.NotFoundError):
                    assert read(url, **options) == want
            with no_hang():
                work(url)
            assert read(url, **options) == want
    print(f"{failures} writes were refused; the longest time to an end was {longest:.2f} s")
    assert failures >= 2
