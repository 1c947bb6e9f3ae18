"""Weights of a mix that the training program sets, and the agreement of all ranks on them
(ORDER.md 9.13)."""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Mapping as AnyMapping
from fractions import Fraction
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .._checks import cut
from ..errors import CheckpointError, ConfigError, ShardtoolError
from .skipped import why_not
from .states import place_of, with_ledger

#: Seconds that a rank waits for the others to set weights.
_PATIENCE = 120


class Ranks(NamedTuple):
    """The ranks that compare what they set."""

    inner: Any  #: Their group, which connects CPUs.
    world: Any  #: The default group when it was made; None if the user gave the group.


def parse(weights: Any, sources: Optional[Sequence[Mapping[str, Any]]]) -> Dict[str, float]:
    """Returns weights by source. Raises ConfigError for what no mix of these sources has."""
    if not isinstance(weights, AnyMapping):
        raise ConfigError(
            f"set_weights: {cut(repr(weights))}: give a dict of the weights of the sources, as in {{'code': 0.4, 'web': 0.6}}"
        )
    if not sources:
        raise ConfigError("set_weights: the loader reads one data set: weights are for the sources of a mix")
    names = [source["name"] for source in sources]
    out = {}
    for name, weight in weights.items():
        if name not in names:
            raise ConfigError(f"set_weights: there is no source {cut(repr(name))}: the mix has {', '.join(names)}")
        try:
            out[name] = float(Fraction(weight) if isinstance(weight, str) else weight)
        except (TypeError, ValueError, ArithmeticError, RuntimeError):
            raise ConfigError(f"set_weights: source {name!r}: {cut(repr(weight))} is no number") from None
        if isinstance(weight, bool) or not math.isfinite(out[name]) or out[name] < 0:
            raise ConfigError(f"set_weights: source {name!r}: weight {cut(repr(weight))}: give a finite number that is not negative")
    if not any(out.values()):
        raise ConfigError("set_weights: all weights are 0: give one source a weight")
    return out


def dropped(checkpoint: Optional[str]) -> List[str]:
    """Returns a line for each segment of the mix ahead of a checkpoint, which weights drop."""
    pending = json.loads(checkpoint).get("segments", ()) if checkpoint else ()
    return [f"the segment of the mix at position {segment[0]} is dropped, because weights were set before it" for segment in pending]


def join(wanted: Any, rank: int, world_size: int, before: Optional[Ranks]) -> Optional[Ranks]:
    """Returns the ranks that compare what they set; None if they cannot. Then merging their states
    refuses other weights. wanted is ``Faults.skip_group``, which may be the group of the
    data-parallel ranks."""
    if world_size == 1:
        return None
    automatic = wanted is None or isinstance(wanted, bool)
    dist = sys.modules.get("torch.distributed")
    if why_not(dist, (rank, world_size) if automatic else None):
        return None
    assert dist is not None
    if not automatic:
        return Ranks(wanted, None)
    world = dist.group.WORLD
    if before is not None and before.world is world:
        return before
    return Ranks(dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=_PATIENCE)), world)


def agreed(
    ranks: Optional[Ranks], checkpoint: Optional[str], begin: Optional[int], asked: Union[Dict[str, float], Exception]
) -> Dict[str, float]:
    """Returns the weights that all ranks set at the place of a checkpoint, or at the beginning of
    an epoch. asked is what this rank sets, or why it cannot. Raises an error on all ranks if one
    of them cannot, or if they differ."""
    if ranks is not None:
        place = "" if checkpoint is None else f"position {place_of(checkpoint)[1]}"
        state = "" if checkpoint is None else json.loads(with_ledger(checkpoint, {}))["check"]  # skipped blocks may differ
        problem = f"{type(asked).__name__}: {asked}" if isinstance(asked, Exception) else ""
        said = _gather(ranks, (problem, begin, place, state, None if problem else sorted(asked.items())))  # type: ignore[union-attr]
        if not isinstance(asked, Exception):
            _compare(said)
    if isinstance(asked, Exception):
        raise asked
    return asked


def means(loader: Any, sums: "Mapping[str, Tuple[float, int]]") -> Dict[str, float]:
    """Returns the mean of each source over all ranks, which have sums and numbers of values."""
    rank, world_size = loader._resolve()
    loader._steering = join(loader._asked.faults.skip_group, rank, world_size, loader._steering)
    all = [sums] if loader._steering is None else _gather(loader._steering, dict(sums))
    names = sorted({name for one in all for name in one})
    parts = {name: [one[name] for one in all if name in one] for name in names}
    return {name: sum(total for total, _ in of) / sum(count for _, count in of) for name, of in parts.items()}


def _gather(ranks: Ranks, mine: Any) -> "List[Any]":
    import torch.distributed as dist

    said: List[Any] = [None] * dist.get_world_size(ranks.inner)
    try:
        dist.all_gather_object(said, mine, group=ranks.inner)
    except RuntimeError as err:
        raise ShardtoolError(
            f"set_weights: the other ranks did not call it within {_PATIENCE} s, or ended: call it on all ranks after the same batch: {err}"
        ) from err
    return said


def _compare(said: "List[Any]") -> None:
    """Raises the same error on all ranks if what they said differs."""
    for rank, (problem, *_) in enumerate(said):
        if problem:
            raise ConfigError(f"set_weights failed on rank {rank}, so no rank has set weights: {problem}")
    for what, columns in (("at another place", slice(1, 4)), ("other weights", slice(4, 5))):
        for rank, other in enumerate(said):
            if other[columns] != said[0][columns]:
                texts = [", ".join(str(part) for part in one[columns] if part not in (None, "")) for one in (said[0], other)]
                raise CheckpointError(
                    f"set_weights: rank {rank} sets {what}: rank 0 has {texts[0]}, rank {rank} has {texts[1]}: call it on all ranks after"
                    " the same batch, with the same weights"
                )
