"""Worker 0's part in sharing one reader: a thread that owns the Loader and sends its batches to all
workers, including its own.

The DataLoader asks its workers in turn, so worker k of n delivers batches k, k+n, k+2n, ... of the
iteration. A worker requests its next batch when it needs one. The relay takes batches from the
Loader in order, up to the highest number requested, and keeps those whose worker has not asked yet.
The DataLoader never has more than ``prefetch_factor`` batches in flight for each worker, which
limits them.

The progress of an iteration is on the board, so that the next one begins in the right place, in
this process or another.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from multiprocessing import util
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from .._system import close_listener, started
from .._wire import messages as wire
from ..batch import Batch
from ..errors import ClosedError, ConfigError
from ..loader import Loader
from ..stats import Stats
from . import notes
from .loops import Got, asked, got
from .loops import latest as following
from .notes import Board


def begin_at(board: Board, me: "Optional[Tuple[int, int]]" = None) -> "Tuple[int, Optional[Dict[str, Any]]]":
    """Returns where an iteration begins: the number of the owner's request that it begins after,
    and a state, None at the very beginning. me: the ticket and the number of the iteration; None in
    the owner, for one that begins now.

    It follows the iteration that had begun when the owner asked for it, and of which a loop had
    received a batch. What happens until its workers have started makes no difference.
    """
    mine = None if me is None else got(board, *me)
    now = asked(board) if mine is None else mine.asked
    states = restored(board)
    if states:
        return now, strip(latest(states))
    last, loop, live = _before(board, now, mine)
    if last is None:
        main = board.read(notes.asked_by(now)) or {}
        return now, main.get("state")
    if last["batches"] == 0:
        return now, last["place"]
    if loop is None:
        if last["ended"]:
            return now, last["place"]
    elif loop.batches == last["batches"] and (last["ended"] or last["last"]):
        return now, last["place"]
    elif loop.batches == 0 and "began" in last:
        return now, last["began"]  # no loop has received a batch of it
    why = last["broken"] or (loop.failed if loop else "") or ("" if last["ended"] or live else _missing(board, last))
    if why:
        raise ConfigError(
            f"the last iteration failed in epoch {last['epoch']} ({why}), and its workers had read ahead of your loop: set the place"
            " with dataset.load_state_dict(batch.state_dict()) of your last batch, or with dataset.set_epoch"
        )
    return now, {**last["place"], "begin": last["epoch"] + 1}


def _before(board: Board, now: int, mine: Optional[Got]) -> "Tuple[Optional[Dict[str, Any]], Any, bool]":
    """Returns the iteration before the one that mine is of, how far its loop was, and whether that
    could still go on; None if there was none since the owner's request ``now``."""
    if mine is None and board.owner != os.getpid():  # the loop was not found
        last = newest(board, now)
        return last, None if last is None else got(board, last["ticket"], last["iteration"]), False
    after = following(board) if mine is None else mine.after
    begun = _iterations(board, now)
    last = None if after is None else next((one for one in begun if (one["ticket"], one["iteration"]) == after[:2]), None)
    unseen = [one for one in begun if one["turn"] > (last["turn"] if last else 0) and got(board, one["ticket"], one["iteration"]) is None]
    if unseen and (last is not None or after is None):
        return max(unseen, key=_age), None, False
    if after is not None and last is None:
        raise ConfigError(
            "it is not known where the last iteration ended: set the place with dataset.load_state_dict(batch.state_dict()) of your last"
            " batch, or with dataset.set_epoch"
        )
    return last, after, after is not None and after.live


def _iterations(board: Board, now: int) -> "List[Dict[str, Any]]":
    """Returns the latest iteration of each iterator since a request of the owner."""
    read = (board.read(notes.iteration_of(slot)) for slot in range(notes.SLOTS))
    return [one for one in read if one is not None and one["asked"] == now]


def _age(iteration: Mapping[str, Any]) -> "Tuple[int, int]":
    return iteration["turn"], iteration["ticket"]


def newest(board: Board, now: int) -> Optional[Dict[str, Any]]:
    """Returns the iteration that began last since a request of the owner."""
    return max(_iterations(board, now), key=_age, default=None)


def upcoming(loader: Loader) -> Dict[str, Any]:
    """Returns the state that a loader's next iteration begins with."""
    return {**loader.state_dict(), "begin": loader._next_epoch()}


