"""Messages between the workers of a DataLoader: JSON, followed by the bytes of a batch."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from typing import Any, Dict, Optional, Tuple

from .. import errors
from .._system import PORTABLE, address

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
