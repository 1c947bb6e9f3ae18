"""Counts the batches that the loop over a DataLoader with workers has received, in the process of
the loop.

The workers read ahead and cannot know it, and the DataLoader reports it nowhere. But its iterator
starts the workers in its constructor, and the data set, which is sent to them, finds the iterator
on the stack. From then on, each batch that the iterator returns is counted. If the iterator is not
found, nothing is counted, and everything else works as far as it can.

Where nothing in a batch needs Python, workers would only make each batch longer on its way. Then
the loop reads by itself, as without workers, and those that torch starts have nothing to do.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, Dict, NamedTuple, Optional, Tuple

from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader

from .._read.callers import callers
from ..errors import ConfigError
from . import notes
from .lent import Lender
from .notes import Board


class Waits:
    """What the loops over a data set waited for in DataLoaders with workers."""

    def __init__(self) -> None:
        #: When the first of them began, by time.perf_counter_ns; 0 before it.
        self.begun = 0
        #: Batches received, and nanoseconds of the wait for all of them and for the first.
        self.batches = self.wait = self.first = 0


#: Iterators that have a Loop, by the secret of their board and their ticket.
_iterators: "weakref.WeakValueDictionary[Tuple[str, int], Any]" = weakref.WeakValueDictionary()


class Loop:
    """The iterations of one iterator of a DataLoader."""

    def __init__(self, board: Board, waits: Waits, iterator: Any, resumed: bool, unfit: Optional[BaseException], alone: bool) -> None:
        self._board = board
        self._unfit = unfit  # why it must not deliver batches
        #: The seed of the iterator if its loop reads by itself.
        self.alone: Optional[int] = iterator._base_seed if alone else None
        self._fetcher: Any = None  # of the loop that reads
        self._starting = 0  # idle workers that may not have begun
        self._resumed = resumed  # whether its first iteration begins where a StatefulDataLoader says
        self._waits = waits
        self._iterator = weakref.ref(iterator)
        self._ticket = board.ticket  # the ticket of its worker 0
        self._turn = 0
        self._first = True  # whether the constructor has not yet called _reset
        waits.begun = waits.begun or time.perf_counter_ns()
        self.lender: Optional[Lender] = None
        if not alone:
            _iterators[board.secret, self._ticket] = iterator
            self.lender = Lender(iterator._num_workers)
            weakref.finalize(iterator, self.lender.close)
            self._begin()
        # Set on the object, so that others of its class do not change. It must not refer to the
        # object: torch ends the workers when the iterator is collected.
        iterator._next_data, iterator._reset = self._next_data, self._reset

    def _begin(self) -> None:
        self._turn, self._delivered, self._failed = self._turn + 1, 0, ""
        self._asked, self._after = asked(self._board), latest(self._board)
        self._order = 1 + max((one.order for one in self._board.loops.values()), default=0)
        self._tell()

    def _reset(self, *args: Any, **options: Any) -> None:
        if not self._first and self.alone is None:
            self._resumed = False
            self._begin()
        self._first = False
        iterator: Any = self._iterator()
        type(iterator)._reset(iterator, *args, **options)
        if self.alone is not None and self._unfit is None:
            self._starting = iterator._num_workers
            self._fetcher = dataloader._DatasetKind.create_fetcher(
                iterator._dataset_kind, iterator._dataset, iterator._auto_collation, iterator._collate_fn, iterator._drop_last
            )

    def _next_data(self) -> Any:
        if self._unfit is not None:
            raise self._unfit
        iterator: Any = self._iterator()
        if self.alone is not None:
            return self._own(iterator)
        waits, begin = self._waits, time.perf_counter_ns()
        try:
            data = type(iterator)._next_data(iterator)
        except StopIteration:
            raise
        except Exception as err:
            self._failed = type(err).__name__  # workers that were killed could not write it
            self._tell()
            self._check_sent(err)
            raise
        finally:
            took = time.perf_counter_ns() - begin
            waits.wait, waits.first = waits.wait + took, waits.first or took
        self._delivered, waits.batches = self._delivered + 1, waits.batches + 1
        self._tell()
        return data

    def _own(self, iterator: Any) -> Any:
        """Returns the next batch, which the loop reads by itself."""
        while self._starting:  # a signal to the whole job would end a worker that has not begun
            data = iterator._get_data()[1]
            self._starting -= 1
            if isinstance(data, ExceptionWrapper):  # of worker_init_fn
                data.reraise()
        try:
            return self._fetcher.fetch(None)
        except StopIteration:
            if not iterator._persistent_workers:
                iterator._shutdown_workers()
            raise

    def _check_sent(self, err: Exception) -> None:
        """Raises ConfigError if the loop failed because a batch cannot be sent."""
        for worker in range(getattr(self._iterator(), "_num_workers", 0)):
            note = self._board.read(notes.left_by(self._ticket, worker)) or {}
            if note.get("ticket") == self._ticket and "unsent" in note:
                raise ConfigError(
                    f"worker {worker} cannot send what `map` returned: {note['unsent']}: return a dict of tensors, arrays, lists, numbers"
                    " and text"
                ) from err

    def _tell(self) -> None:
        """Records the position of the loop, and keeps the records of a few others."""
        known = self._board.loops
        known.pop((self._ticket, self._turn), None)
        known[self._ticket, self._turn] = Got(self._delivered, self._failed, self._order, self._asked, self._resumed, self._after)
        if len(known) > 8:
            del known[next(iter(known))]
        self._board.write(notes.LOOPS, {"loops": [[*which, *got] for which, got in known.items()]})


class After(NamedTuple):
    """The iteration that another one follows, as it was when the other was asked for."""

    ticket: int
    turn: int
    batches: int  # that its loop had received
    failed: str
    live: bool  # whether its iterator could still go on


class Got(NamedTuple):
    """What a loop received of an iteration."""

    batches: int
    failed: str  # the error it failed with, or ""
    order: int  # in which the owner began its iterations
    asked: int  # the number of the owner's request that it begins after
    resumed: bool  # whether it begins where a StatefulDataLoader says
    after: Optional[After]  # the iteration since this request that it follows


def got(board: Board, ticket: int, turn: int) -> Optional[Got]:
    """Returns what the loop over an iteration received; None if unknown."""
    for one, other, batches, failed, order, asked, resumed, after in (board.read(notes.LOOPS) or {"loops": []})["loops"]:
        if (one, other) == (ticket, turn):
            return Got(batches, failed, order, asked, resumed, None if after is None else After(*after))
    return None


def asked(board: Board) -> int:
    """Returns the number of the owner's latest request."""
    return int((board.read(notes.MAIN) or {}).get("asked", 0))


