"""Units: packed sequences and micro-batches of samples of similar length."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, List, Literal, Optional, Sequence, Union

from .. import guesses
from .._checks import address, drop_none, set_typed, within
from ..batch import HIDDEN
from ..errors import ConfigError
from ..fields import Field, find

__all__ = ["Bucket", "Pack"]

Long = Literal["error", "split", "truncate", "drop"]

_LONGEST, _WIDEST = 2**31 - 1, 2**20  # length or budget, and window


@guesses.answered(guesses.PACKING, "Pack(8192, ['input_ids'])", 2)
@dataclasses.dataclass(frozen=True)
class Pack:
    """Packs samples into sequences of one length: ``Loader(units=Pack(8192, ["input_ids"]))``.

    Which samples share a sequence follows from their lengths, which are in the index of the data
    set. So it is the same on any number of ranks, and a job resumes at any sequence. ``batch_size``
    and ``global_batch`` count sequences.

    A batch of B sequences of length L has:

    - each of ``fields`` as an array of shape (B, L), padded with ``pad_id``. A field named
      "labels" is padded with -100, in a signed type.
    - ``position_ids``: (B, L) int32, the place of each token in its piece, from 0.
    - ``document``: (B, L) int32, which item of its sequence each token belongs to, from 0; -1 in
      padding.
    - ``cu_seqlens``: int32, where items and the padding of each sequence begin and end in the B * L
      tokens, for attention over sequences of variable length; ``max_seqlen``: the longest of them.
    - ``fill``: the share of the tokens that is not padding.

    ``sample_keys`` and ``numbers`` have one value for each item, in the order of the sequences.
    """

    length: int
    """L, tokens of a sequence."""

    fields: Sequence[str]
    """The fields with one value for each token: npy files with one dimension. "input_ids" also
    finds the field "input_ids.npy"."""

    by: str = "tokens"
    """The integer attribute of the index that has the number of tokens of each sample."""

    long: Long = "error"
    """A sample that is longer than a sequence. "error": ConfigError. "split": pieces of ``length``,
    the last one shorter. "truncate": only its beginning. "drop": left out."""

    pad_id: int = 0
    """What fills the rest of a sequence."""

    window: Optional[int] = None
    """Samples that are packed together. More fill sequences better, and hold more memory. None:
    chosen from the data set and the shuffle memory, 256 to 4096."""

    plans: Union[str, os.PathLike[str], None] = None
    """A folder that keeps the plan of each epoch, so that the next start need not make it. None: in
    the folder ``cache`` of the loader, or else in the user's cache folder. "none": keep none."""

    def __post_init__(self) -> None:
        if isinstance(self.fields, str):
            raise ConfigError(f"Pack(fields={self.fields!r}): give a list of names")
        set_typed(self)
        object.__setattr__(self, "fields", tuple(str(name) for name in self.fields))
        within("length", self.length, 1, _LONGEST)
        within("window", self.window, 1, _WIDEST)
        if not self.fields:
            raise ConfigError("Pack(fields=[]): name the fields with one value for each token")
        taken = sorted(set(self.fields) & set(_DERIVED))
        if taken or len(set(self.fields)) < len(self.fields):
            raise ConfigError(f"Pack(fields={list(self.fields)!r}): give each name once, and none of {', '.join(_DERIVED)}")

    def request(self, have: Sequence[str], cache: Optional[str]) -> Dict[str, Any]:
        """Returns the member of START. ``have`` are the fields of the data set."""
        fields = [{"name": _find(name, have), "pad": -100 if _stem(name) == "labels" else self.pad_id} for name in self.fields]
        return {**_request(self, "pack", self.length, cache), "fields": fields}

    def columns(self) -> List[Field]:
        """Returns the columns of its batches, as the child sends them."""
        return [Field(name, "npy") for name in (*self.fields, *_DERIVED, HIDDEN)]


_DERIVED = ("position_ids", "document", "cu_seqlens", "max_seqlen", "fill")


@guesses.answered(guesses.BUCKETS, "Bucket(60_000, by='frames')", 2)
@dataclasses.dataclass(frozen=True)
class Bucket:
    """Forms micro-batches of samples of similar length: ``Loader(units=Bucket(60_000))``.

    Samples times the longest of them is at most ``budget``. ``batch_size`` and ``global_batch``
    count micro-batches; ``batch_size=1`` is one for each rank and step. Micro-batches follow from
    the lengths in the index, as for Pack.

    A batch has its ``fields`` with one value a sample, as without a Bucket, and

    - ``length``: int32, the length of each sample, or of its piece where ``long`` cuts samples;
    - ``unit_start``: int32, where each micro-batch begins in the samples, and the number of samples
      last. With one micro-batch it is [0, samples].

    Fields contain whole samples; ``long="split"`` and "truncate" only change ``length``, so they
    suit fields that the program cuts itself.
    """

    budget: int
    """Most samples times the longest of them."""

    by: str = "frames"
    """The integer attribute of the index that has the length of each sample."""

    long: Long = "error"
    """A sample that is longer than the budget, as for Pack."""

    window: Optional[int] = None
    """Samples that micro-batches are formed from together; None: chosen, 256 to 4096."""

    plans: Union[str, os.PathLike[str], None] = None
    """A folder for the plans of epochs, as for Pack."""

    def __post_init__(self) -> None:
        set_typed(self)
        within("budget", self.budget, 1, _LONGEST)
        within("window", self.window, 1, _WIDEST)

    def request(self, have: Sequence[str], cache: Optional[str]) -> Dict[str, Any]:
        """Returns the member of START."""
        return _request(self, "bucket", self.budget, cache)

    def columns(self) -> List[Field]:
        """Returns the columns of its batches that no sample has."""
        return [Field(name, "npy") for name in ("length", "unit_start", HIDDEN)]


def _request(units: "Union[Pack, Bucket]", kind: str, size: int, cache: Optional[str]) -> Dict[str, Any]:
    plans = units.plans
    if plans is None:
        plans = None if cache is None else os.path.join(cache, "plans")
    elif plans != "none":
        plans = address(plans)
    return drop_none({"kind": kind, "size": size, "by": units.by, "long": units.long, "window": units.window, "plans": plans})


def _stem(name: str) -> str:
    return name[:-4] if name.endswith(".npy") else name


def _find(name: str, have: Sequence[str]) -> str:
    """Returns the field of the data set that a name stands for."""
    field = name + ".npy" if name not in have and name + ".npy" in have else find(name, have, "Pack(fields=...): ")
    if field in have:
        return field
    raise ConfigError(f"Pack(fields=...): the data set has no field {name!r}, it has {', '.join(have)}")
