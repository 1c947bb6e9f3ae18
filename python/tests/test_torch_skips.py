"""Ranks that skip damaged blocks, with torch.distributed between them: one answer for the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed
from skips_help import apart, failing, of_two, on_ranks, whole
from test_skips import states_of

from shardtool._read.states import merge_states

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


def test_same_states(holes: Path, tmp_path: Path) -> None:
    """After each step all ranks have the same state: that of one rank that has all samples."""
    (one,) = states_of(holes, 1)
    for states, problem in on_ranks(3, tmp_path, whole, holes):
        assert problem == ""
        assert states == one


def test_mix(small: Path, holes: Path, tmp_path: Path) -> None:
    """The same over a mix, of which one source has damaged blocks."""
    mix: Any = {"sources": {"a": {"data": str(small)}, "b": {"data": str(holes)}}}
    (one,) = states_of(mix, 1)
    assert '"source":"b"' in one[-1]["ledger"]
    for states, problem in on_ranks(2, tmp_path, whole, mix):
        assert problem == ""
        assert states == one


def test_limit(holes: Path, tmp_path: Path) -> None:
    """All ranks stop at the same step: where one rank with all samples would."""
    (one,) = states_of(holes, 1)
    counts = [sum(int(line.split('"samples":')[1].split(",")[0]) for line in (s["ledger"] or "").splitlines()) for s in one]
    stop = counts.index(counts[-1])  # where the last damaged block is found
    assert stop > 0
    most = counts[-1] - 1
    got = on_ranks(3, tmp_path, whole, holes, max_skipped=most)
    assert [len(states) for states, _ in got] == [stop] * 3
    for _, problem in got:
        assert problem.startswith(f"SkippedError: the ranks together skipped {counts[stop]} samples in ")


def test_another_fails(holes: Path, tmp_path: Path) -> None:
    """A rank that fails does not leave the others waiting."""
    got = on_ranks(2, tmp_path, failing, holes)
    assert got[1][0] == got[0][0] == []
    assert got[1][1].startswith("DecodeError: ")
    assert got[0][1].startswith("ShardtoolError: rank 1 failed at this step: DecodeError: ")


def test_different_steps(holes: Path, tmp_path: Path) -> None:
    """States of two steps are refused on all ranks. Those of one step are merged: each rank may
    bring its own."""
    (one,), two = states_of(holes, 1), states_of(holes, 2, skip_group=False)
    for states, problem in on_ranks(2, tmp_path, apart, holes, [two[0][8], two[1][9]]):
        assert states == []
        assert problem.startswith(
            "CheckpointError: the ranks are at different steps: rank 0 begins at epoch 0, position 540 of checkpoint "
        )
        assert "rank 1 begins at epoch 0, position 600 of" in problem
    assert two[0][8] != merge_states([two[0][8], two[1][8]]) == one[8]
    for states, problem in on_ranks(2, tmp_path, apart, holes, [two[0][8], two[1][8]]):
        assert problem == ""
        assert states == one[9:]


def test_group(holes: Path, tmp_path: Path) -> None:
    """Data-parallel ranks that differ from those of torch.distributed, in their own group."""
    (one,) = states_of(holes, 1)
    for states, problem in on_ranks(4, tmp_path, of_two, holes):
        assert problem == ""
        assert states == one
