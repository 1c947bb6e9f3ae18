"""The loader: the batches of one rank of a training job."""

from __future__ import annotations

import functools
import json
import os
import time
import warnings
from collections.abc import Mapping as AnyMapping
from typing import Any, Callable, Dict, Generic, Iterable, Literal, Mapping, Optional, Tuple, Union

from . import _config, _group, _mixes, _states, _trainer, _units, _upcoming
from ._ahead import Ahead
from ._client import Client, logger
from ._config import Output
from ._iteration import Epoch, Iterator, T
from ._redact import redact
from ._requests import opening, starting
from ._run import Run
from ._session import Session
from ._units import Bucket, Pack
from .batch import Batch
from .errors import ClosedError, ConfigError, HeldError, NotFoundError, SkippedError
from .fields import Spec, check_out, parse, typed
from .images import leave_out_damaged
from .options import Faults, Order, Tuning
from .stats import Meter, Stats


def _exists(url: str) -> None:
    """Refuses a path at which there is nothing. Stores are asked when the child opens them."""
    base = url.rpartition("#")[0] or url  # DATASET#VIEW, DATASET@GENERATION: a name may have these characters
    if "://" not in url and not any(map(os.path.exists, (url, base, base.rpartition("@")[0] or base))):
        what = "mix file" if url.endswith((".yaml", ".yml", ".json")) else "data set in"
        raise NotFoundError(f"no {what} {url}: there is no such file or folder: check the path")


