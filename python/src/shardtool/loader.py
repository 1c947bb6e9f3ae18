"""The loader: the batches of one rank of a training job."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Mapping, NoReturn, Optional, Union

from . import _checks, guesses
from ._read import states
from ._read.arguments import Arguments
from ._read.iteration import Iterator, T
from ._read.stream import Stream
from ._read.trainers import Told
from ._read.units import Bucket
from ._wire.process import logger
from .batch import HIDDEN, decoders_of
from .errors import ConfigError, redact
from .fields import names
from .stats import Meter, Stats


class Loader(Stream, Arguments[T]):
    """Batches of a data set, shuffled, split over ranks, resumable at the exact sample.

    ::

        fields = {"jpg": "bytes", "cls": "int"}
        url = "s3://bucket/train"
        with shardtool.Loader(url, 64, shuffle=True, seed=7, fields=fields) as loader:
            for epoch in range(loader.epoch, 90):
                for batch in loader:
                    train(batch["jpg"], batch["cls"])
                    saved = loader.state_dict()

    A path at which there is nothing is a NotFoundError at once. The first iteration, or ``len()``,
    starts a child process, which reads, checks and decodes ahead. It ends with ``close()``, with
    the loader, or with this process. A loader that has not started can be pickled and used in
    another process.

    **Epochs.** One iteration is one epoch: all batches that begin in it. The next iteration is the
    next epoch, also when the loop was left by ``break``. To continue in the middle instead, call
    ``loader.load_state_dict(loader.state_dict())``. After an error, the next iteration continues
    after the last batch delivered.

    **Order.** It depends only on the data set, the seed, the options in ``order`` and the global
    batch. All ranks get the same number of batches.

    Args:
        url: The address of the data set: ``out/``, ``s3://bucket/prefix`` or
            ``https://host/prefix``. ``@0123456789abcdef`` at its end selects a generation, and
            ``#name`` a view that was made by ``shardtool select``. Or a ``shardtool.Source``, which
            selects by keys too. Or a mix of several data sets (docs/mixing.md): the path of a mix
            file, ``mix.yaml``, a dict with the same members, ``{"sources": {"web": {"data": "out/",
            "weight": 3}}}``, or a ``shardtool.Mix``, which may continue another one.
        batch_size: Samples of a batch on this rank. ``order=Order(global_batch=...)`` sets those
            over all ranks instead. With a checkpoint, both may be left out.
        fields: The fields to deliver and their types: see ``shardtool.fields``. None: all fields,
            with the types that the data set records, else as bytes; None where a sample
            lacks one. A list of names: the same for these. "typed": a field without a type is an
            error.
        layers: Layers of the data set whose fields the samples have too: names, as in
            ``["captions"]``, or addresses. With ``fields``, only layers with one of the fields are
            read, and the data set itself only if it has one.
        where: An expression over attributes, such as ``"score >= 3 and lang in (de, fr)"``; only
            samples for which it holds are read.
        shuffle: False delivers the samples in storage order. None: as the checkpoint, else False.
        seed: Seed of the order, from 0 to 2^64 - 1. None: as the checkpoint, else 0.
        epochs: Number of epochs, from the first on; None: no end. With a number, nothing after the
            last epoch is read. 0: no end, as one stream: see ``tail``.
        rank, world_size: Data-parallel rank and number of ranks. None: from torch.distributed
            if it is initialised when the child starts, else from the environment (torchrun,
            Open MPI, Slurm), else 0 and 1.
        tail: The last batch of an epoch. "short": smaller. "wrap": filled from the next epoch.
            "drop": left out. "pad": filled with repeated samples, which ``Batch.padding`` counts.
            None: as the checkpoint, else each loop has each sample once: "short" on one rank,
            "pad" on several, which all get full batches; "wrap" with ``epochs=0``.
        map_batch: A function that is called with each batch. The iteration yields its result.
        cache: A folder on a local disk that keeps what is read, for later epochs and other ranks
            of the host.
        cache_size: Most bytes in it, over all processes that use it: a number, or text such as
            "200GiB"; default 100 GiB.
        units: ``shardtool.Pack`` packs samples into sequences of one length, and
            ``shardtool.Bucket`` forms micro-batches of samples of similar length.
        cost: What a sample costs, as ``"tokens + 0.35 * patches"``: an expression over integer
            attributes of the data set or its layers (ORDER.md, 9.17). Ranks exchange entries of
            each global batch so that all of them cost nearly the same; batches, places and states
            are as without it. With ``units``, a unit costs the sum of its samples, as in
            ``"tokens^2"``. Give all ranks the same: where torch.distributed runs, they compare what
            they have. See ``Order.cost_group``.
        format: The type of arrays: "torch" tensors, "numpy" arrays, or "bytes" for memoryviews.
            "arrow" delivers each batch as a ``pyarrow.RecordBatch``: see ``Batch.to_arrow``. None:
            torch where it is installed, otherwise numpy.
        order: Details of the order: see ``shardtool.Order``.
        tuning: Memory, parallelism, reports: see ``shardtool.Tuning``.
        faults: What happens when data is damaged: see ``shardtool.Faults``.

    Its errors are in ``shardtool.errors``. A loader is for one thread at a time; batches may be
    used by any thread.
    """

    @property
    def url(self) -> str:
        """The address of the data set; of a mix given as a dict, the names of its sources."""
        return self._asked.url

    def __repr__(self) -> str:
        return f"shardtool.Loader({redact(self.url)!r}, at epoch {self.epoch})"

    def __iter__(self) -> Iterator[T]:
        """Begins the next epoch, or continues where a loaded state points."""
        return Iterator(self._next, self._iterate(), None if self._peers is None else self._left)

    def __len__(self) -> int:
        """The number of batches of the epoch under way, or of the next one if none is under way. It
        is the same on all ranks, and includes the batches before a resumed place."""
        return self._batches()

    def __bool__(self) -> bool:
        return True  # bool() would call len(), which starts the child

    def __next__(self) -> NoReturn:
        raise TypeError("a Loader is no iterator, because each loop is one epoch: it = iter(loader), and then next(it)")

    # Facts

    @property
    def batch_size(self) -> Optional[int]:
        """The samples of a batch on this rank, as asked for; None where ``order`` or a checkpoint
        says it."""
        return self._asked.starting.get("batch_size")

    @property
    def fields(self) -> List[str]:
        """The names of the fields that batches have. Starts the child if they were not given."""
        if self._asked.units is not None and not isinstance(self._asked.units, Bucket):
            return guesses.Names(f.name for f in self._asked.units.columns() if f.name != HIDDEN)
        asked = self._asked.fields
        return guesses.Names(names(self.info) if asked is None else (f.name for f in asked))

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or of the next one if none is under way."""
        it = self._pass
        if it is not None and it.under_way and self._begin is None:
            return it.epoch
        return self._upcoming()[0]

    @property
    def rank(self) -> int:
        """The data-parallel rank. Starts the child if only the environment has it."""
        return self._resolve()[0]

    @property
    def world_size(self) -> int:
        """The number of data-parallel ranks. Starts the child if only the environment has it."""
        return self._resolve()[1]

    @property
    def info(self) -> Dict[str, Any]:
        """Facts about the data set: samples, shards, blocks, bytes, decoded_bytes, digest, tables,
        generation, fields. Of a mix, these are sums, ``sources`` has the facts of each, and
        ``epoch_length`` and ``end`` are in samples, also with ``units``. Starts the
        child."""
        self._facts()
        return self._session.facts()

    @property
    def metrics_url(self) -> Optional[str]:
        """The URL of the metrics that ``metrics`` asks for; None without them, and while no child
        runs."""
        return self._session.info.get("metrics")

    def stats(self) -> Stats:
        """Returns what was delivered, and how long the loop waited, by cause: see Stats. Any thread
        may call it at any time, also during a wait and after ``close``. A copy of the loader in
        another process has statistics for that process only."""
        if self._meter.pid != os.getpid():
            self._meter = Meter()
        stats = self._meter.read(self._ranks if self._ranks[0] is not None else _checks.ranks(None, None))
        return stats._replace(decoder=next((f.image.decoder for f in self._asked.fields or () if f.image), ""))

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin an epoch. It does nothing if the next iteration is in that
        epoch already: one that resumes in the middle continues there."""
        epoch = _checks.typed(Loader.set_epoch, {"epoch": epoch})["epoch"]
        if epoch < 0:
            raise ConfigError(f"epoch={epoch}: epochs are numbered from 0")
        self._epoch_given = True
        it = self._pass
        leaves = it is not None and it.left and self._run is not None
        if self._begin is not None or leaves or epoch != self._upcoming()[0]:
            self._begin = epoch

    @property
    def batch_sampler(self) -> Told:
        """What trainers that tell the sampler of a DataLoader the epoch find, as Lightning: the
        loader begins this epoch, unless it continues at a place that it was given."""
        if self._sampler is None:
            self._sampler = Told(self)
        return self._sampler

    # The place

    def state_dict(self) -> Dict[str, Any]:
        """Returns the place after the last batch delivered, as a dict of text and numbers. Batches
        read ahead do not count. It is smaller than 2 KiB unless samples were skipped. With layers
        it has their generations: a loader with the state opens these, or the current ones where
        they are gone.

        All ranks have the same state after a step, and any number of ranks can resume from it. The
        exception: ranks that skip damaged blocks and count alone (see ``Faults.skip_group``) have
        different states, whose list ``load_state_dict`` takes.
        """
        state: Dict[str, Any] = {"version": 1, "checkpoint": self._checkpoint, "ledger": self._ledger, "begin": self._begin}
        if self._layers:
            state["layers"] = self._layers
        return {**state, **decoders_of(self._asked.fields)}

    def load_state_dict(self, state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> None:
        """Makes the next iteration continue at a place that ``state_dict`` returned, on any number
        of ranks and with any batch size. It may be the list of the states of all ranks after one
        step, in any order: the job then knows the damaged blocks that any of them skipped.

        Raises CheckpointError for anything else. Whether the state fits the data set is checked
        when the iteration begins.
        """
        said = states.single(state)
        self._compare_decoders(said.get("decoders", {}))
        checkpoint, ledger, begin = said["checkpoint"], said["ledger"], said["begin"]
        place = None if checkpoint is None else states.place_of(checkpoint)
        self._placed = True
        self._disconnect()  # the state may name another generation of the data set
        self._checkpoint, self._ledger, self._begin, self._place = checkpoint, ledger, begin, place
        self._layers = said.get("layers")

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Sets the weights of a mix, by the names of its sources, from the batch after the one that
        the loop got last. A source that is not named has weight 0. Weights are numbers, or text
        such as ``"1/3"``.

        ``state_dict()`` has them: a loader that resumes from it takes them as they were, on any
        number of ranks, whatever weights the mix file has, and also with ``change_mix=True`` unless
        the sources or their limits differ. The state of a batch that was delivered before does not
        have them. Segments of the mix that lie ahead are dropped. Batches that were read ahead are
        dropped, too, and blocks in memory stay.

        All ranks must call it after the same batch with the same weights. Where torch.distributed
        runs, they compare both, and all raise an error if they differ.

        Raises ConfigError for a loader of one data set, a source that the mix does not have, a
        weight that is negative or no finite number, and weights that are all 0. The loop can go on
        after it with the weights from before.
        """
        if self._reads_ahead:
            raise ConfigError(
                "set_weights: a Prefetcher takes batches of this loader ahead of the loop, so the loader does not know which batch the"
                " loop got last: call set_weights of the Prefetcher"
            )
        self._steer(weights)

    def _compare_decoders(self, before: Mapping[str, str]) -> None:
        """Says once if images were decoded by another decoder before."""
        now = decoders_of(self._asked.fields).get("decoders", {})
        for name, was in before.items():
            if name in now and now[name] != was and not self._decoders_said:
                self._decoders_said = True
                logger.warning("field %r: images were decoded by %s before, and are by %s now: their pixels differ by up to 8 of 255"
                               " (Image(decoder=...) chooses)", name, was, now[name])  # fmt: skip

    def close(self) -> None:
        """Ends the child. Batches stay valid, and ``state_dict`` still works. A second call does
        nothing."""
        self._closed = True
        self._disconnect()
        if self._peers is not None:
            self._peers.close()
        self._meter.close()

    def __enter__(self) -> Loader[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