def latest(board: Board) -> Optional[After]:
    """Returns, in the owner, what an iteration that begins now follows: of the iterations since the
    latest request, the one that began last among those of which a loop received a batch, or whose
    place is not the one of the request."""
    now = asked(board)
    known = sorted(((key, one) for key, one in board.loops.items() if one.asked == now), key=lambda item: -item[1].order)
    for (ticket, turn), one in known:
        if one.batches or one.failed or one.resumed:
            iterator = _iterators.get((board.secret, ticket))
            dead = [str(i) for i, w in enumerate(getattr(iterator, "_workers", ())) if w.exitcode]
            return After(ticket, turn, one.batches, one.failed or (f"worker {dead[0]} was killed" if dead else ""), iterator is not None)
    return known[-1][1].after if known else None


def above(dataset: object) -> "Optional[Tuple[Any, Optional[Dict[str, Any]]]]":
    """Returns the iterator of a DataLoader that is starting a worker for the data set, from the
    stack, or None. If a StatefulDataLoader is resuming, it also returns how many batches the
    iterator skips by itself (``passes``), and whether its loop had finished (``finished``)."""
    iterator = None
    for method, owner in callers("torch", "torchdata"):
        if iterator is None and method == "__init__" and isinstance(owner, dataloader._BaseDataLoaderIter):
            outer = owner._dataset
            if outer is not dataset and all(v is not dataset for v in getattr(outer, "__dict__", {}).values()):
                return None  # of another data set
            iterator = owner
        elif iterator is not None and isinstance(owner, dataloader.DataLoader):
            state = getattr(owner, "next_iter_state", None)
            if not isinstance(state, dict) or "_steps_since_snapshot" not in state:
                break
            return iterator, {"passes": int(state["_steps_since_snapshot"]), "finished": bool(state.get("_iterator_finished"))}
    return None if iterator is None else (iterator, None)


def attached(iterator: Any) -> Optional[Loop]:
    """Returns the Loop that counts the batches of the iterator; None if there is none."""
    loop = getattr(vars(iterator).get("_next_data"), "__self__", None)
    return loop if isinstance(loop, Loop) else None