def left(board: Board, last: Dict[str, Any]) -> bool:
    """Whether an iteration failed, or its loop ended before the last batch."""
    loop = got(board, last["ticket"], last["iteration"])
    if loop is None:
        return bool(last["broken"] or (last["batches"] and not last["ended"]))
    if loop.batches == last["batches"]:
        return bool(last["broken"] or (loop.batches and not last["ended"] and not last["last"]))
    return bool(last["broken"] or loop.failed or loop.batches)


def _missing(board: Board, last: Dict[str, Any]) -> str:
    """Returns which worker of an iteration that was left did not exit normally."""
    if last["pid"] == os.getpid():
        return ""  # they are still running
    if not last["closed"] and started(last["pid"]) != last["started"]:
        return "worker 0 was killed"
    for worker in range(1, last["workers"]):
        note = board.read(notes.left_by(last["ticket"], worker))
        if worker not in last["joined"] and (note is None or note["ticket"] != last["ticket"]):
            return f"worker {worker} was killed"
    return ""


def latest(states: "List[Dict[str, Any]]") -> Dict[str, Any]:
    """Returns the workers' state of the batch delivered last, or worker 0's before the first
    batch."""
    delivered = [s for s in states if s["sequence"] is not None]
    return max(delivered, key=lambda s: int(s["sequence"])) if delivered else next(s for s in states if s["worker"] == 0)


def restored(board: Board) -> "List[Dict[str, Any]]":
    """Returns the states that workers were given and that no iteration has begun with."""
    now = turn(board)
    out: List[Dict[str, Any]] = []
    while True:
        note = board.read(notes.restored_by(len(out)))
        if note is None or note["turn"] != now:
            return out
        out.append(note["state"])


def turn(board: Board) -> List[int]:
    """Returns what identifies an iteration: the number of the owner's requests, and of the
    iterations since."""
    now = asked(board)
    last = newest(board, now)
    return [now, last["turn"] if last is not None else 0]


