"""A run: the batches that one START delivers."""

from __future__ import annotations

import itertools
import json
from collections import deque
from typing import Any, Deque, Dict, List, Literal, Optional, Sequence, Tuple, Union

from .._wire import protocol as proto
from .._wire.client import Client, Frame
from ..batch import Batch, Layout
from ..fields import Field
from . import arrays
from .copies import Pool, move
from .decoding import Pending

_idents = itertools.count(1)

#: Bytes of batches that the child prefetches by default: at least 4 batches and 64 at most, which
#: together take a quarter of the ring, or one.
_AHEAD = 8 << 20

#: A batch; checkpoint and ledger after it; the place there; whether it is the last that begins in
#: its epoch.
Taken = Tuple[Batch, str, Optional[str], Tuple[int, int], bool]


class Run:
    """One run of a client. A new run ends the one before."""

    def __init__(
        self,
        client: Client,
        request: Dict[str, Any],
        fields: Sequence[Field],
        out: str,
        more: Sequence[Field] = (),
        passes: bool = False,
    ) -> None:
        """passes: its batches go to other processes, each of which copies them if it has to."""
        self.client = client
        self.ident = next(_idents)
        self._layout = Layout([*fields, *more], out)  # columns of units come after columns of samples
        self._pool = Pool() if client.private and not passes else None
        self.out = out
        self._number = 0  # of the next batch
        #: The account after the last batch taken.
        self.account = b""
        self._prefetch, self._ring = request.get("prefetch"), int(request.get("ring") or 1 << 30)
        self._unasked = 0  # batches that were ready without a request, since the last NEXT
        body = json.dumps(dict(request, columns=[column.column() for f in fields for column in f.columns()])).encode()
        #: The body of STARTED.
        self.started: Dict[str, Any] = client.call(proto.pack(proto.START, self.ident, body=body), proto.STARTED, proto.START, self.ident)
        self._layout.sources = self.started.get("sources", ())
        self._told = proto.account.size + proto.PER_SOURCE * len(self._layout.sources)
        client.forward()  # warnings of the child about the order, before the first batch

    def take(self, ledger: Optional[str]) -> Optional[Taken]:
        """Waits for the next batch and returns it; None at the end. ledger is the one after the
        batch before."""
        return self._taken(self._wait(), ledger)

    def poll(self, ledger: Optional[str]) -> "Union[Taken, Literal[False], None]":
        """Returns the next batch as take does, or False if it is not ready."""
        frame = self._ready()
        return False if frame is None else self._taken(frame, ledger)

    def _taken(self, frame: Frame, ledger: Optional[str]) -> Optional[Taken]:
        kind, flags, _, _, segment, size, offset, length, epoch, next_epoch, next_position = frame
        if kind == proto.END:
            return None
        client, region = self.client, None
        if self._pool is None:
            buffer, region = client.claim(segment, offset)
        else:
            buffer = self._pool.take(length)
            move(buffer, client.mapped(segment), offset, length)
            client.release(segment, offset)
            offset = 0
        facts = proto.header.unpack_from(buffer, offset)
        at, n, ledger_n, ledger_at = facts[10:14]
        checkpoint = str(buffer[offset + at : offset + at + n], "ascii")
        at = offset + facts[17]
        self.account = bytes(buffer[at : at + self._told])
        if flags & proto.LEDGER:
            ledger = str(buffer[offset + ledger_at : offset + ledger_at + ledger_n], "utf-8")
        batch = Batch._of(self._layout, buffer, offset, length, size, epoch, ledger, facts=facts, region=region)
        self._number += 1
        return batch, checkpoint, ledger, (next_epoch, next_position), bool(flags & proto.LAST)

    def _wait(self) -> Frame:
        """Returns the next batch. It requests one only if none is ready: a message wakes the child,
        which on a busy processor takes time from the training step. One message for every few
        batches lets the child read on, because it says that those before it are taken."""
        frame = self._ready()
        if frame is not None:
            return frame
        self._unasked = 0
        self.client.send(proto.pack(proto.NEXT, self.ident, self._number))
        return self.client.expect(proto.BATCH, proto.START, self.ident)

    def _ready(self) -> Optional[Frame]:
        """Returns the next batch if it is ready."""
        client = self.client
        while True:
            frame = client.ready()
            if frame is None:
                return None
            if frame[0] == proto.BATCH:
                break
            client.aside(frame)
        self._unasked += 1
        if self._prefetch is None:
            ahead = min(max(_AHEAD // frame[7], 4), max(self._ring // 4 // frame[7], 1), 64)
        else:
            ahead = min(self._prefetch, self._ring // frame[7])
        if 2 * self._unasked >= ahead:
            client.send(proto.pack(proto.NEXT, self.ident, self._number))
            self._unasked = 0
        return frame


#: Batches that are decoded, or being decoded, before the loop gets them.
_BATCHES = 3


class Ahead:
    """A run whose images threads decode before the loop asks for them. It has what a loader uses of
    a run. Batches are delivered in order, and an error of the run after the batches before it."""

    def __init__(self, run: Run, fields: Sequence[Field]) -> None:
        self.run = run
        self._fields = [(f.name, f.image._begun()) for f in fields if f.image is not None]
        self._queue: Deque[Tuple[Any, List[Tuple[str, Pending]]]] = deque()  # a batch or an error, and its images
        self._ledger: Optional[str] = None
        self._out = run.out
        self._over = False

    client = property(lambda self: self.run.client)
    ident = property(lambda self: self.run.ident)
    started = property(lambda self: self.run.started)
    account = property(lambda self: self.run.account)

    def take(self, ledger: Optional[str]) -> Optional[Taken]:
        """As Run.take."""
        if not self._queue:
            self._push(self.run.take(self._ledger if self._ledger is not None else ledger))
        while len(self._queue) < _BATCHES and not self._over:
            try:
                taken = self.run.poll(self._ledger)
            except Exception as err:
                self._queue.append((err, []))
                self._over = True
                break
            if taken is False:
                break
            self._push(taken)
        taken, images = self._queue.popleft()
        if isinstance(taken, Exception):
            raise taken
        for name, pending in images:
            # The loop gets a batch with an image that cannot be decoded: the error is raised by the
            # field, when it is used.
            if pending.error() is None:
                taken[0]._cache[name] = arrays.as_type(pending.result(), self._out)
        return taken  # type: ignore[no-any-return]

    def _push(self, taken: Any) -> None:
        images = []
        if taken is None:
            self._over = True
        else:
            batch, _, self._ledger, _, _ = taken
            images = [(name, decoder.begin(batch.payloads(name), batch.seeds)) for name, decoder in self._fields]
        self._queue.append((taken, images))
