"""The batches of one rank: the child that reads them, the run under way, the place after the last
batch, and what follows it."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
import threading
import time
import warnings
import weakref
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Tuple, Union

from .. import _checks
from .._wire import host
from .._wire.client import Client, Session
from .._wire.peers import Peers
from .._wire.process import logger
from ..batch import Batch
from ..errors import ClosedError, ConfigError, ShardtoolError, SkippedError
from ..fields import Field, check_out, found, typed
from ..images import leave_out_damaged
from ..options import Tuning
from ..stats import Meter
from . import costs, mixes, skipped, states, steering, trainers
from .arguments import Asked
from .iteration import Epoch
from .run import Ahead, Run
from .units import Bucket, Pack


def metrics_of(tuning: Tuning) -> str:
    """Returns the address to serve metrics at."""
    return os.environ.get("SHARDTOOL_METRICS", "") if tuning.metrics is None else tuning.metrics


def _tell_unread(passes: List[Epoch], epochs: int, pid: int) -> None:
    """Says that a loader which is gone was read to the end of its first epoch, and that was all."""
    if pid == os.getpid() and len(passes) == 1 and passes[0].ended and passes[0].epoch == passes[0].position == 0:
        logger.warning("epochs=%d, and 1 epoch was read: a loop is one epoch, so write `for epoch in range(loader.epoch, %d):` around it",
                       epochs, epochs)  # fmt: skip


class Stream:
    """What Loader is made of."""

    _quiet = False  # whether an iteration without batches is no reason to warn
    _reads_ahead = 0  # batches that a thread takes before a loop
    _inside = False  # whether it is in a data set, which a DataLoader hides from trainers
    _decoders_said = False  # whether a change of decoders was reported
    _epoch_given = False  # whether set_epoch was called
    _whole = False  # whether its batches go to other processes, which decode them

    def _begin_with(self, asked: Asked) -> None:
        self._asked = asked
        self._ranks, self._map = asked.ranks, asked.map
        # The place after the last batch delivered.
        self._checkpoint: Optional[str] = None
        self._ledger: Optional[str] = None
        self._place: Optional[Tuple[int, int]] = None
        self._begin: Optional[int] = None  # epoch that set_epoch asked for
        self._layers: Optional[Dict[str, Dict[str, str]]] = None  # tables of the layers, by source and layer
        self._closed = False
        self._placed = False  # whether load_state_dict set the place of the next batch
        self._begun = False  # whether a trainer was looked for
        tuning = asked.tuning
        self._peers = None if tuning.peers is None else Peers(tuning.peers, metrics_of(tuning), asked.opening)
        if self._peers is not None:
            weakref.finalize(self, self._peers.close)
        self._renew()

    def _renew(self) -> None:
        """Sets what another process does not inherit."""
        self._group: Optional[skipped.Group] = None  # ranks that count skipped samples together
        self._steering: Optional[steering.Ranks] = None  # ranks that set weights together
        self._meter = Meter()
        self._turn = os.getpid(), threading.RLock()  # of threads that iterate
        self._passes: List[Epoch] = []  # the first two
        epochs = self._asked.starting.get("epochs", 0)
        if epochs > 1:
            weakref.finalize(self, _tell_unread, self._passes, epochs, os.getpid())
        self._reset()

    def _reset(self) -> None:
        """Sets the state that pickling and forks do not keep."""
        self._session = Session(host.connect if self._asked.tuning.host else Client if self._peers is None else self._peers.connect)
        self._run: Union[Run, Ahead, None] = None  # delivers the batches after the place
        self._pass: Optional[Epoch] = None  # the latest iteration
        self._counts: Dict[int, int] = {}  # units of epochs
        self._damaged = 0  # samples left out because of their images
        self._sampler: Optional[trainers.Told] = None
        self._following: Optional[int] = None  # units of the epoch that the next batch is in; None: STARTED has it

    def __getstate__(self) -> Dict[str, Any]:
        kept = ("_ranks", "_map", "_checkpoint", "_ledger", "_place", "_begin", "_closed", "_placed", "_begun", "_inside", "_layers")
        return {"_asked": self._asked.portable(), **{name: getattr(self, name) for name in kept}}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._peers = None
        self._renew()

    # The child

    def _connect(self) -> Client:
        """Returns the client, with the data set open."""
        if self._closed:
            raise ClosedError("the loader is closed")
        if self._session.lost:
            self._disconnect()
        request = _checks.drop_none({
            **self._asked.opening, "checkpoint": self._checkpoint, "layer_tables": self._layers,
            "environment": host.environment() if self._asked.tuning.host else None,
        })  # fmt: skip
        client = self._session.connect(self, request, metrics_of(self._asked.tuning))
        self._layers = self._session.info.get("layers")
        return client

    def _facts(self) -> Dict[str, Any]:
        """Returns INFO, from memory if possible: another thread may be waiting for a batch."""
        if not self._session.info:
            self._connect()
        return self._session.info

    def _fields(self) -> List[Field]:
        """Returns the fields of batches that samples have, as the data set has them."""
        info, asked = self._facts(), self._asked
        fields = [] if isinstance(asked.units, Pack) else asked.fields
        return typed(info, asked.typed) if fields is None else found(info, fields)

    def _disconnect(self) -> None:
        self._session.close()
        self._reset()

    def _start(self, begin: Optional[int], weights: Optional[Dict[str, float]] = None) -> None:
        """Starts a run at the place, or at the beginning of the epoch ``begin``, with other weights
        of a mix from there on."""
        since = time.perf_counter_ns()
        if self._meter.pid != os.getpid():
            self._meter = Meter()
        client, asked, fields = self._connect(), self._asked, self._fields()
        check_out(asked.format, fields)
        for name in {f.name for f in asked.derived()}.intersection(f.name for f in fields):
            raise ConfigError(
                f"field {name!r}: batches have a column of this name that the data set does not: leave the field out of fields"
            )
        rank, world_size = self._resolve()
        if asked.starting["on_error"] == "skip":
            self._group = skipped.join(asked.faults.skip_group, rank, world_size, self._group)
            if self._group is not None:
                self._checkpoint, self._ledger = self._group.begin(self._checkpoint, begin, self._ledger)
        states.check_length(self._ledger)
        body = dict(asked.starting, rank=rank, world_size=world_size, begin=begin, checkpoint=self._checkpoint, ledger=self._ledger)
        if self._checkpoint is None:
            body["tail"] = self._told("tail")
        body["weights"] = weights
        if self._checkpoint is None and "batch_size" not in body and "global_batch" not in body:
            raise self._no_batch_size()
        if self._peers is not None and self._peers.count > 1:
            body["ahead"] = self._reads_ahead
        if asked.units is not None:
            body["units"] = asked.units.request([f["name"] for f in self._session.info["fields"]], asked.opening.get("cache"))
        self._run = None
        run = Run(client, _checks.drop_none(body), fields, asked.arrays, asked.derived(), self._whole)
        self._run = Ahead(run, fields) if any(f.image for f in fields) and not self._whole else run
        said = run.started
        costs.compare(said, asked.starting.get("cost"))
        lost = self._meter.opened(since, said["rank"], said["world_size"], said.get("sources", ()), said.get("lengths", {}))
        if lost:
            logger.warning("%s (long=)", lost)
        client.hear = functools.partial(self._meter.hear, run.ident)
        if "metrics" in self._session.info:
            logger.info("metrics at %s", self._session.info["metrics"])
        logger.info("rank %d of %d, global batch %d, tail %s", rank, world_size, said["global_batch"], said["tail"])
        self._following = None
        self._checkpoint, self._place = said["checkpoint"], states.place_of(said["checkpoint"])

    def _steer(self, weights: Mapping[str, Any]) -> None:
        """Sets weights of a mix from the place on."""
        asked: Union[Dict[str, float], Exception]
        try:
            asked = steering.parse(weights, self._facts().get("sources"))
        except Exception as err:  # the other ranks wait for this one
            asked = err
        rank, world_size = self._resolve()
        it = self._pass
        begin = None if it is not None and it.under_way else self._begin
        if self._checkpoint is None and not isinstance(asked, Exception):
            self._start(begin)
        self._steering = steering.join(self._asked.faults.skip_group, rank, world_size, self._steering)
        asked = steering.agreed(self._steering, self._checkpoint, begin, asked)
        running, before = self._run is not None, self._checkpoint
        try:
            self._start(begin, asked)
        except Exception:
            if running:  # the batches that were on their way are gone
                with contextlib.suppress(ShardtoolError):
                    self._start(None)
            raise
        if begin is not None:
            self._begin = None
        for line in steering.dropped(before):
            logger.warning("%s", line)
        assert self._place is not None
        logger.info("weights from position %d on: %s", self._place[1], ", ".join(f"{name} {asked[name]:g}" for name in sorted(asked)))

    def _rewind(self, state: Mapping[str, Any]) -> None:
        """Moves the place back to a batch of the run under way, for a thread that took batches
        ahead. The next start continues there."""
        self._checkpoint, self._ledger, self._begin = state["checkpoint"], state["ledger"], state["begin"]
        self._place = None if self._checkpoint is None else states.place_of(self._checkpoint)
        self._pass = self._run = None

    def _resolve(self) -> Tuple[int, int]:
        """Returns rank and world size; the child finds them in the environment if nothing else sets
        them."""
        rank, world_size = self._ranks if self._ranks[0] is not None else _checks.ranks(None, None)
        if rank is None or world_size is None:
            said = self._facts()["ranks"]
            if said.get("error"):
                raise ConfigError(said["error"])
            rank, world_size = said["rank"], said["world_size"]
        return rank, world_size

    # Batches

    def _alone(self) -> "ContextManager[object]":
        """Holds a lock, so that iterations in several threads end one another with an error."""
        if self._turn[0] != os.getpid():  # another thread may have held it at the fork
            self._turn = os.getpid(), threading.RLock()
        return self._turn[1]

    def _iterate(self) -> Epoch:
        """Begins the next epoch, or continues where a loaded state points."""
        with self._alone():
            if self._session.lost:
                self._disconnect()
            begin = self._next_epoch()
            if begin is not None or self._run is None:
                self._start(begin)
            self._begin, self._pass = None, Epoch()
            if len(self._passes) < 2:
                self._passes.append(self._pass)
            return self._pass

    def _left(self, it: Epoch) -> None:
        """Tells the peers that a loop was left, so that they do not wait for it."""
        if self._peers is not None and it is self._pass and it.given_up:
            self._peers.left()
            if it.delivered == 0:
                self._run = None  # the next iteration asks to begin, as it does after a batch

    def _unfit(self) -> str:
        """Explains why the first iteration does not begin where a trainer resumes; empty if it
        does."""
        why = "" if self._begun else trainers.unfit(self._placed, self._inside and not self._epoch_given)
        self._begun = not why
        return why

    def _before_first(self, it: Epoch) -> None:
        """Runs when a loop asks for its first batch."""
        unfit = "" if self._begun else self._unfit()
        if unfit:
            raise ConfigError(unfit)
        if self._begin is not None and it is self._pass and self._run is not None:
            self._start(self._begin)  # set_epoch was called after iter
            self._begin = None

    def _next(self, it: Epoch) -> Any:
        with self._alone():
            return self._taken(it)

    def _taken(self, it: Epoch) -> Any:
        if it.last:
            it.ended = True
            raise StopIteration
        if it.delivered == 0:
            self._before_first(it)
        run, self._run = self._run, None  # set again once the batch is delivered; after an error the next iteration restarts at the place
        if run is None or it is not self._pass or not run.client.alive:
            if it is not self._pass:
                self._run = run
            raise ClosedError(
                "this iteration has ended: it failed, another one began, the loader was closed or loaded a state, or the process forked;"
                " start another iteration, and give each of two loops that run together a Loader of its own"
            )
        meter, since = self._meter, time.perf_counter_ns()
        try:
            taken = run.take(self._ledger)
        except Exception as err:
            if self._group is not None:
                self._group.failed(err)
            raise
        finally:
            got = time.perf_counter_ns()
            meter.waited(run.account, got - since)
        if taken is None:
            self._run, it.last, it.ended = run, True, True
            if it.delivered == 0 and not self._quiet:
                warnings.warn("the iteration has no batches: all epochs have ended, or the data set is empty", stacklevel=3)
            raise StopIteration
        batch, checkpoint, ledger, place, last = taken
        if it.delivered == 0 and self._sampler is not None:
            self._sampler.check(batch.epoch)
        if self._group is not None:
            checkpoint, ledger = self._group.batch(place, checkpoint, ledger, self._most_skipped())
            batch._saved = checkpoint, ledger
        out = self._made(batch)
        if self._map is not None:
            out = self._map(out)
            meter.mapped(time.perf_counter_ns() - got)
        if it.delivered == 0:
            it.epoch, it.position = batch.epoch, batch.position
        every = self._asked.tuning.stats_every
        said = meter.line(every) if every else None
        if said is not None:
            logger.info("%s", said)
        units, following = batch._units()
        # From here on nothing is called: an interrupt there would put the place ahead of the loop.
        self._checkpoint, self._ledger, self._place, self._placed = checkpoint, ledger, place, False
        it.delivered, it.last, it.units, self._following = it.delivered + 1, last, units, following
        self._run = run
        return out

    def _made(self, batch: Batch) -> Any:
        """Returns the argument of ``map`` for a batch."""
        if not self._whole:
            self._leave_out(batch)
        return batch.to_arrow() if self._asked.format == "arrow" else batch

    def _leave_out(self, batch: Batch) -> None:
        """Leaves samples out of a batch whose images are damaged, as ``on_error`` says."""
        asked = self._asked
        if asked.starting["on_error"] != "skip" or asked.units is not None:
            return
        names = [f.name for f in asked.fields or () if f.image is not None]
        if not names:
            return
        self._damaged += leave_out_damaged(batch, names)
        if self._session.client is not None and self._damaged > self._most_skipped():
            raise SkippedError(
                f"{self._damaged} samples with images that cannot be decoded were left out since the loader was made, but max_skipped"
                f" allows {self._most_skipped()}: correct them, or allow more"
            )

    def _most_skipped(self) -> int:
        """Returns the limit of skipped samples, as the child computes it."""
        number = self._asked.starting.get("max_skipped")
        return number if number is not None else int(self._asked.starting.get("max_skipped_share", 0.001) * self._session.info["samples"])

    # What follows

    def _told(self, member: str) -> Any:
        """Returns a parameter of the order: as given, as in the checkpoint, or the default."""
        if member in self._asked.starting:
            return self._asked.starting[member]
        if self._checkpoint is not None:
            return json.loads(self._checkpoint)[member]
        assert member == "tail", member  # all others are in one of these
        return self._asked.tail or ("short" if self._resolve()[1] == 1 else "pad")

    def _no_batch_size(self) -> ConfigError:
        unit = {Pack: "sequences", Bucket: "micro-batches; 1 is one for each rank and step"}.get(type(self._asked.units), "samples")
        return ConfigError(
            f"give batch_size, a number of {unit}, or order=Order(global_batch=...), to the Loader or Dataset itself:"
            " a DataLoader of it gets batch_size=None; shardtool.open(url) has single samples"
        )

    def _global_batch(self) -> int:
        if "batch_size" in self._asked.starting:
            return int(self._asked.starting["batch_size"]) * self._resolve()[1]
        if self._checkpoint is None and "global_batch" not in self._asked.starting:
            raise self._no_batch_size()
        return int(self._told("global_batch"))

    def _next_epoch(self) -> Optional[int]:
        """Returns the epoch that the next iteration begins; None if it continues at the place."""
        last = self._pass
        if self._begin is None and last is not None and self._run is not None and last.left:
            return last.epoch + 1
        return self._begin

    def _upcoming(self) -> Tuple[int, int]:
        """Returns epoch and position where the next iteration begins."""
        begin = self._next_epoch()
        if begin is not None:
            return begin, 0
        if self._checkpoint is None or self._place is None:
            return self._asked.starting.get("epoch", 0), 0
        epoch, position = self._place
        said = json.loads(self._checkpoint)
        if states.of_mix(said):
            cut = said["tail"] == "drop" or said["left_out"] or "skip_steps" in self._asked.starting
            mix = self._mix() if cut else None
            position = position if mix is None else mix.beginning(position)
            return position // int(said["epoch_length"]), position
        if self._told("tail") == "drop":
            samples = said["sources"][0]["N"] if self._asked.units is None else self._next_units()
            if samples - position < self._global_batch():
                return epoch + 1, 0  # ``tail`` drops the rest
        return epoch, position

    def _batches(self) -> int:
        """Returns how many batches the epoch under way has, or the next one."""
        samples, size = int(self._facts()["epoch_samples"]), self._global_batch()
        it = self._pass
        running = it is not None and it.under_way and self._begin is None
        epoch, position = (it.epoch, it.position) if it is not None and running else self._upcoming()
        mix = self._mix()
        if mix is not None:
            return mix.batches(max(position, epoch * mix.epoch))
        if self._asked.units is not None:
            samples = it.units if it is not None and running else self._next_units()
        if self._told("tail") == "drop":
            return position // size + (samples - position) // size
        return position // size - (position - samples) // size

    def _next_units(self) -> int:
        """Returns how many units the epoch of the next iteration has. The child may have to plan
        it."""
        epoch = self._next_epoch()
        if epoch is None:
            started = self._started()
            return int(started.get("units", 0)) if self._following is None else self._following
        if epoch not in self._counts:
            other = copy.copy(self)  # with another child, so that the place does not change
            try:
                other._start(epoch)
                self._counts[epoch] = int(other._started().get("units", 0))
            finally:
                other._disconnect()
        return self._counts[epoch]

    def _started(self) -> Dict[str, Any]:
        """Returns STARTED of the run under way, or of one that begins at the place."""
        if self._run is None:
            self._start(None)
        assert self._run is not None
        return self._run.started

    def _mix(self) -> Optional[mixes.Plan]:
        """Returns the plan of the mix; None for one data set."""
        said = None if self._checkpoint is None else json.loads(self._checkpoint)
        if not (states.of_mix(said) if said else "sources" in self._facts()):
            return None
        info: Mapping[str, Any] = self._session.info
        if self._asked.units is not None:  # units depend on the order, which a start chooses
            started = self._started()
            said = json.loads(self._checkpoint or "null")
            info = {"epoch_length": started["units"], "end": started.get("end", mixes.NO_END)}
        elif said and "steered" in said:  # INFO is from before
            info = {"end": self._started().get("end", mixes.NO_END)}
        return mixes.plan_of(said, info, self._told("tail"), self._global_batch(), self._asked.starting.get("skip_steps"))
