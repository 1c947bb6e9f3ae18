"""States: what ``state_dict`` returns, and how the states of all ranks are merged (ORDER.md 9.10
and 9.11)."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable as IterableABC
from collections.abc import Mapping as AnyMapping
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple, Union

from ..errors import CheckpointError

#: Characters of the longest ledger that a child accepts: about ten thousand blocks.
MAX_LEDGER = 3 << 20


def parse(state: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the members of a state. Raises CheckpointError for anything else."""
    if not isinstance(state, AnyMapping):
        raise CheckpointError(f"not a state of a shardtool.Loader, but {type(state).__name__}: give the dict that state_dict() returned")
    missing = [name for name in ("version", "checkpoint", "ledger", "begin") if name not in state]
    if missing:
        raise CheckpointError(
            f"not a state of a shardtool.Loader: it has no {missing[0]!r}, it has"
            f" {', '.join(map(repr, list(state)[:8])) or 'nothing'}: give the dict that state_dict() returned"
        )
    try:
        version = state["version"]
        out = {name: state[name] for name in ("version", "checkpoint", "ledger", "begin")}
        if state.get("layers"):
            out["layers"] = {str(source): {str(name): str(tables) for name, tables in of.items()} for source, of in state["layers"].items()}
        if state.get("decoders"):
            out["decoders"] = {str(name): str(decoder) for name, decoder in state["decoders"].items()}
        if out["checkpoint"] is not None:
            place_of(out["checkpoint"])
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as err:
        raise CheckpointError(f"not a state of a shardtool.Loader: {type(err).__name__}: {err}") from None
    if version != 1:
        raise CheckpointError(
            f"the state has version {version!r}, but this package reads version 1: use the package that wrote it, or a newer one"
        )
    return out


def single(state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> Dict[str, Any]:
    """Returns the members of a state, or of the merged states of all ranks."""
    many = isinstance(state, IterableABC) and not isinstance(state, (AnyMapping, str, bytes))
    return merge_states(state) if many else parse(state)  # type: ignore[arg-type]


def place_of(checkpoint: str) -> Tuple[int, int]:
    """Returns epoch and position of a checkpoint. The position of a mix counts over all epochs."""
    said = json.loads(checkpoint)
    position = int(said["position"])
    return (position // int(said["epoch_length"]) if of_mix(said) else int(said["epoch"])), position


def of_mix(said: Mapping[str, Any]) -> bool:
    """Whether a checkpoint with these members is of a mix."""
    return bool(said["version"] == 2)


def _members(checkpoint: str) -> Dict[str, Any]:
    """Returns the members of a checkpoint except its check. Raises CheckpointError for a text that
    was damaged or edited. The child that begins at the checkpoint checks everything else."""
    try:
        said = json.loads(checkpoint)
        check = said.pop("check")
        known = said["version"] in (1, 2, 3)
    except (AttributeError, KeyError, TypeError, ValueError) as err:
        raise CheckpointError(f"the checkpoint cannot be used: {type(err).__name__}: {err}") from None
    if not known:
        raise CheckpointError(f"the checkpoint cannot be used: its version is {said['version']!r}, which is unknown")
    if _text(said) != _text(said, check):
        raise CheckpointError("the checkpoint cannot be used: the check differs: it was edited or damaged")
    return said  # type: ignore[no-any-return]


def _text(said: Mapping[str, Any], check: Optional[str] = None) -> str:
    """Returns the text of a checkpoint (ORDER.md 9.10), with its check or the one given."""
    text = json.dumps(said, separators=(",", ":"))
    return f'{text[:-1]},"check":"{zlib.crc32(text.encode("ascii")):08x}"}}' if check is None else f'{text[:-1]},"check":"{check}"}}'


def _samples(said: Mapping[str, Any]) -> int:
    """Returns the samples of the data set, or of the mix, that a checkpoint is of."""
    if not of_mix(said):
        return int(said["sources"][0]["N"])
    column = said["fields"].index("N")
    return sum(int(source[column]) for source in said["sources"])


def skip_hash(blocks: "Ledger") -> str:
    """Returns the hash of skipped blocks (ORDER.md 9.11); empty for none."""
    listed = sorted(((source.encode(), shard.encode()) if source else (shard.encode(),), block) for source, shard, block in blocks)
    lines = (b"\0".join((*names, b"%d\n" % block)) for names, block in listed)
    return hashlib.sha256(b"".join(lines)).hexdigest()[:32] if listed else ""


def merge_states(states: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """Returns the one state of a job whose ranks returned these from ``state_dict`` after the same
    step.

    With ``on_error="skip"``, each rank lists the damaged blocks that it skipped. A job that resumes
    from the state of one rank forgets what the others skipped, and counts too few for
    ``max_skipped``.
    The merged state has the place, which is the same on all ranks, and the blocks that any rank
    skipped. The order of the states and duplicates do not matter. If nothing was skipped, the
    result is the state of any rank.

    Ranks that count together, as the ranks of a Loader do under torch.distributed, already have
    merged states.

    Raises:
        CheckpointError: The states are of different steps, orders or data sets, or one was edited.
    """
    if isinstance(states, AnyMapping):
        states = [states]
    parsed = [parse(state) for state in states]
    if not parsed:
        raise CheckpointError("no states to merge: give the states of all ranks")
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
    return {**first, "version": 1, "checkpoint": checkpoint, "ledger": ledger}


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
    return _text({**_members(checkpoint), "skip_hash": skip_hash(blocks), "skipped": samples_in(blocks)})


def _fits(checkpoint: str, blocks: Ledger) -> None:
    """Raises CheckpointError if a ledger does not belong to a checkpoint. It may list more than the
    checkpoint counts, never less."""
    said, listed = _members(checkpoint), samples_in(blocks)
    samples = _samples(said)
    if not said["skipped"] <= listed <= samples:
        raise CheckpointError(
            f"the checkpoint counts {said['skipped']} skipped samples of {samples}, but the list of skipped blocks has {listed}:"
            " give states as state_dict returned them"
        )


def _same_step(one: Dict[str, Any], other: Dict[str, Any]) -> None:
    """Raises CheckpointError if two states differ in more than the skipped blocks."""
    a, b = _shared(one), _shared(other)
    for name in {**a, **b}:
        if a.get(name) != b.get(name):
            raise CheckpointError(
                f"the states are of different steps or jobs: {name} is {a.get(name)} in one and {b.get(name)} in the other: give what"
                " state_dict returned on each rank after the same step"
            )


def _shared(state: Dict[str, Any]) -> Dict[str, Any]:
    """Returns, by name, what the states of all ranks have in common after a step."""
    checkpoint = state["checkpoint"]
    first = {"the first batch": "to come" if checkpoint is None else "delivered", "begin": state["begin"]}
    if checkpoint is None:
        return first
    return {**first, **{name: value for name, value in _members(checkpoint).items() if name not in ("skip_hash", "skipped")}}
