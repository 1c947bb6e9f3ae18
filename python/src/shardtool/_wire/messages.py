"""Messages between the workers of a pipeline and their reader: JSON, and files of memory, in which
batches are."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import weakref
from typing import Any, Dict, List, Optional, Set, Tuple

from .. import errors
from .._read.arguments import Asked
from .._read.copies import Pool, move
from .._system import PORTABLE, address
from ..batch import Batch, Layout
from ..fields import Field, unresolved
from .client import received_file
from .regions import Regions, Segment, file_of, map_file

_head = struct.Struct("<I")  # length of the JSON
_credentials = struct.Struct("3i")


class Gone(Exception):
    """The other end has closed."""


def listen() -> "Tuple[socket.socket, str]":
    """Returns a listening socket and its name."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(address())
    sock.listen(64)
    return sock, os.fsencode(sock.getsockname()).hex()


def connect(name: str) -> Optional[socket.socket]:
    """Connects to a name that listen returned; None if no process listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(bytes.fromhex(name))
    except OSError:
        sock.close()
        return None
    return sock


def ours(sock: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user."""
    if PORTABLE:
        return True  # others cannot open the folder
    _, uid, _ = _credentials.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _credentials.size))
    return bool(uid == os.geteuid())


def send(sock: socket.socket, message: Dict[str, Any], fd: Optional[int] = None) -> None:
    """Sends a message, and a file. Raises Gone."""
    text = json.dumps(message).encode()
    try:
        sock.sendall(_head.pack(len(text)) + text)
        if fd is not None:
            socket.send_fds(sock, [b"\0"], [fd])
    except OSError as err:
        raise Gone from err


def receive(sock: socket.socket) -> Dict[str, Any]:
    """Waits for a message and returns it. Raises Gone."""
    message: Dict[str, Any] = json.loads(_exactly(sock, _head.unpack(_exactly(sock, _head.size))[0]).decode())
    return message


def waiting(sock: socket.socket) -> bool:
    """Whether a message can be received."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _exactly(sock: socket.socket, size: int) -> bytearray:
    out = bytearray(size)
    view = memoryview(out)
    while view:
        try:
            n = sock.recv_into(view)
        except OSError:
            n = 0
        if n == 0:
            raise Gone
        view = view[n:]
    return out


class Outlet:
    """Hands batches to the process at the other end of a connection, which maps the memory that
    they are in."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._told: Set[Tuple[int, int]] = set()  # segments that the other process has, by the number of their client
        self._out: "Dict[Tuple[int, ...], weakref.ref[Regions]]" = {}  # whose regions it has
        self._described = False

    def send(self, message: Dict[str, Any], batch: Batch, asked: Asked) -> None:
        """Sends a message with a batch, which this process must not use any more. Raises Gone."""
        region = batch._region
        assert region is not None and batch._layout is not None
        number, (segment, offset) = region.number, region.place
        there = {(number, one) for one in list(getattr(region.owner(), "_segments", ()))}
        gone, self._told = self._told - there, self._told & there
        if (number, segment) not in self._told:
            self._told.add((number, segment))
            send(self._sock, {"what": "segment", "of": [number, segment], "length": len(region.mapped)}, file_of(region.mapped))
        region.given = True
        self._out[number, segment, offset] = region.owner
        message = {
            **message, "what": "batch", "region": [number, segment, offset], "length": batch._length, "gone": list(gone),
            "size": batch.size, "epoch": batch.epoch, "ledger": batch._saved[1],
        }  # fmt: skip
        if not self._described:
            self._described = True
            message["layout"] = _described(batch._layout, asked)
        send(self._sock, message)

    def freed(self, places: "List[List[int]]") -> None:
        """Releases regions that the other process does not need any more."""
        for number, *place in places:
            owner = self._out.pop((number, *place), _nobody)()
            if owner is not None:
                owner.release(*place)

    def close(self) -> None:
        """Releases all regions that the other process had: it has ended."""
        self.freed([list(place) for place in self._out])


