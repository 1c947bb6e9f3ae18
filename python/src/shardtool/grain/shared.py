"""One reader for the workers of ``mp_prefetch``: threads of the process that iterates, and their
clients in the workers.

Worker k of n delivers the batches k, k + n, k + 2n, ... of its rank, so the workers have no part in
the order. A worker asks for its next batch by number, counted from an *origin*: the beginning, or a
state that is not a worker's. The reader goes through the batches in order, and keeps those whose
worker has not asked yet. A worker that asks for a batch which no reader has any more gets another
reader, which begins at the worker's own place: that is slower, and right.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import hmac
import json
import secrets
import socket
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .._read import states
from .._read.arguments import Asked
from .._system import close_listener
from .._wire import messages
from ..batch import Batch
from ..errors import CheckpointError, ServerDiedError
from ..loader import Loader

#: The member of a state that says what a worker delivers next.
PART = "part"

#: Batches for workers that have not asked yet: at least so many for each worker, and bytes.
_KEPT, _KEPT_BYTES = 8, 256 << 20


class Part(NamedTuple):
    """What a worker delivers next."""

    worker: int
    workers: int
    origin: str  #: Identifies the state from which batches are counted.
    number: int  #: Of batches before the checkpoint of the state.
    next: int  #: The number of the batch.


def part_of(state: Dict[str, Any]) -> Optional[Part]:
    """Returns the part in a state; None if it has none, or that of another version."""
    said = state.get(PART)
    return Part(**said) if isinstance(said, dict) and said.keys() == set(Part._fields) else None


def origin_of(state: Dict[str, Any]) -> str:
    """Identifies a state."""
    text = json.dumps([state["checkpoint"], state["begin"]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Passes(Loader[Any]):
    """A Loader whose iterations Grain joins."""

    _quiet = True


class Reader:
    """The batches of all epochs, in this process."""

    def __init__(self, asked: Asked, ranks: Tuple[Optional[int], Optional[int]], samples: bool, whole: bool = False) -> None:
        self._samples = samples
        self.loader: Passes = Passes.__new__(Passes)
        self.loader._begin_with(dataclasses.replace(asked, map=None, ranks=ranks))  # each process calls map itself
        self.loader._whole = whole
        self._pass: Any = None

    def start(self) -> None:
        """Starts to read."""
        if self._pass is None:
            self._pass = iter(self.loader)

    def next(self) -> Batch:
        """Returns the next batch. After an error, the next call continues after the last batch."""
        while True:
            self.start()
            try:
                batch: Batch = next(self._pass)
            except StopIteration:
                if self._pass.epoch.delivered == 0:
                    raise
                self._pass = None  # the next epoch
                continue
            except Exception:
                self._pass = None
                raise
            if self._samples and batch.size == 0:
                continue  # an epoch ended, and other ranks have its last samples
            return batch

    def state(self) -> Dict[str, Any]:
        """Returns the place after the last batch."""
        return self.loader.state_dict()

    def load(self, state: Dict[str, Any]) -> None:
        """Continues at a place."""
        self._pass = None
        self.loader.load_state_dict(state)

    def close(self) -> None:
        """Ends the child process."""
        self.loader.close()


class _Stream:
    """A reader with the batches that workers have not asked for yet."""

    def __init__(self, reader: Reader, part: Part) -> None:
        self.reader, self.origin = reader, part.origin
        self.users: Set[int] = set()  # the numbers of workers that it reads for
        self.lock = threading.Lock()
        self.read = part.number  # the number of the batch that it reads next
        self.most = _KEPT * part.workers
        self._kept: "collections.OrderedDict[int, Batch]" = collections.OrderedDict()
        self._bytes = 0

    def has(self, part: Part) -> bool:
        """Whether it is for the batches of a part."""
        with self.lock:
            return part.origin == self.origin and (part.next in self._kept or self.read <= part.next <= self.read + self.most)

    def take(self, number: int) -> Optional[Batch]:
        """Returns a batch; None if it is gone. Raises StopIteration at the end."""
        with self.lock:
            while self.read <= number:
                batch = self.reader.next()
                self._kept[self.read] = batch
                self._bytes += len(batch._view())
                self.read += 1
                while len(self._kept) > self.most and self._bytes > _KEPT_BYTES:
                    self._bytes -= len(self._kept.popitem(last=False)[1]._view())
            taken = self._kept.pop(number, None)
            self._bytes -= 0 if taken is None else len(taken._view())
            return taken


class Server:
    """The threads that read for the workers of one data set of a pipeline."""

    def __init__(self, asked: Asked, ranks: Tuple[Optional[int], Optional[int]], samples: bool) -> None:
        self._made = asked, ranks, samples
        self._listener, name = messages.listen()
        self._secret = secrets.token_hex(16)
        #: What a worker needs to connect.
        self.address = name, self._secret
        self._streams: List[_Stream] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="shardtool-grain", daemon=True).start()

    def close(self) -> None:
        """Accepts no more workers."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        close_listener(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), name="shardtool-grain", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        """Serves a worker."""
        stream: Optional[_Stream] = None
        worker, outlet = -1, messages.Outlet(sock)
        try:
            with sock, contextlib.suppress(messages.Gone):
                hello = messages.receive(sock)
                if not messages.ours(sock) or not hmac.compare_digest(str(hello.get("secret")), self._secret):
                    return
                while True:
                    asked = messages.receive(sock)
                    outlet.freed(asked["freed"])
                    part = Part(**asked["part"])
                    worker = part.worker
                    try:
                        while True:
                            if stream is not None and not stream.has(part):
                                gone, stream = stream, None
                                self._leave(gone, worker)
                            stream = stream or self._join(part, asked["state"])
                            batch = stream.take(part.next)
                            if batch is not None:
                                break
                    except StopIteration:
                        messages.send(sock, {"what": "end"})
                    except Exception as err:  # of any kind: the worker raises it
                        messages.send(sock, {"what": "error", **messages.pack_error(err)})
                    else:
                        outlet.send({"layers": stream.reader.loader._layers}, batch, self._made[0])
        finally:
            outlet.close()
            self._leave(stream, worker)

    def _join(self, part: Part, state: Dict[str, Any]) -> _Stream:
        with self._lock:
            # Another worker of this number is of another iterator.
            stream = next((s for s in self._streams if part.worker not in s.users and s.has(part)), None)
            if stream is None:
                reader = Reader(*self._made, whole=True)
                if state["checkpoint"] is not None or state["begin"] is not None:
                    reader.load(state)
                if part.number > 0 and json.loads(state["checkpoint"])["global_batch"] != reader.loader._global_batch():
                    reader.close()
                    raise CheckpointError(
                        "the state is of workers of mp_prefetch that had batches of another size or number of ranks:"
                        " shardtool.grain.restore(directory, iterator) continues it, after a multiple of the number of workers"
                    )
                stream = _Stream(reader, part)
                self._streams.append(stream)
            stream.users.add(part.worker)
            return stream

    def _leave(self, stream: Optional[_Stream], worker: int) -> None:
        if stream is None:
            return
        with self._lock:
            stream.users.discard(worker)
            if stream.users:
                return
            self._streams.remove(stream)
        stream.reader.close()


class Shared:
    """A worker's end: a reader of its batches."""

    def __init__(self, address: Tuple[str, str], asked: Asked, worker: int, workers: int) -> None:
        self._address, self._asked = address, asked
        self._me = worker, workers
        self._sock: Optional[socket.socket] = None
        self._inlet: Optional[messages.Inlet] = None  # of the socket
        self._requested = False  # whether the request for the next batch was sent
        self._place({"version": 1, "checkpoint": None, "ledger": None, "begin": None}, None)

    def _place(self, state: Dict[str, Any], part: Optional[Part]) -> None:
        self._state = state
        self._part = part or Part(*self._me, origin_of(state), 0, self._me[0])

    def start(self) -> None:
        """Starts to read."""
        if self._requested:
            return
        if self._sock is None:
            self._sock = messages.connect(self._address[0])
            if self._sock is None:
                raise self._ended()
            self._inlet = messages.Inlet(self._sock, self._asked, copies=True)
            self._send({"secret": self._address[1]})
        assert self._inlet is not None
        self._send({"part": self._part._asdict(), "state": self._state, "freed": self._inlet.freed()})
        self._requested = True

    def _send(self, message: Dict[str, Any]) -> None:
        assert self._sock is not None
        with contextlib.suppress(messages.Gone):  # receive says it
            messages.send(self._sock, message)

    def _ended(self) -> ServerDiedError:
        return ServerDiedError("the process that iterates, which reads for the workers of mp_prefetch, has ended or closed the data set")

    def next(self) -> Batch:
        """Returns the next batch of this worker."""
        self.start()
        assert self._inlet is not None
        try:
            message = self._inlet.receive()
        except messages.Gone:
            self.close()
            raise self._ended() from None
        self._requested = False
        if message["what"] == "end":
            raise StopIteration
        if message["what"] == "error":
            raise messages.unpack_error(message)
        batch = self._inlet.batch(message)
        part = self._part
        layers = {"layers": message["layers"]} if message["layers"] else {}
        self._place({**batch.state_dict(), **layers}, part._replace(number=part.next + 1, next=part.next + part.workers))
        self.start()  # it is read while this one is used
        return batch

    def state(self) -> Dict[str, Any]:
        """Returns the place after the last batch, and what comes next."""
        return {**self._state, PART: self._part._asdict()}

    def load(self, state: Dict[str, Any]) -> None:
        """Continues at a place."""
        part = part_of(state)
        if part is None and PART in state:
            raise CheckpointError(
                "the state is of mp_prefetch of an earlier version, in which workers had a part in the order:"
                " shardtool.grain.restore(directory, iterator) continues it where all workers were at one place"
            )
        if part is not None and part[:2] != self._me:
            raise CheckpointError(
                f"the state is of worker {part.worker} of {part.workers} of mp_prefetch, and this is worker {self._me[0]} of {self._me[1]}:"
                " the number of workers stays"
            )
        place = states.parse(state)
        self.close()  # what was requested is not wanted
        self._place(place, part)

    def close(self) -> None:
        """Ends the connection."""
        if self._sock is not None:
            self._sock.close()
        self._sock, self._requested = None, False
