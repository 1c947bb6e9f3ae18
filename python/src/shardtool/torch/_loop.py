"""What the loop over a DataLoader with workers has got, as the process sees that has the loop.

The workers read ahead, so they cannot know it, and the DataLoader tells nobody. But its iterator starts the workers in its constructor, and
then the data set, which goes to them, finds it further up on the stack. From then on each batch that the iterator hands out is
counted. Where the iterator is not found, nothing is counted, and all else works as well as it can without.
"""

from __future__ import annotations

import sys
import time
import weakref
from typing import Any, Dict, NamedTuple, Optional, Tuple

from torch.utils.data import dataloader

from ..errors import ConfigError
from . import _board as notes
from ._board import Board


class Waits:
    """What the loops over a data set have waited for in DataLoaders with workers."""

    def __init__(self) -> None:
        #: When the first of them began, of time.perf_counter_ns; 0: none has.
        self.begun = 0
        #: Batches that they got, and nanoseconds that they waited for these, and for the first.
        self.batches = self.wait = self.first = 0


class Loop:
    """The iterations of one iterator of a DataLoader."""

    def __init__(self, board: Board, waits: Waits, iterator: Any, unfit: str = "") -> None:
        self._board = board
        self._unfit = unfit  # why it must not deliver anything
        self._waits = waits
        self._iterator = weakref.ref(iterator)
        self._ticket = board.ticket  # that of its worker 0
        self._turn = self._delivered = 0
        self._failed = ""
        waits.begun = waits.begun or time.perf_counter_ns()
        # On the object, so that others of its class are left alone. It must not refer to itself: torch ends workers with the iterator.
        iterator._next_data, iterator._reset = self._next_data, self._reset

    def _reset(self, *args: Any, **options: Any) -> Any:
        self._turn, self._delivered, self._failed = self._turn + 1, 0, ""
        self._tell()
        iterator = self._iterator()
        return type(iterator)._reset(iterator, *args, **options)  # type: ignore[union-attr]

    def _next_data(self) -> Any:
        if self._unfit:
            raise ConfigError(self._unfit)
        iterator, waits, begin = self._iterator(), self._waits, time.perf_counter_ns()
        try:
            data = type(iterator)._next_data(iterator)  # type: ignore[union-attr]
        except StopIteration:
            raise
        except Exception as err:
            self._failed = type(err).__name__  # workers that have ended could not write it down
            self._tell()
            raise
        finally:
            took = time.perf_counter_ns() - begin
            waits.wait, waits.first = waits.wait + took, waits.first or took
        self._delivered, waits.batches = self._delivered + 1, waits.batches + 1
        self._tell()
        return data

    def _tell(self) -> None:
        """Writes down where the loop is, beside what is known of a few iterations before."""
        known = self._board.loops
        known.pop((self._ticket, self._turn), None)
        known[self._ticket, self._turn] = Got(self._delivered, self._failed)
        if len(known) > 4:
            del known[next(iter(known))]
        self._board.write(notes.LOOPS, {"loops": [[*which, *got] for which, got in known.items()]})


class Got(NamedTuple):
    """How many batches of an iteration its loop has got, and what it failed with; "": it did not."""

    batches: int
    failed: str


def got(board: Board, ticket: int, turn: int) -> Optional[Got]:
    """What the loop over an iteration has got; None if that is not known."""
    for one, other, batches, failed in (board.read(notes.LOOPS) or {"loops": []})["loops"]:
        if (one, other) == (ticket, turn):
            return Got(batches, failed)
    return None


def above(dataset: object) -> "Optional[Tuple[Any, Optional[Dict[str, Any]]]]":
    """The iterator of a DataLoader of the data set that is starting a worker, further up on this stack, if there is one; and, if
    it is a StatefulDataLoader's that resumes, how many batches it passes over by itself (``passes``), and whether its loop had come to its
    end (``finished``)."""
    frame = sys._getframe(1)
    while frame is not None:
        iterator = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        if isinstance(iterator, dataloader._BaseDataLoaderIter):
            outer = iterator._dataset
            if outer is not dataset and all(v is not dataset for v in getattr(outer, "__dict__", {}).values()):
                return None  # of another
            state = frame.f_locals.get("next_iter_state")
            if not isinstance(state, dict) or "_steps_since_snapshot" not in state:
                return iterator, None
            return iterator, {"passes": int(state["_steps_since_snapshot"]), "finished": bool(state.get("_iterator_finished"))}
        frame = frame.f_back  # type: ignore[assignment]
    return None


def attached(iterator: Any) -> bool:
    """Whether a Loop counts the iterator's batches."""
    return isinstance(getattr(vars(iterator).get("_next_data"), "__self__", None), Loop)
