"""torchdata's StatefulDataLoader: its state resumes after the batch that the loop received last,
with the same number of workers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, List

import pytest
from torch_help import expected, make

if "SHARDTOOL_TEST_TORCH" not in os.environ:
    pytest.importorskip("torchdata.stateful_dataloader")
from torchdata.stateful_dataloader import StatefulDataLoader


def loop(url: Path, workers: int, persistent: bool, every: int) -> "StatefulDataLoader[Any]":
    return StatefulDataLoader(
        make(url, batch_size=60, tail="wrap"),
        batch_size=None,
        num_workers=workers,
        persistent_workers=persistent,
        snapshot_every_n_steps=every,
    )


def seen(batches: Any) -> List[List[int]]:
    return [b["n"].tolist() for b in batches]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("workers", "persistent", "every"), [(0, False, 1), (1, False, 1), (2, False, 1), (2, True, 1), (2, False, 4), (3, True, 4)]
)
def test_resumed(small: Path, workers: int, persistent: bool, every: int) -> None:
    """From the state after any batch, and that after an epoch: the rest of the uninterrupted run.
    Where it was the last of its epoch, the loop that is resumed is the next epoch, as of all that
    keeps a place here."""
    want = [b for epoch in range(2) for b in expected(small, epoch, batch_size=60, tail="wrap")]
    dl = loop(small, workers, persistent, every)
    got, states = [], [dl.state_dict()]
    ends = []
    for _ in range(2):
        for batch in dl:
            got.append(batch["n"].tolist())
            states.append(json.loads(json.dumps(dl.state_dict())))
        ends.append((len(got), json.loads(json.dumps(dl.state_dict()))))
    assert got == want
    border = ends[0][0]
    for i, state in [*((i, states[i]) for i in (0, 1, 2, 7, border - 1, border, border + 1)), *ends[:1]]:
        dl = loop(small, workers, persistent, every)
        dl.load_state_dict(state)
        rest = seen(dl)  # of this epoch
        assert rest == (got[i:border] if i < border else got[i:])
        again = json.loads(json.dumps(dl.state_dict()))
        rest += seen(dl)
        assert rest[: len(got) - i] == got[i:]
        # And from a state of the resumed run.
        if i == 7:
            dl = loop(small, workers, persistent, every)
            dl.load_state_dict(again)
            assert seen(dl) == got[border:][: len(got) - border]


def test_resumed_from_a_resumed(small: Path) -> None:
    """Over and over, with all that workers had read ahead lost each time."""
    want = [b for e in range(2) for b in expected(small, e)]
    got: List[List[int]] = []
    state = None
    while len(got) < 15:
        dl = StatefulDataLoader(make(small), batch_size=None, num_workers=2)
        if state is not None:
            dl.load_state_dict(state)
        for batch in dl:
            got.append(batch["n"].tolist())
            state = json.loads(json.dumps(dl.state_dict()))
            if len(got) % 3 == 0:
                break
        state = json.loads(json.dumps(dl.state_dict()))
    assert got == want[:15]
