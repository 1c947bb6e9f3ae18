"""Messages between the workers of a pipeline and their reader: JSON, followed by the bytes of a
batch."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from typing import Any, Dict, Optional, Tuple

from .. import errors
from .._system import PORTABLE, address
from ..batch import Batch, Layout
from ..fields import Field, unresolved
from ..read.arguments import Asked

_head = struct.Struct("<IQ")  # length of the JSON, length of the bytes
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


def send(sock: socket.socket, message: Dict[str, Any], body: Any = b"") -> None:
    """Sends a message. Raises Gone."""
    text = json.dumps(message).encode()
    try:
        sock.sendall(_head.pack(len(text), len(body)) + text)
        if body:
            sock.sendall(body)
    except OSError as err:
        raise Gone from err


def receive(sock: socket.socket) -> "Tuple[Dict[str, Any], bytearray]":
    """Waits for a message and returns it. Raises Gone."""
    text, body = _head.unpack(_exactly(sock, _head.size))
    message: Dict[str, Any] = json.loads(_exactly(sock, text))
    return message, _exactly(sock, body)


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


def pack_batch(batch: Batch, asked: Asked) -> "Tuple[Dict[str, Any], memoryview]":
    """Packs a batch into a message and its bytes."""
    message = {"what": "batch", "size": batch.size, "epoch": batch.epoch, "ledger": batch._saved[1]}
    if unresolved(asked.fields) and batch._layout is not None:
        message["fields"] = [[f.name, f.spec, f.elements] for f in batch._layout.given]
    elif batch._layout is not None:
        message["stored"] = {f.name: f.stored for f in batch._layout.given if f.stored != f.name}
        message["lists"] = {f.name: f.elements for f in batch._layout.given if f.elements is not None}
    if batch._sources:
        message["sources"] = list(batch._sources)
    return message, batch._view()


def layout_of(message: Dict[str, Any], asked: Asked) -> Layout:
    """Returns what the batches of a run share, from the message of one."""
    fields = asked.fields
    if fields is None or unresolved(fields):
        fields = [Field(name, spec, elements=elements) for name, spec, elements in message["fields"]]
    else:
        stored, lists = message.get("stored", {}), message.get("lists", {})
        fields = [Field(f.name, f.spec, stored.get(f.name), lists.get(f.name)) for f in fields]
        if asked.units is not None:
            fields = [*fields, *asked.units.columns()]
    layout = Layout(fields, asked.arrays)
    layout.sources = message.get("sources", ())
    return layout


def unpack_batch(message: Dict[str, Any], body: bytearray, layout: Layout) -> Batch:
    """Returns the batch that pack_batch packed."""
    return Batch._of(layout, body, 0, len(body), message["size"], message["epoch"], message["ledger"])


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
