"""States: what ``state_dict`` returns, and how the states of all ranks are merged (ORDER.md 9.10
and 9.11)."""

from __future__ import annotations

import json
from collections.abc import Mapping as AnyMapping
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from .errors import CheckpointError

#: Characters of the longest ledger that a child accepts: about ten thousand blocks.
MAX_LEDGER = 3 << 20


def parse(state: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the members of a state. Raises CheckpointError for anything else."""
    try:
        version = state["version"]
        out = {name: state[name] for name in ("version", "checkpoint", "ledger", "begin")}
        if out["checkpoint"] is not None:
            place_of(out["checkpoint"])
    except (ArithmeticError, KeyError, TypeError, ValueError) as err:
        raise CheckpointError(f"not a state of a shardtool.Loader: {type(err).__name__}: {err}") from None
    if version != 1:
        raise CheckpointError(
            f"the state has version {version!r}, but this package reads version 1: use the package that wrote it, or a newer one"
        )
    return out


def single(state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> Dict[str, Any]:
    """Returns the members of a state, or of the merged states of all ranks."""
    return parse(state) if isinstance(state, AnyMapping) else merge_states(state)


def place_of(checkpoint: str) -> Tuple[int, int]:
    """Returns epoch and position of a checkpoint. The position of a mix counts over all epochs."""
    said = json.loads(checkpoint)
    position = int(said["position"])
    return (position // int(said["epoch_length"]) if of_mix(said) else int(said["epoch"])), position


def of_mix(said: Mapping[str, Any]) -> bool:
    """Whether the members of a checkpoint are those of a mix."""
    return bool(said["version"] == 2)


def _read(checkpoint: str) -> Any:
    """Parses a checkpoint of a data set or a mix. Both have ``skip_hash``, ``skipped`` and
    ``text``."""
    from .order import read_checkpoint, read_mix_checkpoint

    try:
        mix = of_mix(json.loads(checkpoint))
    except (KeyError, TypeError, ValueError):
        mix = False
    return read_mix_checkpoint(checkpoint) if mix else read_checkpoint(checkpoint)


def merge_states(states: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """Returns the one state of a job whose ranks returned these from ``state_dict`` after the same
    step.

    With ``on_error="skip"``, each rank lists the damaged blocks that it skipped. A job that resumes
    from the state of one rank forgets those of the others, and counts too few for ``max_skipped``.
    The merged state has the place, which is the same on all ranks, and the blocks that any rank
    skipped. The order of the states and duplicates do not matter. If nothing was skipped, the
    result is the state of any rank.

    Ranks that count together, as those of a Loader do under torch.distributed, already have merged
    states.

    Raises:
        CheckpointError: The states are of different steps, orders or data sets, or one was edited.
    """
    if isinstance(states, AnyMapping):
        states = [states]
    parsed = [parse(state) for state in states]
    if not parsed:
        raise CheckpointError("no states to merge: give those of all ranks")
    first = parsed[0]
    for other in parsed[1:]:
        _same_step(first, other)
    blocks: Ledger = {}
    for state in parsed:
        own = read_ledger(state["ledger"])
        unite(blocks, own)
        if state["checkpoint"] is not None:
            _fits(state["checkpoint"], own)
    ledger = write_ledger(blocks)
    checkpoint = first["checkpoint"]
    if checkpoint is not None:
        checkpoint = with_ledger(checkpoint, blocks)
    return {"version": 1, "checkpoint": checkpoint, "ledger": ledger, "begin": first["begin"]}


class Block(NamedTuple):
    """A line of a ledger."""

    first: int
    samples: int
    reason: bytes
    line: str  # the text as it was written


#: Blocks by source, shard and number. The source is empty for one data set.
Ledger = Dict[Tuple[str, str, int], Block]


def read_ledger(text: Optional[str]) -> Ledger:
    """Returns the blocks of a ledger. Raises CheckpointError for another text."""
    out: Ledger = {}
    for line in (text or "").split("\n"):
        if line:
            try:
                said = json.loads(line)
                shard, numbers = said["shard"], [said[name] for name in ("block", "first", "samples")]
                source = said.get("source", "")
                if not shard or type(shard) is not str or type(source) is not str or any(type(n) is not int or n < 0 for n in numbers):
                    raise ValueError(line[:200])
                reason = str(said.get("reason", "")).encode("utf-8", "surrogatepass")
            except (KeyError, TypeError, ValueError, AttributeError) as err:
                raise CheckpointError(f"the list of skipped blocks cannot be read: {type(err).__name__}: {err}") from None
            unite(out, {(source, shard, numbers[0]): Block(numbers[1], numbers[2], reason, line)})
    return out


def unite(into: Ledger, more: Ledger) -> None:
    """Adds the blocks of one ledger to another. Of two reasons it keeps the one that is smaller as
    bytes, so that the result does not depend on the order."""
    for place, block in more.items():
        known = into.get(place)
        if known is not None and known[:2] != block[:2]:
            raise CheckpointError(
                f"the lists of skipped blocks disagree on block {place[2]} of shard {place[1]}: give the states of one job"
            )
        into[place] = block if known is None else min(known, block)


def write_ledger(blocks: Ledger) -> Optional[str]:
    """Returns the text of a ledger; None without blocks."""
    order = sorted(
        blocks, key=lambda place: (place[0].encode("utf-8", "surrogatepass"), place[1].encode("utf-8", "surrogatepass"), place[2])
    )
    return "".join(blocks[place].line + "\n" for place in order) or None


def check_length(ledger: Optional[str]) -> None:
    """Raises CheckpointError for a ledger that is too long for a child."""
    if ledger is not None and len(ledger) > MAX_LEDGER:
        raise CheckpointError(
            f"the list of skipped blocks has {len(ledger)} characters, more than the maximum of {MAX_LEDGER}: restore the data set from"
            " a copy, and begin without this state"
        )


def samples_in(blocks: Ledger) -> int:
    """Returns the number of samples in the blocks."""
    return sum(block.samples for block in blocks.values())


def with_ledger(checkpoint: str, blocks: Ledger) -> str:
    """Returns a checkpoint that counts the blocks of a ledger."""
    from .order import skip_hash

    said = _read(checkpoint)._replace(skip_hash=skip_hash(blocks), skipped=samples_in(blocks))
    return str(said.text())


def _fits(checkpoint: str, blocks: Ledger) -> None:
    """Raises CheckpointError if a ledger does not belong to a checkpoint. It may list more than the
    checkpoint counts, never less."""
    said, listed = _read(checkpoint), samples_in(blocks)
    samples = sum(source.samples for source in said.mix.sources) if hasattr(said, "mix") else said.samples
    if not said.skipped <= listed <= samples:
        raise CheckpointError(
            f"the checkpoint counts {said.skipped} skipped samples of {samples}, but the list of skipped blocks has {listed}:"
            " give states as state_dict returned them"
        )


def _same_step(one: Dict[str, Any], other: Dict[str, Any]) -> None:
    """Raises CheckpointError if two states differ in more than the skipped blocks."""
    for a, b in zip(_members(one), _members(other)):
        if a != b:
            raise CheckpointError(
                f"the states are of different steps or jobs: {a[0]} is {a[1]} in one and {b[1]} in the other: give what state_dict"
                " returned on each rank after the same step"
            )


def _members(state: Dict[str, Any]) -> List[Tuple[str, Any]]:
    """Returns, by name, what the states of all ranks have in common after a step."""
    if state["checkpoint"] is None:
        return [("the first batch", "to come"), ("begin", state["begin"])]
    said = _read(state["checkpoint"])._replace(skip_hash="", skipped=0)._asdict()
    for inner in ("parameters", "mix"):
        if inner in said:
            said = {**said.pop(inner)._asdict(), **said}
    return [("the first batch", "delivered"), ("begin", state["begin"]), *said.items()]
