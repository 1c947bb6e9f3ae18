"""The order of a Loader as a data set of Grain. Only this module imports Grain when it is
imported."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

import grain

from .. import _checks
from ..errors import CheckpointError, ConfigError, redact
from ..loader import Loader
from ..options import Tuning
from ..read.arguments import Arguments, Asked
from .checkpoints import PART
from .source import arrays


class IterDataset(Arguments[Any], grain.IterDataset):  # type: ignore[misc,type-arg,unused-ignore]
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

    **mp_prefetch.** Worker k of n reads each n-th batch. Elements come in the same order for any
    number of workers. The end of an epoch is the exception: ``tail`` works on n batches at once,
    so that "short" divides the last samples among all workers.
    """

    _resolved = False  # whether this is a copy for a worker, which has the ranks

    def _begin_with(self, asked: Asked) -> None:
        self._samples = "batch_size" not in asked.starting and "global_batch" not in asked.starting
        if self._samples:
            if asked.units is not None:
                raise ConfigError("give batch_size: units are sequences or micro-batches, and an element is a batch of them")
            if asked.map is not None:
                raise ConfigError("map is called with batches, and without batch_size elements are samples: use ds.map(function)")
            asked = dataclasses.replace(asked, starting={**asked.starting, "batch_size": 1})
        self._asked = asked
        self._workers = 0, 1  # number of this worker, and of workers
        grain.IterDataset.__init__(self)

    def _tuned(self, tuning: Tuning) -> Tuning:
        if tuning.peers is not None:
            raise ConfigError("peers: an IterDataset reads by itself; give them to a shardtool.Loader")
        return arrays(tuning)

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
        return {**vars(self), "_asked": dataclasses.replace(asked, ranks=self._ranks()), "_resolved": True}

    def __iter__(self) -> _Iterator:
        return _Iterator(self._asked, self._ranks(), self._workers, self._samples)

    def __str__(self) -> str:
        return f"shardtool.grain.IterDataset({redact(self._asked.url)!r})"


class _Passes(Loader[Any]):
    """A Loader whose iterations Grain joins."""

    _quiet = True


class _Iterator(grain.DatasetIterator):  # type: ignore[misc,type-arg,unused-ignore]
    """The elements of all epochs."""

    def __init__(self, asked: Asked, ranks: Tuple[Optional[int], Optional[int]], workers: Tuple[int, int], samples: bool) -> None:
        super().__init__()
        self._named, self._map, self._unit = redact(asked.url), asked.map, samples
        self._loader: _Passes = _Passes.__new__(_Passes)
        self._loader._begin_with(dataclasses.replace(asked, map=None, ranks=ranks))
        self._pass: Any = None
        #: Number of this worker, of workers and of ranks; None without workers.
        self._part: Optional[List[int]] = None
        if workers[1] > 1:
            self._divide(*workers)

    def _divide(self, worker: int, workers: int) -> None:
        """Makes the Loader read the batches of a worker. n consecutive batches of all ranks are one
        of n times as many ranks: worker k of rank r reads one part of it, the k-th batch of r."""
        loader = self._loader
        rank, world_size = loader._resolve()
        starting = dict(loader._asked.starting)
        if "global_batch" in starting:
            starting["global_batch"] *= workers
        loader._asked = dataclasses.replace(loader._asked, starting=starting)
        loader._ranks = worker * world_size + rank, workers * world_size
        self._part = [worker, workers, world_size]

    def start_prefetch(self) -> None:
        """Starts to read."""
        self._assert_not_closed()
        if self._pass is None:
            self._pass = iter(self._loader)

    def __next__(self) -> Any:
        while True:
            self.start_prefetch()
            state = self._loader.state_dict()
            try:
                batch = next(self._pass)
            except StopIteration:
                if self._pass.epoch.delivered == 0:
                    raise
                self._pass = None  # the next epoch
                continue
            except Exception:
                self._pass = None  # the next call continues after the last batch
                raise
            if self._unit and batch.size == 0:
                continue  # an epoch ended, and other ranks have its last samples
            try:
                return self._element(batch)
            except BaseException:  # the next call gets this batch again
                self._pass = None
                self._loader.load_state_dict(state)
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
        state = self._loader.state_dict()
        return state if self._part is None else {**state, PART: self._part}

    def set_state(self, state: Dict[str, Any]) -> None:
        """Makes the next element the one after a place that ``get_state`` returned, or
        ``state_dict`` of a Loader."""
        part = state.get(PART)
        if part is not None and part != self._part:
            raise CheckpointError(
                f"the state is of worker {part[0]} of {part[1]} of mp_prefetch, on {part[2]} ranks, and the number of workers or ranks has"
                " changed: shardtool.grain.restore(directory, iterator) continues on other ranks; the number of workers stays"
            )
        self._pass = None
        self._loader.load_state_dict(state)

    def close(self) -> None:
        """Ends the child process."""
        if not self._closed:
            self._loader.close()
        super().close()

    def __str__(self) -> str:
        return f"shardtool.grain.IterDataset({self._named!r})"