class Loader(Generic[T]):
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
            ``https://host/prefix``. ``@0123456789abcdef`` at its end selects a generation. Or a
            mix of several data sets (docs/mixing.md): the path of a mix file, ``mix.yaml``, or a
            dict with the same members, ``{"sources": {"web": {"data": "out/", "weight": 3}}}``.
        batch_size: Samples of a batch on this rank. ``order=Order(global_batch=...)`` sets those
            over all ranks instead. With a checkpoint, both may be left out.
        fields: The fields to deliver and their types: see ``shardtool.fields``. None: all fields,
            with the types that ``shardtool.Writer`` recorded, else as bytes; None where a sample
            lacks one. "typed": the same, and a field without a type is an error.
        shuffle: False delivers the samples in storage order. None: as the checkpoint, else False.
        seed: Seed of the order, from 0 to 2^64 - 1. None: as the checkpoint, else 0.
        epochs: Number of epochs, from the first on; None: no end. With a number, nothing after the
            last epoch is read.
        rank, world_size: Data-parallel rank and number of ranks. None: those of torch.distributed
            if it is initialised when the child starts, else those of the environment (torchrun,
            Open MPI, Slurm), else 0 and 1.
        tail: The last batch of an epoch. "short": smaller. "wrap": filled from the next epoch.
            "drop": left out. "pad": filled with repeated samples. None: as the checkpoint, else
            "short" if ``epochs`` is a number and "wrap" if it is None.
        out: The type of arrays: "torch" tensors, "numpy" arrays, or "bytes" for memoryviews.
            "arrow" delivers each batch as a ``pyarrow.RecordBatch``: see ``Batch.to_arrow``.
        map: A function that is called with each batch. The iteration yields its result.
        where: An expression over attributes, such as ``"score >= 3 and lang in (de, fr)"``; only
            samples for which it holds are read. A view that was made by ``shardtool select`` is
            read by its name: ``url#name``.
        keys: A file with one key in each line; only samples with these keys are read.
        cache: A folder on a local disk that keeps what is read, for later epochs and other ranks
            of the host.
        pack: Packs samples into sequences of one length: see ``shardtool.Pack``.
        bucket: Forms micro-batches of samples of similar length: see ``shardtool.Bucket``.
        change_mix: True: continue a state with another mix than its own. The log "shardtool" has
            what changes. Without it, a state of another mix raises CheckpointError.
        skip_steps: The first and the last of the steps of a mix to leave out, both included. Steps
            are batches of this size, counted from 0. All others stay what they are.
        order: Details of the order: see ``shardtool.Order``.
        tuning: Memory, parallelism, reports: see ``shardtool.Tuning``.
        faults: What happens when data is damaged: see ``shardtool.Faults``.

    Errors are those of ``shardtool.errors``. A loader is for one thread at a time; batches may be
    used by any thread.
    """

    _whole = False  # whether copied batches are one buffer, for the relay that sends them

    def __init__(
        self,
        url: Union[str, os.PathLike[str], Mapping[str, Any]],
        batch_size: Optional[int] = None,
        *,
        fields: Union[Literal["typed"], Iterable[str], Mapping[str, Spec], None] = None,
        shuffle: Optional[bool] = None,
        seed: Optional[int] = None,
        epochs: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        tail: Optional[Literal["short", "wrap", "drop", "pad"]] = None,
        out: Union[Output, Literal["arrow"]] = "torch",
        map: Optional[Callable[[Batch], T]] = None,
        cache: Union[str, os.PathLike[str], None] = None,
        where: Optional[str] = None,
        keys: Union[str, os.PathLike[str], None] = None,
        change_mix: bool = False,
        skip_steps: Optional[Tuple[int, int]] = None,
        pack: Optional[Pack] = None,
        bucket: Optional[Bucket] = None,
        order: Order = Order(),
        tuning: Tuning = Tuning(),
        faults: Faults = Faults(),
    ) -> None:
        given = _config.typed(Loader.__init__, {
            "url": url, "batch_size": batch_size, "shuffle": shuffle, "seed": seed, "epochs": epochs, "rank": rank,
            "world_size": world_size, "tail": tail, "out": out, "map": map, "cache": cache, "where": where, "keys": keys,
            "change_mix": change_mix, "skip_steps": skip_steps, "pack": pack, "bucket": bucket, "order": order,
            "tuning": tuning, "faults": faults,
        })  # fmt: skip
        if batch_size is not None and order.global_batch is not None:
            raise ConfigError("batch_size and Order(global_batch=...): give one of them")
        for name, least in (("batch_size", 1), ("seed", 0), ("epochs", 1)):
            _config.at_least(name, given[name], least)
        if skip_steps is not None and not 0 <= skip_steps[0] <= skip_steps[1] < _mixes.NO_END:
            raise ConfigError(f"skip_steps={skip_steps!r}: give the first and the last step to leave out, counted from 0")
        self.url = _mixes.name_of(url) if isinstance(url, AnyMapping) else os.fsdecode(url)
        self._fields = parse(fields)
        self._typed = isinstance(fields, str)  # parse refuses all but "typed"
        self._arrow = out == "arrow"
        self._out: Output = "numpy" if out == "arrow" else out
        check_out(out, self._fields)
        self._units = _units.check(pack, bucket, fields)
        self._copy = tuning.copy
        self._map = map
        both = given["rank"], given["world_size"]
        self._ranks = (None, None) if both == (None, None) else _config.ranks(*both)
        self._first_epoch, self._epochs = order.epoch, given["epochs"]
        self._skip_group = faults.skip_group
        self._group: Optional[_group.Group] = None  # ranks that count skipped samples together
        self._metrics = tuning.metrics
        self._every = tuning.stats_every
        self._meter = Meter()
        self._open = opening(url, cache, tuning, where, keys, given["change_mix"])
        self._order = starting(given, order, tuning, faults)
        # The place after the last batch delivered.
        self._checkpoint: Optional[str] = None
        self._ledger: Optional[str] = None
        self._place: Optional[Tuple[int, int]] = None
        self._begin: Optional[int] = None  # epoch that set_epoch asked for
        self._closed = False
        self._placed = False  # whether load_state_dict set the place
        self._begun = False  # whether an iteration has begun
        self._reset()
        if not isinstance(url, AnyMapping):
            _exists(self.url)

    def _reset(self) -> None:
        """Sets the state that pickling and forks do not keep."""
        self._session = Session()
        self._run: Union[Run, Ahead, None] = None  # delivers the batches after the place
        self._pass: Optional[Epoch] = None  # the latest iteration
        self._counts: Dict[int, int] = {}  # units of epochs
        self._damaged = 0  # samples left out because of their images
        self._following: Optional[int] = None  # units of the epoch that the next batch is in; None: STARTED has it

    def __getstate__(self) -> Dict[str, Any]:
        kept = ("url", "_fields", "_typed", "_arrow", "_out", "_copy", "_map", "_ranks", "_first_epoch", "_epochs", "_open", "_order",
                "_checkpoint", "_ledger", "_place", "_begin", "_closed", "_placed", "_begun", "_metrics", "_every", "_units")  # fmt: skip
        state = {name: getattr(self, name) for name in kept}
        # Process groups cannot leave their process.
        state["_skip_group"] = self._skip_group if isinstance(self._skip_group, bool) else None
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._group = None
        self._meter = Meter()
        self._reset()

    def __repr__(self) -> str:
        return f"shardtool.Loader({redact(self.url)!r}, at epoch {self.epoch})"

    # The child

    def _connect(self) -> Client:
        """Returns the client, with the data set open."""
        if self._closed:
            raise ClosedError("the loader is closed")
        if self._session.lost:
            self._disconnect()
        return self._session.connect(self, _config.drop_none({**self._open, "checkpoint": self._checkpoint}), self._address())

    def _address(self) -> str:
        return os.environ.get("SHARDTOOL_METRICS", "") if self._metrics is None else self._metrics

    def _facts(self) -> Dict[str, Any]:
        """Returns INFO, from memory if possible: another thread may be waiting for a batch."""
        if not self._session.info:
            self._connect()
        return self._session.info

    def _disconnect(self) -> None:
        self._session.close()
        self._reset()

    def _start(self, begin: Optional[int]) -> None:
        """Starts a run at the place, or at the beginning of the epoch ``begin``."""
        since = time.perf_counter_ns()
        if self._meter.pid != os.getpid():
            self._meter = Meter()
        client = self._connect()
        fields = self._fields
        if isinstance(self._units, Pack):
            fields = []
        if fields is None:
            fields = typed(self._session.info, self._typed)
            check_out(self._out, fields)
        rank, world_size = self._resolve()
        if self._order["on_error"] == "skip":
            self._group = _group.join(self._skip_group, rank, world_size, self._group)
            if self._group is not None:
                self._checkpoint, self._ledger = self._group.begin(self._checkpoint, begin, self._ledger)
        _states.check_length(self._ledger)
        body = dict(self._order, rank=rank, world_size=world_size, begin=begin, checkpoint=self._checkpoint, ledger=self._ledger)
        if self._checkpoint is None and "batch_size" not in body and "global_batch" not in body:
            raise ConfigError("give batch_size, or order=Order(global_batch=...)")
        more = []
        if self._units is not None:
            body["units"] = self._units.request([f["name"] for f in self._session.info["fields"]], self._open.get("cache"))
            more = self._units.columns()
        self._run = None
        run = Run(client, _config.drop_none(body), fields, self._out, self._copy, self._whole, more)
        self._run = Ahead(run, fields) if any(f.image for f in fields) and not self._whole else run
        said = run.started
        lost = self._meter.opened(since, said["rank"], said["world_size"], said.get("sources", ()), said.get("lengths", {}))
        if lost:
            logger.warning("%s (long=)", lost)
        client.hear = functools.partial(self._meter.hear, run.ident)
        if self.metrics_url:
            logger.info("metrics at %s", self.metrics_url)
        logger.info("rank %d of %d, global batch %d, tail %s", rank, world_size, run.started["global_batch"], run.started["tail"])
        self._following = None
        self._checkpoint, self._place = run.started["checkpoint"], _states.place_of(run.started["checkpoint"])

    def _resolve(self) -> "Tuple[int, int]":
        """Returns rank and world size; the child finds them in the environment if nothing else sets
        them."""
        rank, world_size = self._ranks if self._ranks[0] is not None else _config.ranks(None, None)
        if rank is None or world_size is None:
            said = self._facts()["ranks"]
            if said.get("error"):
                raise ConfigError(said["error"])
            rank, world_size = said["rank"], said["world_size"]
        return rank, world_size

    # Iterating

    def __iter__(self) -> Iterator[T]:
        """Begins the next epoch, or continues where a loaded state points."""
        if self._session.lost:
            self._disconnect()
        last, begin = self._pass, self._begin
        if begin is None and last is not None and self._run is not None and last.left:
            begin = last.epoch + 1
        if begin is not None or self._run is None:
            self._start(begin)
        self._begin = None
        self._pass = Epoch()
        return Iterator(self, self._pass)

    def _unfit(self) -> str:
        """Explains why the first iteration does not begin where a framework's trainer resumes;
        empty if it does."""
        why = "" if self._begun else _trainer.unfit(self._placed)
        self._begun = not why
        return why

    def _next(self, it: "Epoch") -> Any:
        if it.last:
            it.ended = True
            raise StopIteration
        if not self._begun:
            unfit = self._unfit()
            if unfit:
                raise ConfigError(unfit)
        run, self._run = self._run, None  # set again once the batch is delivered; after an error the next iteration restarts at the place
        if run is None or it is not self._pass or not run.client.alive:
            if it is not self._pass:
                self._run = run
            raise ClosedError(
                "this iteration has ended: it failed, another one began, the loader was closed or loaded a state, or the process forked;"
                " start another iteration"
            )
        meter, since = self._meter, time.perf_counter_ns()
        try:
            taken = run.take(self._ledger)
        except HeldError:
            self._run, it.held = run, True
            raise
        except Exception as err:
            if self._group is not None:
                self._group.failed(err)
            raise
        finally:
            got = time.perf_counter_ns()
            meter.waited(run.account, got - since)
        if taken is None:
            self._run, it.last, it.ended = run, True, True
            if it.delivered == 0:
                warnings.warn("the iteration has no batches: all epochs have ended, or the data set is empty", stacklevel=3)
            raise StopIteration
        batch, checkpoint, ledger, place, last = taken
        if self._group is not None:
            checkpoint, ledger = self._group.batch(place, checkpoint, ledger, self._most_skipped())
            batch._saved = checkpoint, ledger
        out = self._made(batch)
        if self._map is not None:
            out = self._map(out)
            meter.mapped(time.perf_counter_ns() - got)
        if it.delivered == 0:
            it.epoch, it.position = batch.epoch, batch.position
        self._checkpoint, self._ledger, self._place = checkpoint, ledger, place
        it.delivered, it.last, it.held, (it.units, self._following) = it.delivered + 1, last, False, batch._units()
        self._run = run
        if self._every:
            said = self._meter.line(self._every)
            if said is not None:
                logger.info("%s", said)
        return out

    def _made(self, batch: Batch) -> Any:
        """Returns what ``map`` gets of a batch."""
        if not self._whole:
            self._leave_out(batch)
        return batch.to_arrow() if self._arrow else batch

    def _leave_out(self, batch: Batch) -> None:
        """Leaves samples out of a batch whose images are damaged, as ``on_error`` says."""
        names = [f.name for f in self._fields or () if f.image is not None]
        if not names or self._units is not None or self._order["on_error"] != "skip":
            return
        self._damaged += leave_out_damaged(batch, names)
        if self._session.client is not None and self._damaged > self._most_skipped():
            raise SkippedError(
                f"{self._damaged} samples with images that cannot be decoded were left out since the loader was made, but max_skipped"
                f" allows {self._most_skipped()}: correct them, or allow more"
            )

    def _most_skipped(self) -> int:
        """Returns the limit of skipped samples, as the child computes it."""
        number = self._order.get("max_skipped")
        return number if number is not None else int(self._order.get("max_skipped_share", 0.001) * self._session.info["samples"])

    def __len__(self) -> int:
        """The number of batches of the epoch under way, or of the next one if none is under way. It
        is the same on all ranks, and includes the batches before a resumed place."""
        return _upcoming.batches(self)

    def __bool__(self) -> bool:
        return True  # bool() would call len(), which starts the child

    def _told(self, member: str) -> Any:
        """Returns a parameter of the order: the one given, that of the checkpoint, or the
        default."""
        if member in self._order:
            return self._order[member]
        if self._checkpoint is not None:
            return json.loads(self._checkpoint)[member]
        return "short" if self._epochs else "wrap"

    def _global_batch(self) -> int:
        if "batch_size" in self._order:
            return int(self._order["batch_size"]) * self._resolve()[1]
        if self._checkpoint is None and "global_batch" not in self._order:
            raise ConfigError("give batch_size, or order=Order(global_batch=...)")
        return int(self._told("global_batch"))

    # Facts

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or of the next one if none is under way."""
        it = self._pass
        if it is not None and it.under_way and self._begin is None:
            return it.epoch
        return _upcoming.place(self)[0]

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
        ``epoch_length`` and ``end`` are in samples, also with ``pack`` and ``bucket``. Starts the
        child."""
        self._connect()
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
        stats = self._meter.read(self._ranks if self._ranks[0] is not None else _config.ranks(None, None))
        return stats._replace(decoder=next((f.image.decoder for f in self._fields or () if f.image), ""))

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin an epoch. It does nothing if the next iteration is in that
        epoch already: one that resumes in the middle continues there."""
        if epoch < 0:
            raise ConfigError(f"epoch={epoch}: epochs are numbered from 0")
        it = self._pass
        leaves = it is not None and it.left and self._run is not None
        if self._begin is not None or leaves or epoch != _upcoming.place(self)[0]:
            self._begin = epoch

    # The place

    def state_dict(self) -> Dict[str, Any]:
        """Returns the place after the last batch delivered, as a dict of text and numbers. Batches
        read ahead do not count. It is smaller than 2 KiB unless samples were skipped.

        All ranks have the same state after a step, and any number of ranks can resume from it. The
        exception: ranks that skip damaged blocks and count alone (see ``Faults.skip_group``) have
        different states, which ``merge_states`` makes one.
        """
        return {"version": 1, "checkpoint": self._checkpoint, "ledger": self._ledger, "begin": self._begin}

    def load_state_dict(self, state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> None:
        """Makes the next iteration continue at a place that ``state_dict`` returned, on any number
        of ranks and with any batch size. A list of the states of all ranks after one step is
        merged: see ``merge_states``.

        Raises CheckpointError for anything else. Whether the state fits the data set is checked
        when the iteration begins.
        """
        said = _states.single(state)
        checkpoint, ledger, begin = said["checkpoint"], said["ledger"], said["begin"]
        place = None if checkpoint is None else _states.place_of(checkpoint)
        self._placed = True
        self._disconnect()  # the state may name another generation of the data set
        self._checkpoint, self._ledger, self._begin, self._place = checkpoint, ledger, begin, place

    def close(self) -> None:
        """Ends the child. Batches stay valid, and ``state_dict`` still works. A second call does
        nothing."""
        self._closed = True
        self._disconnect()
        self._meter.close()

    def __enter__(self) -> Loader[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
