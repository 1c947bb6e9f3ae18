"""A batch as a dict that keeps its checkpoint through everything that takes dicts apart and puts them together again."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..batch import Batch, Name, Place
from ..errors import CheckpointError


class NamedBatch(Dict[str, Any]):
    """The fields of a batch: a dict of tensors, arrays and lists.

    A DataLoader's collate function, its ``pin_memory``, and the code that moves batches to a device all make new dicts of the same keys. So
    the place is in a key: ``state_dict()`` is right after all of that, and for other dicts with these keys ``state_of`` tells it.
    """

    def state_dict(self) -> Dict[str, Any]:
        """The state behind this batch, for ``load_state_dict`` of a data set, or of a ``shardtool.Loader``."""
        return state_of(self)

    @property
    def epoch(self) -> int:
        """The epoch in which the batch begins."""
        return place_of(self).epoch

    @property
    def position(self) -> int:
        """Where its global batch begins: samples of the epoch before it, over all ranks."""
        return place_of(self).position

    @property
    def size(self) -> int:
        """Samples of this rank."""
        return place_of(self).size


def named(values: Mapping[str, Any], batch: Batch) -> NamedBatch:
    """A dict of the values, with the place of a batch."""
    out = NamedBatch()
    for key, value in values.items():
        if not out:
            name = Name(key)
            name.place = Place(batch.checkpoint, batch._saved[1], batch.epoch, batch.position, batch.size)
            out[name] = value
        else:
            out[key] = value
    return out


def place_of(batch: Mapping[Any, Any]) -> Place:
    """The place that a batch's first key knows."""
    for key in batch:
        if isinstance(key, Name):
            return key.place
    raise CheckpointError(
        "this batch has lost its place: a dict with the keys of a batch of shardtool.Dataset has it; what `map` returns has to be a dict"
    )


def state_of(batch: Mapping[Any, Any]) -> Dict[str, Any]:
    """The state behind a batch: of any mapping that has the keys of a batch that a ``shardtool.Dataset`` or ``shardtool.Loader`` gave.
    Raises CheckpointError for others."""
    if isinstance(batch, Batch):
        return batch.state_dict()
    place = place_of(batch)
    return {"version": 1, "checkpoint": place.checkpoint, "ledger": place.ledger, "begin": None}
