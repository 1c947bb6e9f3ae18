"""The order of a Loader as a data set of Grain. Only this module imports Grain when it is
imported."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import weakref
from typing import Any, Dict, Mapping, Optional, Tuple, Union

import grain

from .. import _checks, guesses
from .._checks import Output
from .._read.arguments import Arguments, Asked
from ..errors import ConfigError, redact
from ..options import Tuning
from .shared import Reader, Server, Shared
from .source import arrays

_serving = threading.Lock()


class _Class(guesses.Named, type(grain.IterDataset)):  # type: ignore[misc,unused-ignore]
    """The class of IterDataset: grain's data sets have one of their own."""


class IterDataset(Arguments[Any], grain.IterDataset, metaclass=_Class):  # type: ignore[misc,type-arg,unused-ignore]
    """Batches or samples of a data set, in the order of a Loader: a ``grain.IterDataset``.

    ::

        ds = shardtool.grain.IterDataset("s3://bucket/train", 64, shuffle=True, fields=["x"])
        it = iter(ds.map(augment))
        batch = next(it)  # {"x": array}
        state = it.get_state()

    It takes the arguments of ``shardtool.Loader``. With ``batch_size``, or with
    ``order=Order(global_batch=...)``, an element is the batch of this rank, a dict of its fields.
    Without them it is a sample, for ``batch`` and the packing of Grain: rank r of n reads each n-th
    sample. Arrays are always of numpy.

    **Epochs.** An iterator goes through all ``epochs``, or has no end.

    **Ranks.** As for a Loader. Without a rank from elsewhere, they are JAX's processes.

    **Place.** The state of an iterator is the one of a Loader after the same batch: small, exact,
    the same on all ranks, and good for any number of ranks. Grain's checkpoints store it.
    ``shardtool.grain.restore`` reads them on another number of processes.

    **mp_prefetch.** Worker k of n delivers each n-th batch. One reader, in the process that
    iterates, reads for all workers of its rank: elements are the same for any number of workers,
    and each block is read once.
    """

    _endless = True
    _resolved = False  # whether this is a copy for a worker, which has the ranks
    _server: Optional[Server] = None  # reads for the workers

    def _begin_with(self, asked: Asked) -> None:
        self._samples = "batch_size" not in asked.starting and "global_batch" not in asked.starting
        if self._samples:
            if asked.units is not None:
                raise ConfigError("give batch_size: units are sequences or micro-batches, and an element is a batch of them")
            if asked.map is not None:
                raise ConfigError("map is called with batches, and without batch_size elements are samples: use ds.map(function)")
            # A sample cannot be marked as a repeated one.
            asked = dataclasses.replace(asked, starting={**asked.starting, "batch_size": 1}, tail=asked.tail or "short")
        self._asked = asked
        self._workers = 0, 1  # number of this worker, and of workers
        self._reader_at: Optional[Tuple[str, str]] = None  # the address of the server
        self._server_pid = 0  # the process that made it
        grain.IterDataset.__init__(self)

    def _tuned(self, tuning: Tuning, format: Optional[Output]) -> Tuning:
        if tuning.peers is not None:
            raise ConfigError("peers: an IterDataset reads by itself; give them to a shardtool.Loader")
        return arrays(tuning, format)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Makes this copy the part of a worker; Grain calls it in ``mp_prefetch``. The order does
        not depend on ``sequential_slice``."""
        self._workers = sl.start or 0, sl.step or 1

    def _ranks(self) -> Tuple[Optional[int], Optional[int]]:
        if self._resolved:  # JAX would take an accelerator to answer
            return self._asked.ranks
        ranks = self._asked.ranks if self._asked.ranks[0] is not None else _checks.ranks(None, None)
        jax = sys.modules.get("jax")
        if ranks[0] is None and jax is not None and jax.process_count() > 1:
            return int(jax.process_index()), int(jax.process_count())
        return ranks

    def __getstate__(self) -> Dict[str, Any]:
        asked = self._asked.portable()  # for a worker, where the ranks of libraries are not known
        made = {name: value for name, value in vars(self).items() if name != "_server"}
        return {**made, "_asked": dataclasses.replace(asked, ranks=self._ranks()), "_resolved": True, "_reader_at": self._serve()}

    def _serve(self) -> Tuple[str, str]:
        """Returns where workers find their reader. It ends with this data set."""
        with _serving:  # Grain starts workers in threads
            if self._reader_at is None or (self._server_pid != os.getpid() and not self._resolved):
                self._server, self._server_pid = Server(self._asked, self._ranks(), self._samples), os.getpid()
                self._reader_at = self._server.address
                weakref.finalize(self, self._server.close)
            return self._reader_at

    def __iter__(self) -> _Iterator:
        if self._workers[1] == 1:
            reader: Any = Reader(self._asked, self._ranks(), self._samples)
        else:
            reader = Shared(self._serve(), self._asked, *self._workers)
        return _Iterator(self._asked, reader, self._samples)

    def __str__(self) -> str:
        return f"shardtool.grain.IterDataset({redact(self._asked.url)!r})"


class _Iterator(grain.DatasetIterator):  # type: ignore[misc,type-arg,unused-ignore]
    """The elements of all epochs."""

    def __init__(self, asked: Asked, reader: Union[Reader, Shared], samples: bool) -> None:
        super().__init__()
        self._named, self._map, self._unit = redact(asked.url), asked.map, samples
        self._reader = reader

    def start_prefetch(self) -> None:
        """Starts to read."""
        self._assert_not_closed()
        self._reader.start()

    def __next__(self) -> Any:
        self._assert_not_closed()
        state = self._reader.state()
        batch = self._reader.next()
        try:
            return self._element(batch)
        except BaseException:  # the next call gets this batch again
            self._reader.load(state)
            raise

    def _element(self, batch: Any) -> Any:
        """Returns what Grain gets for a batch."""
        if self._map is not None:
            batch = self._map(batch)
        if not isinstance(batch, Mapping):
            return batch
        return {str(name): batch[name][0] if self._unit else batch[name] for name in batch}

    def get_state(self) -> Dict[str, Any]:
        """Returns the place after the last element."""
        return self._reader.state()

    def set_state(self, state: Dict[str, Any]) -> None:
        """Makes the next element the one after a place that ``get_state`` returned, or
        ``state_dict`` of a Loader."""
        self._reader.load(state)

    def close(self) -> None:
        """Ends the child process."""
        if not self._closed:
            self._reader.close()
        super().close()

    def __str__(self) -> str:
        return f"shardtool.grain.IterDataset({self._named!r})"
