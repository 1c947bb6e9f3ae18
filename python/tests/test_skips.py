"""States of ranks that skipped different blocks, merged into the one of the job."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import in_groups
from skips_help import OPTIONS, go_through

from shardtool import CheckpointError, ConfigError, Loader
from shardtool._read.states import merge_states


def states_of(url: Path, size: int, **options: Any) -> List[List[Dict[str, Any]]]:
    """The states of ranks that do not know of each other, by rank and step."""
    out = []
    for rank in range(size):
        with Loader(url, **in_groups(**OPTIONS, rank=rank, world_size=size, **options)) as loader:
            states, problem = go_through(loader)
        assert problem == ""
        out.append(states)
    return out


def skipped(state: Dict[str, Any]) -> int:
    return int(json.loads(state["checkpoint"])["skipped"])


def test_merge(holes: Path) -> None:
    """The states of three ranks after a step, merged, are that of one rank that has all samples.
    Resumed, they end alike."""
    one, ranks = states_of(holes, 1)[0], states_of(holes, 3, skip_group=False)
    assert len(one) == len(ranks[0]) == len(ranks[2]) == 17
    apart = sum(states[0] != states[1] or states[1] != states[2] for states in zip(*ranks))
    assert apart > 10  # they are not the same
    for want, *states in zip(one, *ranks):
        for turn in itertools.permutations(states):
            assert merge_states(turn) == want
        assert merge_states([merge_states(states[:2]), *states[1:], *states]) == want
    assert merge_states([one[-1]]) == one[-1]
    assert skipped(one[-1]) > skipped(ranks[0][-1])
    step = 9
    with Loader(holes, **in_groups(**{**OPTIONS, "rank": 0, "world_size": 2, "skip_group": False})) as loader:
        loader.load_state_dict([states[step] for states in ranks])
        assert loader.state_dict() == one[step]
        rest, _ = go_through(loader)
    with Loader(holes, **in_groups(**{**OPTIONS, "rank": 1, "world_size": 2, "skip_group": False})) as loader:
        loader.load_state_dict(one[step])
        other, _ = go_through(loader)
    assert merge_states([rest[-1], other[-1]]) == one[-1]


def test_merge_before_the_first_batch(holes: Path) -> None:
    fresh = Loader(holes, **in_groups(**OPTIONS)).state_dict()
    assert merge_states([fresh, fresh]) == fresh
    later = states_of(holes, 1)[0][0]
    with pytest.raises(CheckpointError, match="the first batch is to come in one and delivered in the other"):
        merge_states([fresh, later])


def test_merge_refuses(holes: Path) -> None:
    """What is not of one step of one job, and lists that were lost or edited."""
    both = list(zip(*states_of(holes, 2, skip_group=False)))
    step = next(i for i, states in enumerate(both) if skipped(states[0]))
    (a, c), (b, _) = both[step : step + 2]
    lines = str(a["ledger"]).splitlines()
    line = json.loads(lines[0])
    with pytest.raises(CheckpointError, match=f"position is {60 * step + 60} in one and {60 * step + 120} in the other"):
        merge_states([a, b])
    with pytest.raises(CheckpointError, match="begin is None in one and 3"):
        merge_states([a, {**c, "begin": 3}])
    with Loader(holes, **in_groups(**{**OPTIONS, "seed": 6})) as loader:
        other = go_through(loader)[0][step]
    with pytest.raises(CheckpointError, match="seed is 5 in one and 6"):
        merge_states([a, other])
    with pytest.raises(CheckpointError, match="has 0: give"):
        merge_states([{**a, "ledger": None}, c])
    with pytest.raises(CheckpointError, match=f"disagree on block {line['block']} of shard"):
        merge_states([a, {**c, "ledger": str(c["ledger"] or "") + json.dumps({**line, "samples": 10**3}) + "\n"}])
    with pytest.raises(CheckpointError, match="of 1000, but the list"):
        merge_states([{**a, "ledger": str(a["ledger"]) + '{"shard":"x","block":0,"first":0,"samples":100000000000000000000}\n'}])
    for text in ("x", "[]", "null", '{"shard":"","block":1,"first":0,"samples":1}', '{"shard":"x","block":-1,"first":0,"samples":1}',
                 '{"shard":"x","block":true,"first":0,"samples":1}', '{"shard":"x","block":1}'):  # fmt: skip
        with pytest.raises(CheckpointError, match="list of skipped blocks cannot be read"):
            merge_states([{**a, "ledger": text}])
    with pytest.raises(CheckpointError, match="check"):
        merge_states([{**a, "checkpoint": str(a["checkpoint"]).replace('"epoch":0', '"epoch":1')}, c])
    for what in ([], [{}], [None], None):
        with pytest.raises((CheckpointError, TypeError)):
            merge_states(what)  # type: ignore[arg-type]


def test_alone(holes: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A rank that cannot reach the others warns, once for each start; one that need not, or was
    configured, does not."""
    with caplog.at_level(logging.WARNING, "shardtool"):
        for options in ({"world_size": 1, "rank": 0}, {"world_size": 2, "rank": 0, "skip_group": False}):
            with Loader(holes, **in_groups(**{**OPTIONS, **options})) as loader:
                next(iter(loader))
        assert caplog.messages == []
        with Loader(holes, **in_groups(**OPTIONS, rank=1, world_size=2)) as loader:
            next(iter(loader))
    (said,) = caplog.messages
    assert "rank 1 of 2 counts skipped samples alone, because torch.distributed is not initialised" in said
    with (
        Loader(holes, **in_groups(**OPTIONS, rank=1, world_size=2, skip_group=True)) as loader,
        pytest.raises(ConfigError, match="not initialised"),
    ):
        next(iter(loader))


def test_list_too_long(small: Path) -> None:
    """A list that no child can be started with is refused by its size."""
    with Loader(small, **in_groups(**OPTIONS)) as loader:
        line = '{"shard":"x","block":%d,"first":0,"samples":0,"reason":"' + "r" * 1000 + '"}'
        loader.load_state_dict({**loader.state_dict(), "ledger": "".join(line % i + "\n" for i in range(4000))})
        with pytest.raises(CheckpointError, match="list of skipped blocks has"):
            next(iter(loader))
