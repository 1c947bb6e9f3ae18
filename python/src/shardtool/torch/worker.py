"""A worker's end of the relay: it receives the batches that this worker delivers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing import queues, util
from typing import Any, Dict, Mapping, Optional

from .._wire import messages as wire
from ..batch import Batch
from ..errors import CheckpointError, ClosedError, ConfigError, ServerDiedError
from ..loader import Loader
from . import notes
from .lent import Lending
from .notes import Board
from .relay import Relay, begin_at, turn

#: Seconds to look for worker 0, which may import a lot before it begins.
PATIENCE = 300.0
#: Seconds after which a worker also asks a worker 0 whose ticket is further away.
DOUBT = 2.0


class Tap:
    """The relay's client in a worker process, for one thread at a time."""

    def __init__(self, board: Board, loader: Loader, ident: int, workers: int, seed: int) -> None:
        parent = multiprocessing.parent_process()
        if parent is None or parent.pid != board.owner:
            raise ConfigError("the workers of a DataLoader must be children of the process that iterates it")
        self.pid = os.getpid()
        _leave_signals_to_the_loop()
        if os.getppid() != parent.pid:  # a fork server, which lives as long as its processes
            threading.Thread(target=_end_after, args=(parent,), name="shardtool-parent", daemon=True).start()
        util.Finalize(self, self._bye, exitpriority=10)
        queues.Queue._on_queue_feeder_error = staticmethod(self._unsent)  # type: ignore[attr-defined]
        self._parent = parent
        self._board, self._loader, self._id, self._workers = board, loader, ident, workers
        self._seed = seed  # which the workers of an iterator have in common
        #: Sends batches to the loop, if the loop was found.
        self.lending: Optional[Lending] = None
        if board.lender is not None:
            with contextlib.suppress(OSError):
                self.lending = Lending(board.lender, ident)
        #: Whether the loop reads by itself.
        self.idle = board.alone == seed
        self._relay: Optional[Relay] = None
        self._sock: Optional[socket.socket] = None
        self._inlet: Optional[wire.Inlet] = None  # of the socket
        self._iteration = 0
        self._joined = False
        self._ended = False
        self._loaded: Optional[Dict[str, Any]] = None  # the state for the next iteration
        self._from: Optional[Dict[str, Any]] = None  # the state that this iteration began with
        self._state: Optional[Dict[str, Any]] = None
        self._sequence = 0  # of the latest batch
        self._last = False  # whether that batch is the last of its iteration

    # The state of this worker, for StatefulDataLoader

    def state_dict(self) -> Dict[str, Any]:
        """Returns the place after the batch that this worker delivered last, and the number of that
        batch."""
        if self._loaded is not None:
            return self._loaded
        if self._state is not None:
            return self._state
        # Before the first batch, worker 0 answers for all.
        place = begin_at(self._board, (self._board.ticket, self._iteration))[1] if self._id == 0 and not self._joined else None
        fresh = {"version": 1, "checkpoint": None, "ledger": None, "begin": None}
        return {**(place or fresh), "worker": self._id, "sequence": None, "ended": False}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a state of the worker with the same number. All workers load theirs."""
        if "sequence" not in state or state.get("worker") != self._id:
            raise CheckpointError(
                f"not a state of worker {self._id} of a DataLoader: load the whole state into the StatefulDataLoader, with the same"
                " num_workers"
            )
        self._loaded = dict(state)

    def delivered(self, batch: Batch) -> None:
        """Records that a batch was delivered."""
        self._state = {**batch.state_dict(), "worker": self._id, "sequence": self._sequence, "ended": self._last}

    # Batches

    def begin(self) -> int:
        """Begins an iteration, without waiting."""
        self._iteration += 1
        self._joined = self._ended = False
        self._state = self._from = self._loaded
        self._loaded = None
        if self._from is not None:  # for the next iteration, if this one requests no batch
            self._board.write(notes.restored_by(self._id), {"turn": turn(self._board), "state": self._from})
        return self._iteration

    def next(self, iteration: int) -> Optional[Batch]:
        """Returns the next batch of this worker; None at the end."""
        if iteration != self._iteration:
            raise ClosedError("this iteration has ended: another one began")
        if self._ended:
            return None
        message = self._ask()
        if message["what"] == "error":
            raise wire.unpack_error(message)
        if message["what"] == "end":
            self._ended = True
            self._state = {**self.state_dict(), "ended": True}
            return None
        assert self._inlet is not None
        self._sequence, self._last = message["sequence"], message["last"]
        batch = self._inlet.batch(message)
        self._loader._leave_out(batch)
        return batch

    def _ask(self) -> Dict[str, Any]:
        try:
            if not self._joined:
                self._join()
            assert self._sock is not None and self._inlet is not None
            if not wire.waiting(self._sock):
                if self.lending is not None:
                    self.lending.settle()
                with contextlib.suppress(wire.Gone):  # it may have reported the end before
                    wire.send(self._sock, {"what": "next", "freed": self._inlet.freed()})
            while True:
                message = self._inlet.receive()
                if message.get("iteration", self._iteration) == self._iteration:
                    return message
        except wire.Gone:
            raise ServerDiedError(f"worker 0 of the DataLoader, which also reads for worker {self._id}, has ended") from None

    def failed(self, err: BaseException) -> None:
        """Reports that the latest batch is not delivered, so that no batch after it is."""
        if self._sock is not None:
            with contextlib.suppress(wire.Gone):
                wire.send(self._sock, {"what": "failed", "error": type(err).__name__})

    def _join(self) -> None:
        if self._id == 0 and self._relay is None:
            self._relay = Relay(self._board, self._loader, self._workers, self._seed)
        if self._sock is not None:
            if not self._hello(self._sock):
                raise wire.Gone
        else:
            self._sock = self._find()
            self._inlet = wire.Inlet(self._sock, self._loader._asked)
        self._joined = True

    def _hello(self, sock: socket.socket) -> bool:
        me = {"id": self._id, "pid": self.pid, "iteration": self._iteration, "state": self._from, "seed": self._seed}
        wire.send(sock, {"what": "join", "secret": self._board.secret, **me})
        while True:
            message = wire.receive(sock)
            if message["what"] == "refused":
                return False
            if message["what"] == "welcome" and message["iteration"] == self._iteration:
                return True

    def _find(self) -> socket.socket:
        """Connects to worker 0 of this iterator. The board counts the processes that receive it, so
        the difference of the tickets is the number of this worker. It is larger if other threads
        started processes meanwhile; then it is the nearest worker 0 with the same seed that has no
        worker of this number."""
        first = time.monotonic()
        while True:
            waited = time.monotonic() - first
            zero = self._board.ticket - self._id
            for ticket in range(zero, zero - (notes.SLOTS if waited > DOUBT else 1), -1):
                sock = self._knock(ticket)
                if sock is not None:
                    return sock
            if not self._parent.is_alive():
                raise ClosedError("the process that iterates the DataLoader has ended")
            if waited > PATIENCE:
                raise ServerDiedError(
                    f"worker 0 of the DataLoader, which also reads for worker {self._id}, did not begin within {PATIENCE:.0f} s"
                )
            time.sleep(0.005)

    def _knock(self, ticket: int) -> Optional[socket.socket]:
        """Connects to the worker 0 of a ticket, if this worker belongs to it."""
        said = self._board.read(notes.relay_of(ticket))
        if said is None or (said["ticket"], said["workers"], said["seed"]) != (ticket, self._workers, self._seed):
            return None
        sock = wire.connect(said["name"])
        if sock is not None:
            with contextlib.suppress(wire.Gone):
                if wire.ours(sock) and self._hello(sock):
                    return sock
            sock.close()
        return None

    def _unsent(self, err: Exception, what: Any) -> None:
        """Runs in place of what multiprocessing does if a worker's result cannot be pickled, which
        is to drop it: the loop would wait for it."""
        traceback.print_exception(type(err), err, err.__traceback__)
        if type(what) is tuple and what and type(what[0]) is int:  # torch's number of the batch
            zero = self._board.ticket - self._id
            self._board.write(notes.left_by(zero, self._id), {"ticket": zero, "unsent": f"{type(err).__name__}: {err}"})
            sys.stderr.flush()
            os._exit(1)

    def _bye(self) -> None:
        """Runs when the process exits normally."""
        if self._sock is None:
            zero = self._board.ticket - self._id
            self._board.write(notes.left_by(zero, self._id), {"ticket": zero})
            return
        with contextlib.suppress(wire.Gone):
            wire.send(self._sock, {"what": "bye"})


def _end_after(parent: Any) -> None:
    """Ends this worker after the process with the loop, however that ends. torch only observes the
    process that forked the worker."""
    parent.join()
    os._exit(1)


def _leave_signals_to_the_loop() -> None:
    """Ignores, in this worker, signals sent to a whole job: Ctrl-C, and those by which a scheduler
    announces the end.

    The process with the loop decides what they mean. If it continues, to save, it needs its
    workers. If it ends, it ends them, and must not find a lock held by a worker that was
    interrupted, such as the lock of the event that stops them. Handlers that a program installed
    stay.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGUSR1, signal.SIG_DFL), (signal.SIGUSR2, signal.SIG_DFL)):
        if signal.getsignal(number) == usual:
            signal.signal(number, _pass)  # not SIG_IGN, which programs that map starts would inherit


def _pass(number: int, frame: object) -> None:
    """Handles a signal by doing nothing."""
