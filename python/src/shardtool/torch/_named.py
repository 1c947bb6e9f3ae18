"""A batch as a dict that keeps its checkpoint when code takes dicts apart and builds new ones."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..batch import Batch, Name, Place
from ..errors import CheckpointError


class NamedBatch(Dict[str, Any]):
    """The fields of a batch: a dict of tensors, arrays and lists.

    A DataLoader's collate function, its ``pin_memory``, and code that moves batches to a device
    make new dicts with the same keys. The place is therefore in a key: ``state_dict()`` remains
    correct, and ``state_of`` returns it for any dict with these keys.
    """

    def state_dict(self) -> Dict[str, Any]:
        """Returns the state after this batch, for ``load_state_dict`` of a data set or a
        ``shardtool.Loader``."""
        return state_of(self)

    @property
    def epoch(self) -> int:
        """The epoch in which the batch begins."""
        return place_of(self).epoch

    @property
    def position(self) -> int:
        """The position of its global batch: samples of the epoch before it, over all ranks."""
        return place_of(self).position

    @property
    def size(self) -> int:
        """Samples of this rank."""
        return place_of(self).size


def named(values: Mapping[str, Any], batch: Batch) -> NamedBatch:
    """Returns a dict of the values, with the place of a batch."""
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
    """Returns the place in the first key of a batch."""
    for key in batch:
        if isinstance(key, Name):
            return key.place
    raise CheckpointError(
        "this batch has no place: only a dict with the keys of a batch of shardtool.Dataset has one, so `map` must return a dict"
    )


def state_of(batch: Mapping[Any, Any]) -> Dict[str, Any]:
    """Returns the state after a batch: any mapping with the keys of a batch of a
    ``shardtool.Dataset`` or ``shardtool.Loader``. Raises CheckpointError for others."""
    if isinstance(batch, Batch):
        return batch.state_dict()
    place = place_of(batch)
    return {"version": 1, "checkpoint": place.checkpoint, "ledger": place.ledger, "begin": None}
