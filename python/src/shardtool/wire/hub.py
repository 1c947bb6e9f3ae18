"""The process that reads for its peers: a thread between one child process and the clients of all
peers, itself included.

To a client, the hub is a child: it has the same frames. To the child, the hub is a client. It
starts a run when all peers have sent the same START, sends each batch to all of them, and asks the
child for the batch that the slowest peer waits for. A region returns to the child when all have
released it. Peers on other hosts get the bytes of a batch after its frame.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import hmac
import json
import os
import selectors
import socket
import struct
import termios
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple, Union

from .._system import address, close_listener
from ..errors import ShardtoolError, redact
from . import protocol as proto
from .client import Client
from .regions import file_of

#: Frames that only peers send: JOIN has the number of the peer, what the connection is for, and the
#: secret; BYE ends a peer that closes its loader; LEAVE tells that its loop was left.
JOIN, BYE, LEAVE = 64, 65, 66
#: What a connection is for: the presence of a peer, or a client of it.
PRESENCE, CLIENT = 0, 1
#: A flag of HEARTBEAT: the client waits for other peers, which the body names.
FOR_PEERS = 1

#: Seconds that close waits for a peer that takes nothing of what was read for it.
PATIENCE = 60.0
#: Seconds in which a connection must prove that it is a peer's, and the most that have not.
JOINING, STRANGERS = 10.0, 64
#: Batches that peers may take while another waits to begin another iteration. Threads that read
#: ahead of a loop take some.
AHEAD = 8

#: Members of OPEN and START in which peers may differ: they do not change what is read. OPEN has
#: those of peer 0, wherever it comes from.
_OWN = (
    "address", "ahead", "cache", "cache_size", "depth", "directory", "keys",
    "local_ranks", "memory", "prefetch", "requests", "ring", "workers",
)  # fmt: skip

#: Errors of a connection to a host that is gone.
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


def watch(sock: socket.socket) -> None:
    """Makes a connection between hosts end within about a minute when the other host is gone. There
    is no limit for data that the other process does not take, which may pause for longer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for names, value in ((("TCP_KEEPIDLE", "TCP_KEEPALIVE"), 20), (("TCP_KEEPINTVL",), 10), (("TCP_KEEPCNT",), 4)):
        option = next((getattr(socket, name) for name in names if hasattr(socket, name)), None)  # macOS has the second
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _unsent(sock: socket.socket) -> int:
    """Returns how many bytes the other host has not received; 1 where the system does not say."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0])
    except OSError:
        return 1


def shown(numbers: Any) -> str:
    """Returns the numbers of peers for a message."""
    listed = sorted(numbers)
    return f"peer{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"


class _Data:
    """A data set that is open in a child: what an OPEN asked for."""

    def __init__(self, child: Client) -> None:
        self.child = child
        self.info: Optional[bytes] = None
        self.waiting: List[_Conn] = []  # for INFO
        self.holds: Dict[Tuple[int, int], Set[_Conn]] = {}  # regions, and who has not released them
        self.run = 0  # number of the latest


class _Run:
    """The run that all peers take part in."""

    def __init__(self, data: _Data, idents: Dict[_Conn, int]) -> None:
        self.data, self.idents = data, idents
        data.run += 1
        self.ident = data.run
        self.asked: Dict[_Conn, int] = {}  # the batch that each peer waits for; without peers that left
        self.started = False
        self.sent, self.forwarded = 0, -1
        self.mark = 0  # batches sent when a peer first asked to begin another iteration
        self.ahead = AHEAD  # batches that peers may take then
        self.over: Optional[Callable[[int], bytes]] = None  # the answer for batches that there are not


class _Conn:
    """A connection of a peer."""

    def __init__(self, sock: socket.socket, inline: bool) -> None:
        self.sock, self.inline = sock, inline
        self.peer = -1  # until it has joined
        self.presence = False
        self.data: Optional[_Data] = None
        self.unreachable = False  # whether its host is gone
        #: Regions that were released for it, and how many RELEASEs it will still send for each.
        self.stale: Dict[Tuple[int, int], int] = {}
        #: When it began to wait for a batch, or to join, and was last told why it waits.
        self.since, self.told = time.monotonic(), 0.0
        self.got = bytearray()
        self.out: Deque[Union[memoryview, int]] = collections.deque()  # bytes, and descriptors

    def put(self, data: bytes) -> None:
        self.out.append(memoryview(data))

    def put_file(self, fd: int) -> None:
        self.out.append(os.dup(fd))

    def write(self) -> bool:
        """Sends what can be sent. Returns False if the peer is gone."""
        try:
            while self.out:
                first = self.out[0]
                if isinstance(first, int):
                    socket.send_fds(self.sock, [b"\0"], [first])
                    os.close(first)
                else:
                    sent = self.sock.send(first)
                    if sent < len(first):
                        self.out[0] = first[sent:]
                        continue
                self.out.popleft()
        except BlockingIOError:
            pass
        except OSError as err:
            self.unreachable = err.errno in _UNREACHABLE
            return False
        return True

    def rest(self) -> int:
        """Sends what can be sent. Returns how much its host has not received; -1 if the peer is
        gone. What it sends is left aside: unread, it would make close discard what waits here."""
        if not self.write():
            return -1
        left = sum(len(item) if isinstance(item, memoryview) else 1 for item in self.out)
        if not self.inline or self.presence or self.peer < 0:
            return left
        try:
            while self.sock.recv(256 << 10):
                pass
            return -1
        except BlockingIOError:
            return left + _unsent(self.sock)
        except OSError:
            return -1

    def close(self) -> None:
        for item in self.out:
            if isinstance(item, int):
                os.close(item)
        self.out.clear()
        self.sock.close()


class Hub:
    """The thread. ``start`` and ``close`` are for other threads."""

    def __init__(self, count: int, metrics: str, opening: Dict[str, Any]) -> None:
        """``opening`` is the OPEN of peer 0."""
        self.secret = os.urandom(16).hex()
        self._opening: Dict[str, Any] = json.loads(json.dumps(opening))
        self._metrics = metrics
        self._count = count
        self._selector = selectors.DefaultSelector()
        self._listeners: List[socket.socket] = []
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.bind(address())
        #: Where peers on this host connect.
        self.name = os.fsencode(unix.getsockname()).hex()
        self._listen(unix)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._conns: Dict[int, _Conn] = {}  # by descriptor
        self._children: Dict[int, _Data] = {}
        self._open: Dict[str, _Data] = {}  # by what OPEN asked for
        self._gone: Set[int] = set()  # peers that closed their loaders
        self._pending: Dict[_Conn, Tuple[int, bytes]] = {}  # STARTs
        self._run: Optional[_Run] = None
        self._failed: Optional[bytes] = None
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="shardtool-peers", daemon=True)

    def start(self, near: int, hosts: Sequence[str] = ()) -> int:
        """Starts the thread. ``near`` peers are on this host; the others reach it at the addresses
        ``hosts``, and no interface without one of them is listened at. Returns the port; 0 if no
        peers are elsewhere, or none of the addresses is this host's."""
        self._near, port = near, 0
        listening: List[socket.socket] = []
        for host in hosts if near < self._count else ():
            with contextlib.suppress(OSError):  # an address of something between the hosts
                listening.append(socket.create_server((host, port), backlog=self._count))
                port = int(listening[0].getsockname()[1])
        for tcp in listening:
            self._listen(tcp)
        self._thread.start()
        return port

    def _listen(self, sock: socket.socket) -> None:
        sock.listen(self._count + 8)
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ)
        self._listeners.append(sock)

    def close(self) -> None:
        """Ends the hub, once the peers have what was read for them."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")
        if self._thread.ident is None:  # it was never started
            self._let_in_no_one()
        elif threading.current_thread() is not self._thread:  # a garbage collection may run in any thread
            self._thread.join()

    def forget(self) -> None:
        """In a forked process: closes the copies of all sockets."""
        for sock in (*self._listeners, self._wake, self._woken, *(conn.sock for conn in self._conns.values())):
            sock.close()

    def _let_in_no_one(self) -> None:
        for sock in self._listeners:
            close_listener(sock)
        self._wake.close()
        self._woken.close()
        self._selector.close()

    # The thread

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._turn()
            self._finish()
        except Exception as err:  # an error of the hub itself: no peer may wait for it
            self._fail("failed", f"the process that reads for its peers failed: {type(err).__name__}: {err}")
            for conn in list(self._conns.values()):
                conn.write()
            raise
        finally:
            for conn in list(self._conns.values()):
                conn.close()
            for data in self._children.values():
                data.child.close()
            self._let_in_no_one()

    def _turn(self) -> None:
        for key, events in self._selector.select(1.0):
            fd = key.fd
            if key.fileobj in self._listeners:
                self._accept(key.fileobj)
            elif fd in self._children:
                self._hear(self._children[fd])
            elif fd in self._conns and events & selectors.EVENT_READ:
                self._read(self._conns[fd])
        self._comfort()
        for data in list(self._children.values()):
            if data.child._released:
                self._tell(data, b"")
        for conn in list(self._conns.values()):
            if not conn.write():
                self._lost(conn)
            elif conn.sock.fileno() in self._conns:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if conn.out else 0)
                if self._selector.get_key(conn.sock).events != events:
                    self._selector.modify(conn.sock, events)

    def _finish(self) -> None:
        """Sends what waits to be sent, and then the reason of the end."""
        run = self._run
        if run is not None and run.over is not None:
            for conn in run.asked:
                conn.put(run.over(run.idents[conn]))
        if self._failed is None:
            self._fail("closed", "the process that reads for its peers, peer 0, closed its loader")
        since, left = time.monotonic(), -1
        while time.monotonic() - since < PATIENCE:
            now = 0
            for conn in list(self._conns.values()):
                rest = conn.rest()
                if rest < 0:
                    self._drop(conn)
                now += max(0, rest)
            if now == 0:
                return
            if now != left:
                since, left = time.monotonic(), now
            time.sleep(0.01)

    # Connections

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            sock.setblocking(False)
            inline = sock.family != socket.AF_UNIX
            if inline:
                watch(sock)
            self._conns[sock.fileno()] = _Conn(sock, inline)
            self._selector.register(sock, selectors.EVENT_READ)
            strangers = [conn for conn in self._conns.values() if conn.peer < 0]
            if len(strangers) > max(STRANGERS, 4 * self._count):
                self._drop(min(strangers, key=lambda conn: conn.since))  # a peer proves itself at once

    def _read(self, conn: _Conn) -> None:
        try:
            data = conn.sock.recv(256 << 10)
        except BlockingIOError:
            return
        except OSError as err:
            data, conn.unreachable = b"", err.errno in _UNREACHABLE
        if not data:
            self._lost(conn)
            return
        conn.got += data
        at = 0
        while len(conn.got) - at >= proto.FRAME:
            frame = proto.words.unpack_from(conn.got, at)
            end = at + proto.FRAME + frame[2]
            if frame[2] > proto.MAX_BODY or (conn.peer < 0 and (frame[0] != JOIN or frame[2] > 64)):
                self._drop(conn)
                return
            if len(conn.got) < end:
                break
            raw, body = bytes(conn.got[at : at + proto.FRAME]), bytes(conn.got[at + proto.FRAME : end])
            at = end
            self._handle(conn, frame, raw, body)
            if conn.sock.fileno() not in self._conns:
                return
        del conn.got[:at]

    def _lost(self, conn: _Conn) -> None:
        """Handles the end of a connection."""
        peer, present = conn.peer, conn.presence or (conn.peer >= 0 and conn.unreachable)
        self._drop(conn)
        if present and peer not in self._gone:
            self._fail("died", f"peer {peer} ended without closing its loader: it was killed, or its host is gone")

    def _drop(self, conn: _Conn) -> None:
        fd = conn.sock.fileno()
        if fd not in self._conns:
            return
        del self._conns[fd]
        self._selector.unregister(conn.sock)
        conn.close()
        self._pending.pop(conn, None)
        data = conn.data
        if data is None:
            return
        if conn in data.waiting:
            data.waiting.remove(conn)
        self._let_go(data, conn)
        if self._run is not None and conn in self._run.idents:
            del self._run.idents[conn]
            self._run.asked.pop(conn, None)
            self._demand()
        if not any(other.data is data for other in self._conns.values()):
            self._end(data)
        self._begin()

    def _end(self, data: _Data) -> None:
        for key in [key for key, other in self._open.items() if other is data]:
            del self._open[key]
        if self._run is not None and self._run.data is data:
            self._run = None
        fd = next((fd for fd, other in self._children.items() if other is data), -1)
        if fd >= 0:
            del self._children[fd]
            self._selector.unregister(fd)
            data.child.close()

    def _handle(self, conn: _Conn, frame: "Tuple[int, ...]", raw: bytes, body: bytes) -> None:
        kind, run = frame[0], self._run
        if self._failed is not None and kind in (proto.OPEN, proto.START, proto.NEXT):
            conn.put(self._failed)
        elif kind == JOIN:
            self._join(conn, frame[3], frame[4], body)
        elif kind == proto.OPEN:
            self._opens(conn, body)
        elif kind == proto.START and conn.data is not None:
            self._let_go(conn.data, conn)
            if run is not None:
                run.asked.pop(conn, None)
                run.mark = run.mark if self._pending else run.sent
            self._pending[conn], conn.since = (frame[3], body), time.monotonic()
            self._demand()
            self._begin()
        elif kind == proto.NEXT:
            if run is not None and conn in run.asked and frame[3] == run.idents[conn]:
                run.asked[conn], conn.since = max(run.asked[conn], frame[4]), time.monotonic()
                self._demand(conn)
        elif kind == proto.RELEASE and conn.data is not None:
            region = (proto.frame.unpack(raw)[4], proto.frame.unpack(raw)[6])
            if region not in conn.stale:
                self._release(conn.data, region, conn)
            elif conn.stale[region] > 1:
                conn.stale[region] -= 1
            else:
                del conn.stale[region]
        elif kind == LEAVE:
            if run is not None and frame[3] == run.idents.get(conn):
                run.asked.pop(conn, None)
                self._let_go(run.data, conn)
                self._demand()
        elif kind == BYE:
            self._gone.add(conn.peer)
            self._drop(conn)
            self._begin()
        elif kind == proto.STOP:
            self._drop(conn)

    def _join(self, conn: _Conn, peer: int, purpose: int, body: bytes) -> None:
        if conn.peer >= 0 or not hmac.compare_digest(body, self.secret.encode()) or peer >= self._count:
            self._drop(conn)
            return
        conn.peer, conn.presence = peer, purpose == PRESENCE

    # Data sets and runs

    def _opens(self, conn: _Conn, body: bytes) -> None:
        asked = json.loads(body)
        for name in ("address", "keys"):
            mine, other = self._opening.get(name), asked.get(name)
            if mine != other:
                self._differ(f"{name} is {_cut(mine)} in peer 0 and {_cut(other)} in peer {conn.peer}")
                return
        asked = {name: value for name, value in asked.items() if name not in _OWN}
        asked.update({name: value for name, value in self._opening.items() if name in _OWN})
        key = _common(asked)
        data = self._open.get(key)
        if data is None:
            ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
            if ranks.isdigit():  # this child has the processors of all peers here
                asked["local_ranks"] = max(1, int(ranks) // self._near)
            try:
                child = Client(self._metrics)
            except ShardtoolError as err:
                conn.put(_error("protocol", err.message, err.code, proto.OPEN))
                return
            conn.data = data = self._open[key] = _Data(child)
            self._children[child._sock.fileno()] = data
            self._selector.register(child._sock, selectors.EVENT_READ)
            self._tell(data, proto.pack_open(json.dumps(asked).encode()))
            if conn.data is None:  # the child has ended, and the peer was told
                return
        conn.data = data
        if not conn.inline:
            for number, (mapped, _) in data.child._segments.items():
                conn.put(proto.frame.pack(proto.SEGMENT, 0, 0, 0, number, 0, 0, len(mapped), 0, 0, 0))
                conn.put_file(file_of(mapped))
        if data.info is not None:
            conn.put(proto.pack(proto.INFO, body=data.info))
        else:
            data.waiting.append(conn)

    def _tell(self, data: _Data, frames: bytes) -> None:
        try:
            data.child.send(frames)
        except ShardtoolError as err:
            self._child_ended(data, err)

    def _child_ended(self, data: _Data, err: ShardtoolError) -> None:
        for conn in [c for c in self._conns.values() if c.data is data]:
            conn.put(_error("died", err.message, err.code))
            conn.data = None
            self._pending.pop(conn, None)
        self._end(data)

    def _missing(self) -> "Set[int]":
        """Returns the peers that have not asked to begin."""
        return set(range(self._count)) - self._gone - {conn.peer for conn in self._pending}

    def _begin(self) -> None:
        """Starts a run if all peers have asked for it."""
        if not self._pending or self._missing():
            return
        texts = {conn.peer: (conn, json.loads(body)) for conn, (_, body) in self._pending.items()}
        first, (conn, start) = min(texts.items())
        for peer, (other, body) in sorted(texts.items()):
            name = _difference(start, body)
            if name or other.data is not conn.data:
                what = f"{name} is {_cut(start.get(name))} in peer {first} and {_cut(body.get(name))} in peer {peer}" if name else (
                    f"peers {first} and {peer} opened different data, or loaded different states"
                )  # fmt: skip
                self._differ(what)
                return
        assert conn.data is not None
        self._run = run = _Run(conn.data, {c: ident for c, (ident, _) in self._pending.items()})
        run.ahead = max(AHEAD, *(body.pop("ahead", 0) for _, body in texts.values()))
        self._pending.clear()
        self._tell(run.data, proto.pack(proto.START, run.ident, body=json.dumps(start).encode()))

    def _differ(self, what: str) -> None:
        self._fail("config", f"the peers of a rank ask for different batches: {what}: make their loaders alike, and load one state")

    def _demand(self, asking: Optional[_Conn] = None) -> None:
        """Asks the child for the batch that the slowest peer waits for, and answers requests for
        batches that there are not: the one of ``asking``, or all of them."""
        run = self._run
        if run is None or not run.started or not run.asked:
            return
        if run.over is not None:
            for conn, number in run.asked.items():
                if number >= run.sent and (asking is None or conn is asking):
                    conn.put(run.over(run.idents[conn]))
            return
        least = min(run.asked.values())
        if self._pending and least >= run.mark + run.ahead:
            early, others = shown(c.peer for c in self._pending), shown(c.peer for c in run.asked)
            self._fail(
                "config",
                f"the peers of a rank must leave a loop after the same batch: {early} began another iteration, and {others} went on",
            )
            return
        if least > run.forwarded:
            run.forwarded = least
            self._tell(run.data, proto.pack(proto.NEXT, run.ident, least))

    def _release(self, data: _Data, region: Tuple[int, int], conn: _Conn) -> None:
        holders = data.holds.get(region)
        if holders is None or conn not in holders:
            return
        holders.remove(conn)
        if not holders:
            del data.holds[region]
            data.child.release(*region)

    def _let_go(self, data: _Data, conn: _Conn) -> None:
        """Releases what a peer holds that has left a run: it may not read those batches for long.
        It still sends a RELEASE for each, which must not free a batch that is in its place then."""
        for region in [r for r, holders in data.holds.items() if conn in holders]:
            conn.stale[region] = conn.stale.get(region, 0) + 1
            self._release(data, region, conn)

    # The child

    def _hear(self, data: _Data) -> None:
        child = data.child
        try:
            while data.child.alive:
                frame = child.ready()
                if frame is None:
                    return
                self._frame(data, frame, bytes(child._frame))
        except ShardtoolError as err:
            self._child_ended(data, err)

    def _frame(self, data: _Data, frame: "Tuple[int, ...]", raw: bytes) -> None:
        child, run = data.child, self._run if self._run is not None and self._run.data is data else None
        kind = frame[0]
        if kind == proto.BATCH:
            self._batch(data, run, frame, raw)
        elif kind in (proto.SEGMENT, proto.RETIRE):
            child.aside(frame)  # type: ignore[arg-type]
            for conn in self._conns.values():
                if conn.data is data and not conn.inline:
                    conn.put(raw)
                    if kind == proto.SEGMENT:
                        conn.put_file(file_of(child.mapped(frame[4])))
        elif kind == proto.INFO:
            data.info = child.body(frame[2])
            for conn in data.waiting:
                conn.put(proto.pack(proto.INFO, body=data.info))
            data.waiting.clear()
        elif kind == proto.STARTED:
            body = child.body(frame[2])
            child.forward()
            if run is not None and frame[3] == run.ident:
                run.started, run.asked = True, dict.fromkeys(run.idents, -1)
                for conn, ident in run.idents.items():
                    conn.put(proto.pack(proto.STARTED, ident, body=body))
        elif kind == proto.HEARTBEAT:
            body = child.body(frame[2])
            child.forward()
            words = proto.words.unpack(raw)
            for conn, ident in run.idents.items() if run is not None else ((c, 0) for c in data.waiting):
                if run is None or not run.started or run.asked.get(conn, -1) >= run.sent:
                    conn.put(proto.words.pack(kind, 0, len(body), ident, *words[4:]) + body)
        elif kind == proto.END:
            if run is not None and frame[3] == run.ident:
                run.over = lambda ident: proto.words.pack(proto.END, 0, 0, ident, run.sent, 0, 0, 0, 0, 0)
                self._demand()
        elif kind == proto.ERROR:
            self._error(data, run, frame, child.body(frame[2]))

    def _batch(self, data: _Data, run: Optional[_Run], frame: "Tuple[int, ...]", raw: bytes) -> None:
        segment, offset, length = frame[4], frame[6], frame[7]
        if run is None or not run.started:  # of the run before
            data.child.release(segment, offset)
            return
        run.sent += 1
        near = {conn for conn in run.asked if not conn.inline}
        whole = None
        for conn in run.asked:
            conn.put(raw)
            if conn.inline:
                whole = bytes(data.child.mapped(segment)[offset : offset + length]) if whole is None else whole
                conn.put(whole)
        if near:
            data.holds[segment, offset] = near
        else:
            data.child.release(segment, offset)

    def _error(self, data: _Data, run: Optional[_Run], frame: "Tuple[int, ...]", body: bytes) -> None:
        code, of = frame[4], frame[5]

        def answer(ident: int) -> bytes:
            return proto.frame.pack(proto.ERROR, 0, len(body), ident, code, of, 0, 0, 0, 0, 0) + body

        if of == proto.OPEN or (of == 0 and data.info is None):
            for conn in data.waiting:
                conn.put(answer(0))
                conn.data = None
            data.waiting.clear()
            self._end(data)
        elif of == 0:
            for conn in [c for c in self._conns.values() if c.data is data]:
                conn.put(answer(0))
        elif run is not None and frame[3] == run.ident:
            if not run.started:
                self._run = None
                for conn, ident in run.idents.items():
                    conn.put(answer(ident))
                return
            run.over = answer
            self._demand()

    # Waits and failures

    def _comfort(self) -> None:
        """Sends a frame each second to peers that wait for other peers. Ends connections that do
        not join."""
        now, run = time.monotonic(), self._run
        for conn in [c for c in self._conns.values() if c.peer < 0 and now - c.since > JOINING]:
            self._drop(conn)
        awaited: Dict[_Conn, Set[int]] = {conn: self._missing() for conn in self._pending}
        if run is not None and run.over is None:
            slow = {c.peer for c, number in run.asked.items() if number <= run.forwarded}
            awaited.update({c: slow for c, number in run.asked.items() if number >= run.sent and number > run.forwarded})
        for conn, peers in awaited.items():
            seconds = int(now - conn.since)
            if seconds and now - conn.told >= 1:
                conn.told = now
                body = shown(peers).encode()
                conn.put(proto.words.pack(proto.HEARTBEAT, FOR_PEERS, len(body), 0, 1000 * seconds, 0, 0, 0, 0, 0) + body)

    def _fail(self, kind: str, message: str) -> None:
        """Ends all peers with an error."""
        self._failed = _error(kind, message)
        self._run = None
        self._pending.clear()
        for conn in self._conns.values():
            if conn.peer >= 0 and not conn.presence:
                conn.put(self._failed)


def _common(body: Dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in body.items() if name not in _OWN}, sort_keys=True)


def _difference(one: Dict[str, Any], other: Dict[str, Any]) -> str:
    """Returns the first member in which two requests differ; empty if they ask for the same."""
    return next((name for name in sorted({*one, *other} - set(_OWN)) if one.get(name) != other.get(name)), "")


def _cut(value: Any) -> str:
    text = redact(repr(value))
    return text if len(text) <= 200 else text[:200] + "…"


def _error(kind: str, message: str, code: int = 1, of: int = 0, ident: int = 0) -> bytes:
    body = json.dumps({"kind": kind, "message": message}).encode()
    return proto.frame.pack(proto.ERROR, 0, len(body), ident, code, of, 0, 0, 0, 0, 0) + body
