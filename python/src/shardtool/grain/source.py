"""Random access for Grain."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from .. import guesses, sources
from .._checks import Output
from ..errors import ConfigError, redact
from ..fields import Spec
from ..options import Tuning
from ..samples import Samples


def arrays(tuning: Tuning, format: Optional[Output] = None) -> Tuning:
    """Returns the options with arrays of numpy, which Grain stacks and shares between processes."""
    for name, value in (("format", format), ("out", tuning.out)):
        if value not in (None, "numpy"):
            raise ConfigError(f"{name}={value!r}: Grain's elements have numpy arrays: leave it out")
    return dataclasses.replace(tuning, out="numpy")


class Source:
    """A ``grain.sources.RandomAccessDataSource``: the samples of a data set by their numbers.

    ::

        source = shardtool.grain.Source("s3://bucket/train", fields={"jpg": "image", "cls": "int"})
        ds = grain.MapDataset.source(source).shuffle(seed=7).to_iter_dataset()

    An element is a dict of the fields, with numpy arrays. A removed sample is None, which Grain
    leaves out where it makes an ``IterDataset`` of a ``MapDataset``.

    Each access reads a block of the data set: with Grain's shuffle, that is a block for a sample.
    ``IterDataset`` reads each block once.

    It can be pickled. Each process that uses a copy has its own child process. Threads may share
    it.

    Args:
        url, fields, layers, where, cache: As for ``shardtool.open``.
        tuning: As for ``shardtool.open``. Arrays are always of numpy.
    """

    @guesses.answering(guesses.READING)
    def __init__(
        self,
        url: Union[str, os.PathLike[str], sources.Source],
        *,
        fields: Union[Iterable[str], Mapping[str, Spec], None] = None,
        layers: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
        where: Optional[str] = None,
        cache: Union[str, os.PathLike[str], None] = None,
        tuning: Tuning = Tuning(),
    ) -> None:
        self._samples = Samples(url, fields=fields, layers=layers, where=where, cache=cache, tuning=arrays(tuning))
        asked = {f.name: getattr(f.spec, "__qualname__", f.spec) for f in self._samples._fields or ()}
        # Grain's DataLoader compares it before it continues a checkpoint.
        self._shown = redact(f"{self._samples.url!r}, {where!r}, {asked or None}")

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Optional[Dict[str, Any]]:
        return self._getitems([index])[0]

    def _getitems(self, indices: Sequence[int]) -> List[Optional[Dict[str, Any]]]:
        """Returns many samples with one wait; Grain calls it where it reads batches."""
        # A plain dict, because Grain takes a subclass of dict for a leaf.
        return [None if sample is None else dict(sample) for sample in self._samples._answers(indices, holes=True)]

    __getitems__ = _getitems

    def __repr__(self) -> str:
        return f"shardtool.grain.Source({self._shown})"

    def close(self) -> None:
        """Ends the child process of this process. A second call does nothing."""
        self._samples.close()