def _nobody() -> None:
    """Stands for an owner that has ended."""


def _described(layout: Layout, asked: Asked) -> Dict[str, Any]:
    """Returns what a process needs to make the layout."""
    out: Dict[str, Any] = {"sources": list(layout.sources)}
    if unresolved(asked.fields):
        out["fields"] = [[f.name, f.spec, f.elements] for f in layout.given]
    else:
        out["stored"] = {f.name: f.stored for f in layout.given if f.stored != f.name}
        out["lists"] = {f.name: f.elements for f in layout.given if f.elements is not None}
    return out


def _layout_of(said: Dict[str, Any], asked: Asked) -> Layout:
    """Returns the layout that was described."""
    fields = asked.fields
    if fields is None or unresolved(fields):
        fields = [Field(name, spec, elements=elements) for name, spec, elements in said["fields"]]
    else:
        fields = [Field(f.name, f.spec, said["stored"].get(f.name), said["lists"].get(f.name)) for f in fields]
        fields += asked.derived()
    layout = Layout(fields, asked.arrays)
    layout.sources = said["sources"]
    return layout


class Inlet(Regions):
    """The end of a connection that receives batches from an Outlet."""

    def __init__(self, sock: socket.socket, asked: Asked, copies: bool = PORTABLE) -> None:
        """copies: batches do not stay in the memory, which may be a file that the system writes to
        a disk."""
        self._sock, self._asked = sock, asked
        self._segments: Dict[Tuple[int, int], Segment] = {}
        self._layout: Optional[Layout] = None
        self._pool = Pool() if copies else None
        self._freed: List[List[int]] = []
        self._begin_regions()

    def receive(self) -> Dict[str, Any]:
        """Waits for a message and returns it. Raises Gone."""
        while True:
            message = receive(self._sock)
            if message["what"] != "segment":
                return message
            try:
                fd = received_file(self._sock)
            except OSError:
                fd = None
            if fd is None:
                raise Gone
            try:
                number, segment = message["of"]
                self._segments[number, segment] = map_file(fd, message["length"])
            finally:
                os.close(fd)

    def batch(self, message: Dict[str, Any]) -> Batch:
        """Returns the batch of a message."""
        for gone in message["gone"]:
            self._segments.pop(tuple(gone), None)
        if self._layout is None:
            self._layout = _layout_of(message["layout"], self._asked)
        number, segment, offset = message["region"]
        length, region = message["length"], None
        if self._pool is None:
            buffer, region = self._buffer(self._segments[number, segment], (number, segment, offset))
        else:
            buffer = self._pool.take(length)
            move(buffer, self._segments[number, segment][0], offset, length)
            self.release(number, segment, offset)
            offset = 0
        return Batch._of(self._layout, buffer, offset, length, message["size"], message["epoch"], message["ledger"], region=region)

    def release(self, *place: int) -> None:
        """As Regions. That is told with the next request."""
        self._freed.append(list(place))

    def freed(self) -> "List[List[int]]":
        """Returns the regions that were released since the last time."""
        self._settle_dropped()
        out, self._freed = self._freed, []
        return out


def pack_error(err: BaseException) -> Dict[str, Any]:
    """Packs an error into a message."""
    if not isinstance(err, errors.ShardtoolError):
        return {"class": "ShardtoolError", "message": f"{type(err).__name__}: {err}", "facts": {}}
    facts = {name: value for name, value in vars(err).items() if name != "message"}
    return {"class": type(err).__name__, "message": err.message, "facts": facts}


def unpack_error(said: Dict[str, Any]) -> errors.ShardtoolError:
    """Returns the error that pack_error packed."""
    kind = getattr(errors, said["class"], None)
    if not (isinstance(kind, type) and issubclass(kind, errors.ShardtoolError)):
        kind = errors.ShardtoolError
    err = kind(said["message"])
    vars(err).update(said["facts"])
    return err
