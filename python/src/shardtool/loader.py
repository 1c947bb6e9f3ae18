"""The loader: batches of a data set, in an order, for one rank of a training job."""

from __future__ import annotations

import functools
import json
import os
import time
import warnings
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple, Union

from . import _config, _group, _states, _trainer
from ._client import Client, logger
from ._config import Size
from ._run import Run
from ._session import Session
from .batch import Batch
from .errors import ClosedError, ConfigError, HeldError
from .fields import Field, Spec, parse
from .stats import Meter, Stats


class Loader:
    """Batches of a data set, shuffled, split over ranks, resumable at the exact sample.

    ::

        with shardtool.Loader("s3://bucket/train", batch_size=64, shuffle=True, seed=7, fields={"jpg": "bytes", "cls": "int"}) as loader:
            for epoch in range(loader.epoch, 90):
                for batch in loader:
                    train(batch["jpg"], batch["cls"])
                    saved = loader.state_dict()

    Making a loader starts nothing: it can be pickled, and copied to processes however they are started. The first iteration, or
    ``len()``, starts a child process, which reads, checks and decodes ahead; it ends with ``close()``, the loader, or this process.

    **Epochs.** One iteration is one epoch: all batches that begin in it. The next iteration is the next epoch. An iteration that was left
    before its end is over: the next one is the epoch after it, from its beginning. To go on in the middle instead, say so:
    ``loader.load_state_dict(loader.state_dict())``. After an error of the loader itself, HeldError included, or of ``map``, the next
    iteration goes on after the last batch that was delivered.

    **Order.** It depends on the data set, the seed and the sizes of the batches alone: batches and keys are those of
    ``shardtool cat --json`` with the same flags. All ranks get the same number of batches.

    Args:
        url: Where the data set is, as on the command line: ``out/``, ``s3://bucket/prefix``, ``https://host/prefix``;
            ``@0123456789abcdef`` behind it picks a generation.
        batch_size: Samples of a batch on this rank. The global batch is ``batch_size * world_size``.
        global_batch: In place of ``batch_size``: samples of a batch over all ranks. With a checkpoint both may be left out.
        fields: What to deliver, and as what: see ``shardtool.fields``. None: all fields of the data set, as bytes, None where a sample
            lacks one.
        shuffle, seed, epoch, tail, shuffle_memory, whole_shards, lanes, run_blocks, delay, head, affinity: The order, as the flags of
            ``shardtool cat``. What is left out has the default of the Go reader, or is what the checkpoint says; what is given
            must agree with it. Without ``tail`` the last batch of an epoch is "short" where ``epochs`` is a number, and "wrap" where it
            is None: filled from the next epoch.
        epochs: How many epochs there are, from ``epoch`` on; None: no end. With a number nothing is read ahead behind the last.
        rank, world_size: Data-parallel rank and their number. Left out: those of torch.distributed if it is initialised when the child is
            started, else the environment (torchrun, Open MPI, Slurm), else 0 and 1.
        out: What arrays are: "torch" tensors, "numpy" arrays, or "bytes" for memoryviews.
        copy: True: batches are copied out of the memory that is shared with the child; keep them as long as you like. False: they are
            views into it, which stay valid as long as something refers to them; what is still referred to counts against ``ring_memory``.
        map: A function that is called with each batch; the iteration yields what it returns.
        on_error: A damaged block, confirmed by a second read: "fail", or "skip" its samples.
        max_skipped: With "skip", the most samples to skip, over all epochs and ranks, a whole number or, as a float, a share;
            default 0.001.
        skip_group: With "skip", the ranks that count together what they skip: they have the same state after each step, and exceed
            ``max_skipped`` at the same step. None: all ranks of torch.distributed, if it is initialised and has this loader's rank
            and world size; else each rank counts alone, with a warning. A process group between CPUs (gloo): its ranks. False: each
            rank alone. Counting together costs an all_reduce of 64 bytes a batch, and all ranks have to iterate alike.
        memory: Bytes of blocks that the child holds ahead; default: sized by the order.
        ring_memory: Bound on the memory that batches travel in, in bytes; default 1 GiB. Only what is used is taken.
        prefetch: Batches that are made ready ahead.
        requests: Requests to a remote store in flight; None: 64 at first, then what store and step need.
        depth: Batches that the reader plans ahead of those that are made ready, if ``memory`` allows; None: what store and step need.
        autotune: False: ``requests`` and ``depth`` that are None stay at 64 and at what the memory allows. Batches and order do not depend
            on any of the three.
        workers: Threads that decode; default: the CPUs this process may use, divided by the ranks on this host.
        cache, cache_size: A folder on local disk that keeps what is read, for later epochs and other ranks, and its bound in bytes.
        metrics: Serve metrics for Prometheus at this address, ":9400" or "0.0.0.0:9400" for other hosts; default: what the environment
            variable SHARDTOOL_METRICS says. Each loader that iterates takes the first free port from that one on, of 64, and any with
            port 0; ``metrics_url`` tells which. "": none.
        stats_every: Seconds after which a line of ``stats`` goes to the log "shardtool", at level INFO; 0: never.

    Sizes may be written "64MiB". Errors are those of ``shardtool.errors``. A loader is for one thread at a time; batches are for any.
    """

    _whole = False  # copies are one piece, for whoever passes them on

    def __init__(
        self,
        url: "Union[str, os.PathLike[str]]",
        batch_size: Optional[int] = None,
        *,
        global_batch: Optional[int] = None,
        fields: "Union[Iterable[str], Mapping[str, Spec], None]" = None,
        shuffle: Optional[bool] = None,
        seed: Optional[int] = None,
        epoch: int = 0,
        epochs: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        tail: Optional[str] = None,
        shuffle_memory: Optional[Size] = None,
        whole_shards: Optional[bool] = None,
        lanes: Optional[int] = None,
        run_blocks: Optional[int] = None,
        delay: Optional[int] = None,
        head: Optional[int] = None,
        affinity: Optional[str] = None,
        out: str = "torch",
        copy: bool = True,
        map: Optional[Callable[[Batch], Any]] = None,
        on_error: str = "fail",
        max_skipped: "Union[int, float, None]" = None,
        skip_group: Any = None,
        memory: Optional[Size] = None,
        ring_memory: Optional[Size] = None,
        prefetch: int = 4,
        requests: Optional[int] = None,
        depth: Optional[int] = None,
        autotune: bool = True,
        workers: Optional[int] = None,
        cache: "Union[str, os.PathLike[str], None]" = None,
        cache_size: Optional[Size] = None,
        metrics: Optional[str] = None,
        stats_every: float = 0.0,
    ) -> None:
        if batch_size is not None and global_batch is not None:
            raise ConfigError("batch_size and global_batch: give one of them")
        if epoch < 0 or (epochs is not None and epochs < 1):
            raise ConfigError(f"epoch={epoch}, epochs={epochs}: epochs count from 0, and there is at least one")
        for name, value in (("requests", requests), ("depth", depth)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value!r}: write a number from 1 on, or None for what store and step need")
        if stats_every < 0:
            raise ConfigError(f"stats_every={stats_every!r}: write seconds, or 0 for never")
        if metrics is not None and not isinstance(metrics, str):
            raise ConfigError(f"metrics={metrics!r}: write an address such as ':9400' or '0.0.0.0:9400'")
        self.url = os.fsdecode(url)
        self._fields = parse(fields)
        self._out = _config.check_out(out, self._fields)
        self._copy = bool(copy)
        self._map = map
        self._ranks = _config.ranks(rank, world_size) if rank is not None or world_size is not None else (None, None)
        self._first_epoch, self._epochs = epoch, epochs
        self._skip_group = skip_group
        self._group: Optional[_group.Group] = None  # that counts together
        self._metrics = metrics
        self._every = stats_every
        self._meter = Meter()
        self._open = _config.opening(url, memory, workers, cache, cache_size)
        self._order = _config.drop_none({
            "batch_size": batch_size, "global_batch": global_batch, "shuffle": shuffle, "seed": seed, "epoch": epoch or None,
            "epochs": epochs or 0, "tail": tail, "shuffle_memory": _config.size_of("shuffle_memory", shuffle_memory),
            "whole_shards": whole_shards, "lanes": lanes, "run_blocks": run_blocks, "delay": delay, "head": head, "affinity": affinity,
            "prefetch": prefetch, "requests": requests, "depth": depth, "autotune": None if autotune else False,
            "memory": self._open.get("memory"), "ring": _config.size_of("ring_memory", ring_memory),
            "workers": workers, **_config.skip_limit(on_error, max_skipped),
        })  # fmt: skip
        # The place: behind the last batch delivered.
        self._checkpoint: Optional[str] = None
        self._ledger: Optional[str] = None
        self._place: Optional[Tuple[int, int]] = None
        self._begin: Optional[int] = None  # epoch that set_epoch asked for
        self._closed = False
        self._placed = False  # where to begin, by load_state_dict
        self._begun = False  # an iteration
        self._reset()

    def _reset(self) -> None:
        """What does not survive pickling and forks."""
        self._session = Session()
        self._run: Optional[Run] = None  # delivers what comes at the place
        self._pass: Optional[Epoch] = None  # the iteration begun last

    def __getstate__(self) -> Dict[str, Any]:
        kept = ("url", "_fields", "_out", "_copy", "_map", "_ranks", "_first_epoch", "_epochs", "_open", "_order", "_checkpoint", "_ledger",
                "_place", "_begin", "_closed", "_placed", "_begun", "_metrics", "_every")  # fmt: skip
        state = {name: getattr(self, name) for name in kept}
        # Groups do not leave their process.
        state["_skip_group"] = self._skip_group if isinstance(self._skip_group, bool) else None
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._group = None
        self._meter = Meter()
        self._reset()

    def __repr__(self) -> str:
        return f"shardtool.Loader({self.url!r}, at epoch {self.epoch})"

    # The child

    def _connect(self) -> Client:
        """The client, with the data set open."""
        if self._closed:
            raise ClosedError("the loader is closed")
        if self._session.lost:
            self._disconnect()
        return self._session.connect(self, _config.drop_none({**self._open, "checkpoint": self._checkpoint}), self._address())

    def _address(self) -> str:
        return os.environ.get("SHARDTOOL_METRICS", "") if self._metrics is None else self._metrics

    def _facts(self) -> Dict[str, Any]:
        """INFO. What is known is not asked again: another thread may be waiting for a batch."""
        if not self._session.info:
            self._connect()
        return self._session.info

    def _disconnect(self) -> None:
        self._session.close()
        self._reset()

    def _start(self, begin: Optional[int]) -> None:
        """Begins a run at the place, or at the beginning of an epoch."""
        since = time.perf_counter_ns()
        if self._meter.pid != os.getpid():
            self._meter = Meter()
        client = self._connect()
        fields = self._fields
        if fields is None:
            fields = [
                Field(f["name"], "bytes" if f["samples"] == self._session.info["samples"] else "bytes?")
                for f in self._session.info["fields"]
            ]
        rank, world_size = self._resolve()
        if self._order["on_error"] == "skip":
            self._group = _group.join(self._skip_group, rank, world_size, self._group)
            if self._group is not None:
                self._checkpoint, self._ledger = self._group.begin(self._checkpoint, begin, self._ledger)
        _states.check_length(self._ledger)
        body = dict(self._order, rank=rank, world_size=world_size, begin=begin, checkpoint=self._checkpoint, ledger=self._ledger)
        if self._checkpoint is None and "batch_size" not in body and "global_batch" not in body:
            raise ConfigError("give batch_size, or global_batch")
        self._run = None
        self._run = run = Run(client, _config.drop_none(body), fields, self._out, self._copy, self._whole)
        self._meter.opened(since, run.started["rank"], run.started["world_size"])
        client.hear = functools.partial(self._meter.hear, run.ident)
        if self.metrics_url:
            logger.info("metrics at %s", self.metrics_url)
        logger.info("rank %d of %d, global batch %d, tail %s", rank, world_size, run.started["global_batch"], run.started["tail"])
        self._checkpoint, self._place = run.started["checkpoint"], _states.place_of(run.started["checkpoint"])

    def _resolve(self) -> "Tuple[int, int]":
        """Rank and world size, the environment's where nothing else tells them."""
        rank, world_size = self._ranks if self._ranks[0] is not None else _config.ranks(None, None)
        if rank is None or world_size is None:
            said = self._facts()["ranks"]
            if said.get("error"):
                raise ConfigError(said["error"])
            rank, world_size = said["rank"], said["world_size"]
        return rank, world_size

    # Iterating

    def __iter__(self) -> "Iterator":
        """Begins an epoch, or goes on in the one that the state loaded stands in."""
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
        """Why the first iteration does not begin where a framework's trainer resumes; empty where it does."""
        why = "" if self._begun else _trainer.unfit(self._placed, lambda: self.epoch)
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
        run, self._run = self._run, None  # until the batch is delivered: what fails begins anew at the place
        if run is None or it is not self._pass or not run.client.alive:
            if it is not self._pass:
                self._run = run
            raise ClosedError(
                "this iteration is over: it failed, another one began, the loader was closed or given another state, or the process was"
                " forked; iterate anew"
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
                warnings.warn("no epoch is left, or the data set is empty: the iteration has no batches", stacklevel=3)
            raise StopIteration
        batch, checkpoint, ledger, place, last = taken
        if self._group is not None:
            checkpoint, ledger = self._group.batch(place, checkpoint, ledger, self._most_skipped())
            batch._saved = checkpoint, ledger
        if self._map is None:
            out: Any = batch
        else:
            out = self._map(batch)
            meter.mapped(time.perf_counter_ns() - got)
        if it.delivered == 0:
            it.epoch, it.position = batch.epoch, batch.position
        self._checkpoint, self._ledger, self._place = checkpoint, ledger, place
        it.delivered, it.last, it.held = it.delivered + 1, last, False
        self._run = run
        if self._every:
            said = self._meter.line(self._every)
            if said is not None:
                logger.info("%s", said)
        return out

    def _most_skipped(self) -> int:
        """The limit of skipped samples, as the child computes it."""
        number = self._order.get("max_skipped")
        return number if number is not None else int(self._order.get("max_skipped_share", 0.001) * self._session.info["samples"])

    def __len__(self) -> int:
        """How many batches the epoch has, that of the iteration under way or else the next one; the same on all ranks. Those before the
        place that was resumed from count, too."""
        samples, size = int(self._facts()["samples"]), self._global_batch()
        it = self._pass
        running = it is not None and it.under_way and self._begin is None
        position = it.position if it is not None and running else self._upcoming()[1]
        if self._told("tail") == "drop":
            return position // size + (samples - position) // size
        return position // size - (position - samples) // size

    def __bool__(self) -> bool:
        return True  # without asking for the length

    def _upcoming(self) -> Tuple[int, int]:
        """Where the next iteration begins."""
        it = self._pass
        if self._begin is not None:
            return self._begin, 0
        if self._checkpoint is None or self._place is None:
            return self._first_epoch, 0
        if it is not None and it.left and self._run is not None:
            return it.epoch + 1, 0
        epoch, position = self._place
        if self._told("tail") == "drop" and json.loads(self._checkpoint)["sources"][0]["N"] - position < self._global_batch():
            return epoch + 1, 0  # the rest is dropped
        return epoch, position

    def _told(self, member: str) -> Any:
        """A parameter of the order: as given, as the checkpoint says, or as it is when nothing does."""
        if member in self._order:
            return self._order[member]
        if self._checkpoint is not None:
            return json.loads(self._checkpoint)[member]
        return "wrap" if self._order.get("shuffle") else "short"

    def _global_batch(self) -> int:
        if "batch_size" in self._order:
            return int(self._order["batch_size"]) * self._resolve()[1]
        if self._checkpoint is None and "global_batch" not in self._order:
            raise ConfigError("give batch_size, or global_batch")
        return int(self._told("global_batch"))

    # What is known

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way; when there is none, that of the next one. The first, where nothing tells another."""
        it = self._pass
        if it is not None and it.under_way and self._begin is None:
            return it.epoch
        return self._upcoming()[0]

    @property
    def rank(self) -> int:
        """The data-parallel rank. Starts the child where only the environment tells it."""
        return self._resolve()[0]

    @property
    def world_size(self) -> int:
        """The number of data-parallel ranks, found as ``rank`` is."""
        return self._resolve()[1]

    @property
    def info(self) -> Dict[str, Any]:
        """The data set: samples, shards, blocks, bytes, decoded_bytes, digest, tables, generation, fields. Starts the child."""
        self._connect()
        return self._session.facts()

    @property
    def metrics_url(self) -> Optional[str]:
        """Where metrics are served, as ``metrics`` asks for; None without it, and while no child runs."""
        return self._session.info.get("metrics")

    def stats(self) -> Stats:
        """What has been delivered, and what the loop has waited for, by causes: see Stats. It may be called at any time, from any thread:
        before the first iteration, when all is zero, in the middle of a wait, and after ``close``. A loader that was copied to another
        process counts for itself there."""
        if self._meter.pid != os.getpid():
            self._meter = Meter()
        return self._meter.read(self._ranks if self._ranks[0] is not None else _config.ranks(None, None))

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch, from its beginning. It changes nothing where the next iteration is in that epoch
        anyway: so one that was resumed in the middle goes on there."""
        if epoch < 0:
            raise ConfigError(f"epoch {epoch}: epochs count from 0")
        it = self._pass
        leaves = it is not None and it.left and self._run is not None
        if self._begin is not None or leaves or epoch != self._upcoming()[0]:
            self._begin = epoch

    # The place

    def state_dict(self) -> Dict[str, Any]:
        """The place after the last batch delivered, as a dict of text and numbers, below 2 KiB unless samples were skipped. What is read
        ahead is not in it. Any number of ranks resumes from the state of any rank, as all have the same after a step. Only where ranks skip
        damaged blocks, each by itself (see ``skip_group``), they differ: resume from those of all, see ``merge_states``."""
        return {"version": 1, "checkpoint": self._checkpoint, "ledger": self._ledger, "begin": self._begin}

    def load_state_dict(self, state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> None:
        """Makes the next iteration go on at a place that ``state_dict`` gave: in the middle of an epoch where it stands there, on another
        number of ranks, or with batches of another size. A list of the states of all ranks after one step is merged, see
        ``merge_states``. Raises CheckpointError for what is no state; whether it fits is found when the iteration begins."""
        said = _states.single(state)
        checkpoint, ledger, begin = said["checkpoint"], said["ledger"], said["begin"]
        place = None if checkpoint is None else _states.place_of(checkpoint)
        self._placed = True
        self._disconnect()  # it may name another generation
        self._checkpoint, self._ledger, self._begin, self._place = checkpoint, ledger, begin, place

    def close(self) -> None:
        """Ends the child. Batches in hand stay valid, and ``state_dict`` goes on telling the place. A second call does nothing."""
        self._closed = True
        self._disconnect()
        self._meter.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Epoch:
    """What is known of one iteration of a loader."""

    __slots__ = ("delivered", "ended", "epoch", "held", "last", "position")

    def __init__(self) -> None:
        self.epoch = self.position = 0  # of its first batch
        self.delivered = 0
        self.last = False  # the last batch was delivered
        self.ended = False  # and then one more was asked for
        self.held = False  # HeldError came in place of a batch

    @property
    def left(self) -> bool:
        """Whether another iteration would leave batches of this one. After HeldError it goes on with them."""
        return self.delivered > 0 and not self.last and not self.held

    @property
    def under_way(self) -> bool:
        """Whether a loop over it is being gone through, as far as that can be told."""
        return self.delivered > 0 and not self.ended


class Iterator:
    """An iteration, for whoever loops over it. It keeps the loader; the loader does not keep it, as both would then live until the
    next garbage collection, and the child with them."""

    __slots__ = ("_loader", "epoch")

    def __init__(self, loader: Loader, epoch: Epoch) -> None:
        self._loader, self.epoch = loader, epoch

    def __iter__(self) -> "Iterator":
        return self

    def __next__(self) -> Any:
        return self._loader._next(self.epoch)
