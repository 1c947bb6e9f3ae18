"""The data set for torch's DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Mapping as AnyMapping
from multiprocessing import context
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import torch.utils.data
from torch.utils.data import dataloader
from torch.utils.data._utils import collate, fetch

from .. import _checks
from .._read.arguments import Arguments, Asked
from .._read.callers import caller
from ..batch import Batch
from ..errors import ConfigError, ShardtoolError
from ..fields import Field
from ..loader import Loader
from ..stats import Meter, Stats
from . import notes
from .lent import Later
from .loops import Loop, Waits, above, attached
from .named import NamedBatch, named
from .notes import Board
from .relay import begin_at, left, newest, upcoming
from .worker import Tap

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # which type checkers have built in

    T = TypeVar("T", default=NamedBatch)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Dataset(Arguments[T], torch.utils.data.IterableDataset):  # type: ignore[misc,type-arg,unused-ignore]
    """Batches of a data set for a DataLoader: as from ``shardtool.Loader``, in the same order for
    any number of workers.

    ::

        url, fields = "s3://bucket/train", {"jpg": "image", "cls": "int"}
        ds = shardtool.Dataset(url, 64, shuffle=True, seed=7, fields=fields, map_batch=augment)
        dl = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=8)
        for epoch in range(ds.epoch, 90):
            for batch in dl:
                train(batch["jpg"], batch["cls"])
                saved = batch.state_dict()

    ``batch_size=None`` is required: it tells the DataLoader that batches are complete.

    **Workers** decode images and run ``map`` in parallel. All share one reader, which has its own
    threads. Where nothing needs Python, as arrays and bytes without a ``map`` and a ``collate_fn``,
    they have nothing to do: the loop takes batches from the reader, as with ``num_workers=0``.

    **Epochs.** Each iteration of the DataLoader is the next epoch, as for a Loader. ``set_epoch``
    works before an iteration, also with persistent workers.

    **Place.** ``batch.state_dict()`` is the place after a batch, however far the workers have read
    ahead, and ``load_state_dict`` continues there. With a StatefulDataLoader, use its
    ``state_dict``.

    It takes the arguments of ``shardtool.Loader``, with one difference: ``map_batch`` is called in
    the worker, and its result is delivered; a dict gets the method ``state_dict()``. Without it, a
    batch is a dict of its fields.

    A Dataset can be pickled. It is for one thread at a time.
    """

    def _begin_with(self, asked: Asked) -> None:
        if asked.tuning.peers is not None:
            raise ConfigError("peers: a Dataset reads by itself; give them to a shardtool.Loader")
        if asked.format == "arrow":
            raise ConfigError("format='arrow': a Dataset delivers dicts; shardtool.Loader can deliver record batches")
        self._delivery = _Delivery(asked.map)
        self._loader: Loader[Any] = Loader.__new__(Loader)
        self._loader._begin_with(dataclasses.replace(asked, map=self._delivery))
        self._loader._inside = True
        self._asked = 0  # how often workers were told where to begin
        self._reset()

    def _reset(self) -> None:
        self._board: Optional[Board] = None
        self._tap: Optional[Tap] = None
        self._lock = threading.Lock()
        self._length: Tuple[str, int] = ("", 0)
        self._waits = Waits()
        self._turn: "Optional[weakref.ref[_Turn]]" = None  # the latest iteration in this process
        self._easy: Optional[bool] = None  # whether its fields need no Python, once that is known
        self._meters: List[Meter] = []  # of loaders that earlier iterations keep
        _alive.add(self)

    # Processes

    def _hand_out(self) -> Board:
        """Returns the board for a process that is about to start."""
        with self._lock:
            found, loop, begins = above(self), None, None
            if found is not None:
                self._part()
                loop = attached(found[0])
                if loop is None:
                    self._loader._begun = self._loader._begun or found[1] is not None  # where the StatefulDataLoader points
                    begins = self._begins(found[0])
            if self._board is None or self._board.owner != os.getpid():
                self._board = Board()
                self._tell()
            elif (self._handed, self._ranks) != (upcoming(self._loader), _checks.ranks(None, None)):
                self._tell()
            self._board.ticket += 1
            if found is not None and begins is not None:
                loop = Loop(self._board, self._waits, found[0], found[1] is not None, *begins)
                if found[1] is not None:
                    self._board.write(notes.resumes_of(self._board.ticket), {"ticket": self._board.ticket, **found[1]})
            self._board.lender, self._board.alone = (None, None) if loop is None else (loop.lender, loop.alone)
            return self._board

    def _begins(self, iterator: Any) -> "Tuple[Optional[BaseException], bool]":
        """Returns why an iterator must not deliver batches, and whether its loop reads by itself.
        Raises nothing: an exception before a fork is lost."""
        try:
            unfit = self._loader._unfit()
            return (ConfigError(unfit), False) if unfit else (None, self._alone(iterator))
        except (ShardtoolError, AttributeError):  # the workers meet it, too, or it is another torch
            return None, False
        except BaseException as err:
            return err, False

    def _alone(self, iterator: Any) -> bool:
        """Whether the workers of an iterator would have nothing to do but to pass batches on. Where
        ranks talk to each other, which workers cannot, a loop must not begin to."""
        asked = self._loader._asked
        if (
            type(iterator) is not dataloader._MultiProcessingDataLoaderIter or iterator._dataset is not self
            or iterator._auto_collation or iterator._collate_fn is not collate.default_convert or self._delivery.map is not None
            or iterator._pin_memory or iterator._timeout or not _without_python(asked.fields or ())
            or asked.starting["on_error"] == "skip" or asked.starting.get("cost")
        ):  # fmt: skip
            return False
        easy: Optional[bool] = self._easy
        if easy is None:
            session = self._loader._session
            opened = session.client is not None
            self._easy = easy = _without_python(self._loader._fields())
            if not (opened or easy):
                session.close()  # a worker reads
        return easy

    def _part(self) -> None:
        """Leaves the loader to an iteration in this process that could still go on, and has another
        for the next iteration."""
        turn = None if self._turn is None else self._turn()
        if turn is not None and turn.goes_on(self._loader):
            loader = copy.copy(self._loader)
            loader.load_state_dict(upcoming(self._loader))
            self._meters.append(self._loader._meter)
            self._loader = loader

    def _tell(self) -> None:
        """Makes the workers' next iteration begin where this process's would."""
        self._handed, self._ranks = upcoming(self._loader), _checks.ranks(None, None)
        if self._board is not None and self._board.owner == os.getpid():
            self._asked += 1
            said = {"asked": self._asked, "state": self._handed, "ranks": self._ranks if self._ranks[0] is not None else None}
            for note in (notes.asked_by(self._asked), notes.MAIN):
                self._board.write(note, said)

    def __getstate__(self) -> Dict[str, Any]:
        state = {"_delivery": self._delivery, "_loader": self._loader, "_asked": self._asked, "_board": None}
        if context.get_spawning_popen() is not None and torch.utils.data.get_worker_info() is None:
            state["_board"] = self._hand_out()
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._reset()
        self.__dict__.update(state)

    # Iterating

    def __iter__(self) -> Iterator[T]:
        """Begins the next epoch, or continues where a loaded state points."""
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            self._part()
            if self._ahead() is not None:
                assert self._board is not None
                state = begin_at(self._board)[1]
                assert state is not None
                self.load_state_dict(state)
            turn = _Turn(self._delivery, None, iter(self._loader))
            self._turn = weakref.ref(turn)
            return turn
        tap = self._open_tap(worker)
        if tap.idle:
            return iter(())
        return _Turn(self._delivery, tap, tap.begin())

    def _open_tap(self, worker: Any) -> Tap:
        if self._tap is None or self._tap.pid != os.getpid():
            if self._board is None:
                raise ConfigError("this data set was made in a worker of a DataLoader: make it in the process that iterates the DataLoader")
            self._tap = Tap(self._board, self._loader, worker.id, worker.num_workers, worker.seed - worker.id)
        return self._tap

    # The place

    def _ahead(self) -> Optional[Dict[str, Any]]:
        """Returns the board's note of the workers' iteration, if workers are ahead of this
        process."""
        if self._board is None or self._board.owner != os.getpid():
            return None
        return newest(self._board, self._asked)

    def _probe(self) -> Loader:
        """Returns a loader at the iteration under way, or before the next one. The caller must
        close it."""
        loader = copy.copy(self._loader)
        last = self._ahead()
        if last is None:
            loader.load_state_dict(upcoming(self._loader))
        else:
            loader.load_state_dict(last["place"] if last["ended"] or "began" not in last else last["began"])
        return loader

    def __len__(self) -> int:
        """The number of batches of the epoch: see Loader."""
        if self._ahead() is None and self._loader._session.client is not None:
            return len(self._loader)
        with self._probe() as loader:
            key = repr(loader.state_dict())
            if self._length[0] != key:
                self._length = key, len(loader)
        return self._length[1]

    def __bool__(self) -> bool:
        return True

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or of the next one if none is under way."""
        if self._ahead() is None:
            return self._loader.epoch
        with self._probe() as loader:
            return loader.epoch

    @property
    def batch_size(self) -> Optional[int]:
        """The samples of a batch: see Loader."""
        return self._loader.batch_size

    @property
    def fields(self) -> List[str]:
        """The names of the fields that batches have: see Loader."""
        with copy.copy(self._loader) as loader:
            return loader.fields

    @property
    def info(self) -> Dict[str, Any]:
        """Facts about the data set: see Loader."""
        with copy.copy(self._loader) as loader:
            return loader.info

    def stats(self) -> Stats:
        """Returns what was delivered, and how long the loop waited, over all iterations in this
        process: see Stats.

        With workers, ``batches``, ``samples`` and ``bytes`` count what the reader gave them,
        somewhat ahead of the loop. ``wait`` is the loop's wait in the DataLoader. Its causes are an
        estimate: the reader's, for as long as the workers waited for it, and ``map`` for the rest,
        in which they decode, map and send. If most of it is ``map``, use more workers; otherwise
        look at the reader. If the loop cannot be observed, for example because another data set
        wraps this one, ``wait`` is what the workers waited for the reader.
        """
        own = self._loader.stats()
        for meter in self._meters:
            own = own + meter.read()
        board, waits = self._board, self._waits
        if board is None or board.owner != os.getpid():
            return own
        read = board.stats(notes.STATS)
        if waits.batches:
            read = read._seen_by(waits.wait, waits.first, "map")
        both = own + read
        begun = [at for at in (*(m.begun for m in (self._loader._meter, *self._meters)), waits.begun) if at]
        return both._replace(elapsed=(time.perf_counter_ns() - min(begun)) / 1e9 if begun else both.elapsed)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin an epoch. It does nothing if the next iteration is in that
        epoch already: one that resumes in the middle continues there."""
        epoch = _checks.typed(Dataset.set_epoch, {"epoch": epoch})["epoch"]
        last = self._ahead()
        if last is not None:
            assert self._board is not None
            gone = left(self._board, last)
            self._loader.load_state_dict({**last["place"], "begin": epoch} if gone else last["place"])
            if gone:
                self._tell()
                return
        if self._loader._pass is not None and self._loader._pass.delivered == 0:
            self._part()  # an iterator keeps the place that it was made at, as with workers
        self._loader.set_epoch(epoch)
        self._tell()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the place after the last batch delivered, without workers; and in a worker, for
        StatefulDataLoader. Raises ConfigError if workers have read ahead: then use the
        ``state_dict()`` of a batch."""
        if torch.utils.data.get_worker_info() is not None and self._tap is not None:
            return self._tap.state_dict()
        if self._ahead() is not None:
            raise ConfigError(
                "the DataLoader's workers have read ahead, so the data set does not know the last batch of your loop: use"
                " batch.state_dict(), shardtool.torch.state_of(batch), or the state_dict() of a StatefulDataLoader"
            )
        return self._loader.state_dict()

    def load_state_dict(self, state: "Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]") -> None:
        """Makes the next iteration continue at the place of a batch, a data set or a
        ``shardtool.Loader``, on any number of ranks and workers. It may be the list of the states
        of all ranks after one step: see Loader."""
        worker = torch.utils.data.get_worker_info()
        if worker is not None and isinstance(state, AnyMapping):
            self._open_tap(worker).load_state_dict(state)
            return
        self._loader.load_state_dict(state)
        self._tell()

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Sets the weights of a mix from the batch after the last one on: see Loader. It is for a
        DataLoader without workers, or for before an iteration."""
        if torch.utils.data.get_worker_info() is not None or self._ahead() is not None:
            raise ConfigError(
                "set_weights: the DataLoader's workers have read ahead of the loop: use num_workers=0 or a shardtool.Loader, or begin"
                " another iteration at the batch that the loop got last: dataset.load_state_dict(batch.state_dict()), then set_weights"
            )
        self._loader.set_weights(weights)
        self._tell()

    def close(self) -> None:
        """Ends the reader of this process. Workers end theirs with the DataLoader."""
        self._loader.close()


def _without_python(fields: "Iterable[Field]") -> bool:
    """Whether fields are arrays in the memory that the reader delivers, or text and bytes, which
    cost a loop as much to receive as to make."""
    return all(f.decode in ("array", "bytes", "float", "int", "npy", "txt") for f in fields)


class _Delivery:
    """Turns a batch into what is delivered."""

    def __init__(self, map: Optional[Callable[[Batch], Any]]) -> None:
        self.map = map

    def __call__(self, batch: Batch) -> Any:
        out = batch if self.map is None else self.map(batch)
        return named(out, batch) if isinstance(out, Batch) or type(out) is dict else out


class _Turn:
    """One iteration in one process."""

    def __init__(self, delivery: "_Delivery", tap: Optional[Tap], iteration: Any) -> None:
        self._delivery, self._tap, self._iteration = delivery, tap, iteration
        self._checked = False
        self._plain = False  # whether no code in this process looks at the batches

    def _begin_delivery(self, owner: object) -> None:
        _check_caller(owner)
        lending = None if self._tap is None else self._tap.lending
        if lending is not None:
            lending.direct = isinstance(owner, fetch._IterableDatasetFetcher)
            self._plain = lending.direct and self._delivery.map is None and getattr(owner, "collate_fn", None) is collate.default_convert

    def _unread(self, batch: Batch) -> Any:
        """As the delivery, but for lists that the process of the loop can make."""
        if batch._region is None or batch._keep is not None or batch._layout is None:
            return self._delivery(batch)
        layout = batch._layout
        bare = {name for name, i in layout.index.items() if name not in layout.lists and layout.fields[i].decode == "bytes"}
        return named({name: Later() if name in bare else batch[name] for name in batch}, batch)

    def goes_on(self, loader: Loader[Any]) -> bool:
        """Whether the iteration, of a loader, could deliver another batch."""
        return loader._run is not None and loader._pass is self._iteration.epoch and not loader._pass.last

    def __iter__(self) -> "_Turn":
        return self

    def __next__(self) -> Any:
        if not self._checked:
            self._begin_delivery(caller("fetch", "__iter__", "__next__"))
            self._checked = True
        if self._tap is None:
            return next(self._iteration)
        try:
            batch = self._tap.next(self._iteration)
            if batch is None:
                raise StopIteration
            out = self._unread(batch) if self._plain else self._delivery(batch)
        except StopIteration:
            raise
        except BaseException as err:
            self._tap.failed(err)
            raise
        self._tap.delivered(batch)
        return out


def _check_caller(owner: object) -> None:
    """Refuses callers that would make batches of batches, or divide batches among the ranks
    again."""
    if getattr(owner, "auto_collation", False):
        raise ConfigError(
            "give batch_size to shardtool.Dataset, and batch_size=None to the DataLoader, which would otherwise make batches of batches"
        )
    if type(owner).__name__ == "IterableDatasetShard":
        raise ConfigError(
            "this rank's batches would be divided among the ranks once more: each process must iterate its own loader, returned by"
            " get_train_dataloader of a Trainer, and not prepared by Accelerate; docs/pytorch.md shows both"
        )


_alive: "weakref.WeakSet[Dataset]" = weakref.WeakSet()


def _before_fork() -> None:
    if torch.utils.data.get_worker_info() is None:
        for dataset in list(_alive):
            dataset._hand_out()


def _after_fork() -> None:
    for dataset in list(_alive):
        dataset._lock = threading.Lock()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
