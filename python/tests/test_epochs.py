"""What iterating again, leaving, failing and resuming mean."""

from __future__ import annotations

import gc
import itertools
import json
import threading
from pathlib import Path
from typing import Any, List

import pytest
from conftest import SAMPLES, in_groups

import shardtool
from shardtool import CheckpointError, ConfigError, Loader


def make(small: Path, **options: Any) -> Loader:
    return Loader(small, 100, **in_groups(**{"shuffle": True, "seed": 1, "tail": "short", "fields": [], **options}))


def epoch_of(small: Path, epoch: int) -> List[List[int]]:
    with make(small, epoch=epoch) as loader:
        return [b.numbers for b in loader]


def test_epochs_follow(small: Path) -> None:
    want = [epoch_of(small, e) for e in range(3)]
    assert want[0] != want[1]
    with make(small) as loader:
        for e in range(3):
            assert [b.numbers for b in loader] == want[e]


def test_left_in_the_middle(small: Path) -> None:
    """An iteration that was left has ended; with its state loaded, it continues."""
    want = [epoch_of(small, e) for e in range(3)]
    with make(small) as loader:
        first = [b.numbers for b in itertools.islice(loader, 4)]
        assert first == want[0][:4]
        assert loader.epoch == 0
        loader.load_state_dict(loader.state_dict())
        assert [b.numbers for b in loader] == want[0][4:]
        assert next(iter(loader)).numbers == want[1][0]
        assert [b.numbers for b in loader] == want[2]  # the rest of epoch 1 is gone


def test_taken_to_the_last(small: Path) -> None:
    """A loop that stops after the last batch, without looking for one more, has left nothing."""
    with make(small) as loader:
        assert len([b for b in itertools.islice(loader, len(loader))]) == 10
        assert next(iter(loader)).numbers == epoch_of(small, 1)[0]


def test_begun_twice(small: Path) -> None:
    """An iteration that delivered nothing has left nothing; the older of two iterators is over."""
    with make(small) as loader:
        old, new = iter(loader), iter(loader)
        assert next(new).numbers == epoch_of(small, 0)[0]
        with pytest.raises(shardtool.ClosedError, match="another one began"):
            next(old)
        assert next(new).numbers == epoch_of(small, 0)[1]


def test_set_epoch(small: Path) -> None:
    with make(small) as loader:
        loader.set_epoch(2)
        assert loader.epoch == 2
        assert [b.numbers for b in loader] == epoch_of(small, 2)
        loader.set_epoch(3)  # the next anyway
        assert [b.numbers for b in itertools.islice(loader, 2)] == epoch_of(small, 3)[:2]
        loader.set_epoch(3)  # anew
        assert [b.numbers for b in loader] == epoch_of(small, 3)
        loader.set_epoch(0)
        assert [b.numbers for b in itertools.islice(loader, 2)] == epoch_of(small, 0)[:2]
        state = loader.state_dict()
    with make(small) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(0)  # resumed in the middle of it: continues
        assert [b.numbers for b in loader] == epoch_of(small, 0)[2:]
    with make(small) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(1)
        state = loader.state_dict()
    with make(small) as loader:
        loader.load_state_dict(state)
        assert [b.numbers for b in loader] == epoch_of(small, 1)


@pytest.mark.parametrize("tail", ["short", "drop", "pad", "wrap"])
def test_resume_at_every_step(small: Path, tail: str) -> None:
    """From the state after each batch, and before the first, on: the rest of the uninterrupted run,
    epoch by epoch."""
    options = {"tail": tail, "global_batch": 160, "seed": 5, "shuffle": True, "fields": []}
    with Loader(small, **in_groups(epochs=2, **options)) as loader:
        states, batches, bounds = [loader.state_dict()], [], []
        for _ in range(2):
            for batch in loader:
                batches.append(batch.numbers)
                states.append(loader.state_dict())
            bounds.append(len(batches))
    for i, state in enumerate(states):
        with Loader(small, **in_groups(epochs=2, **options)) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            got = []
            for bound in bounds:
                if i < bound:
                    assert loader.epoch == (bound == bounds[1])
                    assert len(loader) == bound - (bounds[0] if bound == bounds[1] else 0)
                    loader.set_epoch(loader.epoch)
                    got += [b.numbers for b in loader]
            assert got == batches[i:]


def test_set_epoch_after_state(small: Path) -> None:
    """A state that was taken between set_epoch and the iteration has that epoch before it; asked
    for another, it begins that one."""
    want = [epoch_of(small, e) for e in range(3)]
    with make(small) as loader:
        assert [b.numbers for b in itertools.islice(loader, 4)] == want[0][:4]
        loader.set_epoch(1)
        state = loader.state_dict()
    for epoch in (None, 1, 0, 2):
        with make(small) as loader:
            loader.load_state_dict(state)
            if epoch is not None:
                loader.set_epoch(epoch)
            assert loader.epoch == (1 if epoch is None else epoch)
            assert [b.numbers for b in loader] == want[1 if epoch is None else epoch]


def test_length_from_another_thread(small: Path) -> None:
    """Asking for the length disturbs no iteration that waits for a batch."""
    with make(small) as loader:
        stop = threading.Event()
        lengths: List[int] = []

        def ask() -> None:
            while not stop.is_set():
                lengths.append(len(loader))

        it = iter(loader)
        got = [next(it).numbers]
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(3):
                got += [b.numbers for b in it]
                it = iter(loader)
        finally:
            stop.set()
            asking.join()
    assert got == [numbers for e in range(3) for numbers in epoch_of(small, e)] and set(lengths) == {10}


def test_no_epoch_left(small: Path) -> None:
    with make(small, epochs=1) as loader:
        assert sum(b.size for b in loader) == SAMPLES
        for _ in range(3):
            with pytest.warns(UserWarning, match="the iteration has no batches"):
                assert list(loader) == []


