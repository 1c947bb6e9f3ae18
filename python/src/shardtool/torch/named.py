"""A batch as a dict that keeps its checkpoint when code takes dicts apart and builds new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from .. import guesses
from ..batch import Batch, Name, Place, on_tensors, standing_for, stored_name
from ..errors import CheckpointError, ClosedError


def _fact(name: str) -> Any:
    """Returns a property that a NamedBatch has from its batch."""
    return property(lambda self: getattr(Batch(self), name), doc=getattr(Batch, name).__doc__)


class NamedBatch(Dict[str, Any]):
    """The fields of a batch: a dict of tensors, arrays and lists.

    A DataLoader's collate function, its ``pin_memory``, and code that moves batches to a device
    make new dicts with the same keys. The place is therefore in a key: ``state_dict()`` remains
    correct, and ``state_of`` returns it for any dict with these keys. So are the facts of the
    samples, such as ``numbers``; ``batch["__key__"]`` has their keys, although it is no item.
    """

    def __missing__(self, name: str) -> Any:
        if name == "__key__":
            return self.sample_keys
        return self[stored_name(name, self)]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            of = name if name in self else standing_for(name, self)
            return guesses.missing(self, name, guesses.BATCH if of is None else {name: f"it is a field: batch[{name!r}]"}, "a batch")

    def to(self, *device: Any, **options: Any) -> "NamedBatch":
        """Returns the batch with its tensors where ``Tensor.to`` puts them; other values stay."""
        return NamedBatch({name: on_tensors(value, lambda tensor: tensor.to(*device, **options)) for name, value in self.items()})

    def pin_memory(self) -> "NamedBatch":
        """Returns the batch with its tensors in pinned memory; other values stay."""
        return NamedBatch({name: on_tensors(value, lambda tensor: tensor.pin_memory()) for name, value in self.items()})

    def state_dict(self) -> Dict[str, Any]:
        """Returns the state after this batch, for ``load_state_dict`` of a data set or a
        ``shardtool.Loader``."""
        return state_of(self)

    def payloads(self, name: str) -> "List[Optional[memoryview]]":
        """The undecoded payloads of a field: see ``Batch.payloads``. A batch that came from another
        process has payloads of fields of bytes."""
        batch = next((getattr(key, "batch", None) for key in self), None)
        if batch is not None and batch._buffer is not None:
            return batch.payloads(name)  # type: ignore[no-any-return]
        values = self[name]
        if isinstance(values, list) and all(v is None or isinstance(v, bytes) for v in values):
            return [None if v is None else memoryview(v) for v in values]
        raise ClosedError(f"this batch came from another process or was moved, without payloads: declare {name!r} as 'bytes'")

    #: Facts of the batch: see ``Batch``.
    epoch: int = _fact("epoch")
    position: int = _fact("position")
    size: int = _fact("size")
    padding: int = _fact("padding")
    holes: int = _fact("holes")
    sample_keys: "List[Optional[str]]" = _fact("sample_keys")
    numbers: "List[int]" = _fact("numbers")
    seeds: "List[int]" = _fact("seeds")
    epochs: "List[int]" = _fact("epochs")
    sources: "List[Optional[str]]" = _fact("sources")


def named(values: Mapping[str, Any], batch: Batch) -> NamedBatch:
    """Returns a dict of the values, with the place and the facts of a batch."""
    out = NamedBatch()
    items = iter(values.items())
    for key, value in items:
        name = batch._name(key)
        if batch._layout is not None:
            name.batch = batch
        out[name] = value
        break
    out.update(items)
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