class _Peer:
    """A worker, as the relay sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.outlet = wire.Outlet(sock)
        self.id = -1  # until it has joined
        self.pid = 0
        self.iteration = 0
        self.state: Optional[Dict[str, Any]] = None
        self.asked = 0  # batches requested in this iteration
        self.number = 0  # the batch it is waiting for
        self.waits = False
        self.told = False  # whether it knows that the iteration has ended


class Relay:
    """The thread. It ends with the process."""

    def __init__(self, board: Board, loader: Loader, workers: int, seed: int) -> None:
        self._board, self._loader, self._workers, self._seed = board, loader, workers, seed
        loader._map = None  # each worker calls it
        loader._whole = True
        self._listener, name = wire.listen()
        self._peers: Dict[int, _Peer] = {}  # by descriptor
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._iteration = 0
        self._begun = False
        self._lock = threading.Lock()
        self._counted = Stats()  # of the Loader, as written to the board
        self._due = 0.0
        self._uncounted = False
        self._note: Dict[str, Any] = {}  # as written to the board
        self._left = False
        self._clear()
        self._address = {"ticket": board.ticket, "name": name, "workers": workers, "seed": seed}
        self._head = board.write(notes.relay_of(board.ticket), self._address)
        threading.Thread(target=self._run, name="shardtool-relay", daemon=True).start()
        util.Finalize(self, self._leave, exitpriority=10)

    def _clear(self) -> None:
        self._begun = False
        self._first = 0  # the worker that delivers batch 0
        self._base = 0  # sequence number of batch 0
        self._through: Set[int] = set()  # workers that know the end, or have ended
        self._ready: Dict[int, Batch] = {}
        self._taken = 0
        self._handed = 0
        self._end: Optional[int] = None
        self._epoch_from = 0  # the first batch of the loop's epoch
        self._passes: Optional[int] = None  # batches that the DataLoader skips before its loop receives one
        self._error: Optional[BaseException] = None  # raised instead of batch _taken

    def _run(self) -> None:
        try:
            self._serve()
        finally:  # no worker may wait for a thread that has ended
            for peer in self._peers.values():
                peer.sock.close()
            close_listener(self._listener)

    def _serve(self) -> None:
        while True:
            while self._answer():
                pass
            heard = self._selector.select(0.1 if self._uncounted else None)
            if not heard:
                self._count()
            for key, _ in heard:
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._hear(self._peers[key.fd])

    # Messages from workers

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if not wire.ours(sock):
            sock.close()
            return
        self._peers[sock.fileno()] = _Peer(sock)
        self._selector.register(sock, selectors.EVENT_READ)

    def _hear(self, peer: _Peer) -> None:
        try:
            message = wire.receive(peer.sock)
        except wire.Gone:
            if peer.id >= 0 and peer.iteration == self._iteration:
                self._break(f"worker {peer.id}, process {peer.pid}, was killed", self._taken)
            self._drop(peer)
            return
        what = message.get("what")
        if what == "join" and message.get("secret") == self._board.secret:
            self._join(peer, message)
        elif peer.id < 0:
            self._drop(peer)
        elif what == "next":
            peer.outlet.freed(message["freed"])
            peer.number = peer.asked * self._workers + (peer.id - self._first) % self._workers
            peer.asked, peer.waits = peer.asked + 1, True
        elif what == "failed":
            self._break(f"{message['error']} in worker {peer.id}", peer.number)
        elif what == "bye":
            self._drop(peer)

    def _join(self, peer: _Peer, message: Dict[str, Any]) -> None:
        ident = int(message["id"])
        if message["seed"] != self._seed or any(p.id == ident and p is not peer for p in self._peers.values()):
            self._say(peer, {"what": "refused"})  # a worker of another iterator
            return
        peer.id, peer.pid, peer.iteration, peer.state = ident, message["pid"], message["iteration"], message["state"]
        peer.asked, peer.waits, peer.told = 0, False, False
        if peer.iteration > self._iteration:
            self._iteration = peer.iteration
            self._clear()
        elif self._note and ident not in self._note["joined"]:
            self._mark(joined=[*self._note["joined"], ident])
        self._say(peer, {"what": "welcome", "iteration": peer.iteration})

    def _drop(self, peer: _Peer) -> None:
        if peer.id > 0 and peer.iteration == self._iteration:
            self._through.add(peer.id)
        self._selector.unregister(peer.sock)
        del self._peers[peer.sock.fileno()]
        peer.sock.close()

    def _say(self, peer: _Peer, message: Dict[str, Any]) -> None:
        with contextlib.suppress(wire.Gone):  # the relay drops the worker when it reads the end of its connection
            wire.send(peer.sock, message)

    # Answers to workers

    def _answer(self) -> bool:
        """Answers the workers that can be answered. Returns whether it did something, so that
        others may be answered now."""
        present = [p for p in self._peers.values() if p.iteration == self._iteration and p.id >= 0]
        if not self._begun and not self._begin(present):
            return False
        done = False
        for peer in present:
            if peer.waits:
                done = self._give(peer) or done
            elif self._end is not None and not peer.told and peer.id != 0 and self._next_of(peer) >= self._end:
                peer.told = done = True  # now, because this process may end
                self._through.add(peer.id)
                self._say(peer, {"what": "end", "iteration": self._iteration})
        for peer in self._peers.values():
            if peer.waits and peer.iteration < self._iteration:
                peer.waits = False
                self._say(peer, {"what": "end", "iteration": peer.iteration})
        if self._error is None and self._end is None and any(p.waits and p.number >= self._taken for p in present):
            self._take()
            return True
        return done

    def _next_of(self, peer: _Peer) -> int:
        return peer.asked * self._workers + (peer.id - self._first) % self._workers

    def _give(self, peer: _Peer) -> bool:
        number = peer.number
        batch = self._ready.pop(number, None)
        if batch is not None:
            self._handed += 1
            place = {"sequence": self._base + number, "last": self._epoch.epoch.last and number + 1 == self._taken}
            with contextlib.suppress(wire.Gone):
                peer.outlet.send(place, batch, self._loader._asked)
        elif self._error is not None:
            self._say(peer, {"what": "error", **wire.pack_error(self._error)})
        elif self._end is not None and number >= self._end:
            # When worker 0 reports the end, the DataLoader may end this process. So it waits until
            # all workers have their batches, including workers that have not joined yet: the
            # DataLoader asks each of them.
            if peer.id == 0 and (self._handed < self._end or len(self._through) < self._workers - 1):
                return False
            peer.told = True
            if peer.id > 0:
                self._through.add(peer.id)
            self._say(peer, {"what": "end", "iteration": self._iteration})
        else:
            return False
        peer.waits = False
        return True

    def _begin(self, present: List[_Peer]) -> bool:
        """Begins the iteration, if its place is known."""
        zero = next((p for p in present if p.id == 0), None)
        if zero is None or (zero.state is not None and len(present) < self._workers):
            return False  # a state was loaded, into all workers
        self._begun = True
        pid = os.getpid()
        try:
            last = self._note
            if zero.state is None:
                now, place = begin_at(self._board, (self._board.ticket, self._iteration))
            else:
                now, place = turn(self._board)[0], self._restore([p.state for p in present if p.state is not None])
            before = newest(self._board, now)
            note = {
                "pid": pid, "started": started(pid), "ticket": self._board.ticket, "workers": self._workers,
                "joined": [p.id for p in present], "asked": now, "turn": 1 + (before["turn"] if before else 0),
                "iteration": self._iteration, "batches": 0, "last": False, "broken": "", "closed": False,
            }  # fmt: skip
            # Another iterator may have this one's notes by now.
            self._board.write(notes.relay_of(self._board.ticket), self._address)
            if self._end is not None:
                self._mark(**note, place=place, epoch=0, ended=True)
                return True
            # In the same process, the Loader continues by itself and has read ahead, unless workers
            # took more than the loop received.
            live = (
                zero.state is None and last and last["asked"] == now and self._loader._run is not None
                and place == upcoming(self._loader)
            )  # fmt: skip
            if not live and place is not None:
                self._loader.load_state_dict(place)
            main = self._board.read(notes.MAIN) or {}
            if main.get("ranks") and self._loader._ranks[0] is None:
                self._loader._ranks = tuple(main["ranks"])
            self._epoch = iter(self._loader)
            place = self._loader.state_dict()
            self._mark(**note, began=place, place=place, epoch=self._loader.epoch, ended=False)
        except Exception as err:
            self._error = err
        return True

    def _restore(self, states: "List[Dict[str, Any]]") -> Dict[str, Any]:
        """Returns the place after the last batch in the states; its worker delivered the batch
        before."""
        last = latest(states)
        if last["sequence"] is not None:
            self._first, self._base = (last["worker"] + 1) % self._workers, last["sequence"] + 1
        resumes = self._board.read(notes.resumes_of(self._board.ticket)) or {}
        told = resumes.get("ticket") == self._board.ticket and self._iteration == 1
        if told and not resumes["finished"]:
            self._passes = resumes["passes"]  # an epoch without batches would be an extra one for the loop
        elif last["ended"]:
            self._end = 0
        for p in self._peers.values():  # workers that asked already
            p.number = (p.id - self._first) % self._workers
        return strip(last)

    def _take(self) -> None:
        try:
            self._ready[self._taken] = batch = next(self._epoch)
        except StopIteration:
            self._count()
            if self._passes is not None and self._taken == self._passes > 0:
                # The skipped batches were the rest of their epoch.
                self._passes, self._epoch, self._epoch_from = None, iter(self._loader), self._taken
                return
            self._end = self._taken
            self._mark(place=self._loader.state_dict(), ended=True)
        except Exception as err:
            self._error = err
            self._count()
            self._break(type(err).__name__, self._taken)
        else:
            self._uncounted = True
            if time.monotonic() >= self._due:
                self._count()
            self._taken += 1
            epoch = batch.epoch if self._taken == self._epoch_from + 1 else None
            self._mark(place=self._loader.state_dict(), epoch=epoch, batches=self._taken, last=self._epoch.epoch.last)

    # The board

    def _count(self) -> None:
        """Adds the Loader's statistics since the last time."""
        with self._lock:
            stats = self._loader.stats()
            self._board.add(notes.STATS, stats - self._counted)
            self._counted, self._due, self._uncounted = stats, time.monotonic() + 0.1, False

    def _mark(self, **facts: Any) -> None:
        with self._lock:
            if not self._left:
                self._note.update({k: v for k, v in facts.items() if v is not None})
                self._write()

    def _write(self) -> None:
        """Writes the note of the iteration, unless a later iterator has its place."""
        if self._board.begins(notes.relay_of(self._board.ticket), self._head):
            self._board.write(notes.iteration_of(self._board.ticket), self._note)

    def _break(self, why: str, after: int) -> None:
        """Ends the iteration after a batch that was not delivered."""
        if self._begun and self._note:
            self._mark(broken=why)
        if self._error is None:
            self._error = ClosedError(f"this iteration has ended: {why}")
        self._ready = {number: batch for number, batch in self._ready.items() if number < after}

    def _leave(self) -> None:
        """Runs when the process exits normally."""
        self._count()
        with self._lock:
            self._left = True
            if self._note:
                self._note["closed"] = True
                self._write()


def strip(state: "Mapping[str, Any]") -> Dict[str, Any]:
    """Returns the members of a worker's state that a Loader has."""
    return {name: state[name] for name in ("version", "checkpoint", "ledger", "begin")}