def test_state_before_the_first_batch(small: Path) -> None:
    loader = make(small, epoch=2)
    assert loader.state_dict()["checkpoint"] is None
    other = make(small, epoch=2)
    other.load_state_dict(loader.state_dict())
    iter(other)
    assert json.loads(other.state_dict()["checkpoint"])["epoch"] == 2
    assert next(iter(other)).numbers == epoch_of(small, 2)[0]
    other.close()


def test_checkpoint_refused(small: Path, tmp_path: Path) -> None:
    with make(small) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for bad in ({}, {"version": 1}, {**state, "checkpoint": "text"}, {**state, "version": 2}, {**state, "checkpoint": "[]"}):
        with pytest.raises(CheckpointError):
            make(small).load_state_dict(bad)
    for options, member in [({"seed": 2}, "seed"), ({"shuffle": False}, "shuffle"), ({"tail": "pad"}, "tail"), ({"lanes": 5}, "lanes")]:
        with make(small, **options) as loader:
            loader.load_state_dict(state)
            with pytest.raises(CheckpointError, match=member) as info:
                iter(loader)
            assert info.value.code == 7
    edited = {**state, "checkpoint": state["checkpoint"].replace('"position":100', '"position":101')}
    with make(small) as loader:
        loader.load_state_dict(edited)
        with pytest.raises(CheckpointError, match="edited or damaged"):
            iter(loader)
    # What is not given is the checkpoint's.
    with Loader(small, fields=[]) as loader:
        loader.load_state_dict(state)
        assert len(loader) == 10
        assert [b.numbers for b in loader] == epoch_of(small, 0)[1:]
    # The path is no part of it, the content is.
    from conftest import npy, run

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.npy").write_bytes(npy("<i4", (1,), b"1234"))
    run("pack", tmp_path / "src", tmp_path / "out", "--quiet")
    with make(tmp_path / "out") as loader:
        loader.load_state_dict(state)
        with pytest.raises(CheckpointError, match="digest"):
            iter(loader)


def test_config_refused(small: Path) -> None:
    for options, want in [
        ({"batch_size": 5, "global_batch": 5}, "one of them"),
        ({"rank": 1}, "both or neither"),
        ({"rank": 3, "world_size": 3}, "ranks are from 0"),
        ({"out": "jax"}, "'torch' or 'numpy' or 'bytes'"),
        ({"fields": "txt"}, "list of names"),
        ({"fields": {"txt": "magic"}}, "write one of"),
        ({"fields": {"txt": ("int3", (1,))}}, "dtype"),
        ({"fields": {"txt": 5}}, "write a word"),
        ({"memory": "much"}, "64MiB"),
        ({"memory": 5}, "the least is '1MiB'"),
        ({"on_error": "ignore"}, "'fail' or 'skip'"),
        ({"max_skipped": 1.5}, "share"),
        ({"epochs": -1}, "the least is 0"),
        ({"tail": "long"}, "'short' or 'wrap'"),
    ]:
        with pytest.raises(ConfigError, match=want):
            Loader(small, **in_groups(**{"batch_size": None if "batch_size" not in options else 5, **options}))
    for options, want in [
        ({}, "give batch_size"),
        ({"batch_size": 5, "fields": ["jpg"]}, 'no field "jpg"'),
        ({"batch_size": 5, "fields": ["extra"]}, "334 of 1000"),
        ({"batch_size": 5000, "tail": "drop"}, "delivers nothing"),
        ({"batch_size": 5, "prefetch": 1000}, "prefetch"),
    ]:
        with Loader(small, **in_groups(**options)) as loader, pytest.raises(ConfigError, match=want):
            iter(loader)
    for url in (small / "none", f"{small}/none#view", f"{small}/none@0123456789abcdef", small / "none.yaml"):
        with pytest.raises(shardtool.NotFoundError, match=r"^no (data set in|mix file) .*none.*check the path"):
            Loader(url, 5)  # before an iteration
    with Loader(small.parent, 5) as loader, pytest.raises(shardtool.NotFoundError, match=r"^no data set") as err:
        iter(loader)
    assert "objstore: " not in str(err.value)  # the name of a package in Go


def test_one_loop_of_several_epochs(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where one loop has read a loader with epochs=3, one epoch, that is said at the end."""

    def said(loops: int, leave: bool = False, **options: Any) -> List[str]:
        caplog.clear()
        loader = make(small, **options)
        for _ in range(loops):
            for _ in loader:
                if leave:
                    break
        loader.close()
        del loader
        gc.collect()
        return [record.message for record in caplog.records if "epoch" in record.message]

    (line,) = said(1, epochs=3)
    assert "epochs=3, and 1 epoch was read" in line and "for epoch in range(loader.epoch, 3)" in line
    assert not said(3, epochs=3) and not said(2, epochs=3) and not said(1, epochs=1) and not said(1)
    assert not said(0, epochs=3) and not said(1, leave=True, epochs=3) and not said(1, epochs=2, epoch=1)


def test_a_seed_without_shuffle(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A seed shuffles nothing by itself, and an explicit False is meant."""
    told = "a seed is given without shuffle=True"
    for options, says in (({}, False), ({"seed": 7, "shuffle": True}, False), ({"seed": 7, "shuffle": False}, False), ({"seed": 7}, True)):
        with Loader(small, 100, fields=[], **options) as loader:  # type: ignore[arg-type]
            assert next(iter(loader)).size == 100
            state = loader.state_dict()
        assert (told in caplog.text) == says, options
        caplog.clear()
    with Loader(small, 100, fields=[], seed=7) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader)).size == 100
    assert told not in caplog.text
