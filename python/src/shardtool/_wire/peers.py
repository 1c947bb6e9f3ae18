"""Peers of a rank: processes that get the same batches, as those of tensor, pipeline and context
parallelism do. The first starts a child process, and all connect to it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import socket
import struct
import sys
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .._system import address, close_listener
from ..errors import ClosedError, ConfigError, ServerDiedError, ShardtoolError
from . import protocol as proto
from .client import Client, Frame, Joined
from .process import logger

#: What a connection is for: the presence of a peer, or a client of it.
PRESENCE, CLIENT = 0, 1

#: Seconds that a connection to another host may take to be made, for each of its addresses.
_CONNECT = 15.0

#: Returns what each member of a group gave, in the order of their numbers.
Gather = Callable[[Any], List[Any]]

_SIOCGIFADDR = 0x8915

#: An address that no host has (RFC 5737): the way to it begins at the default interface.
_ELSEWHERE = "192.0.2.1"


def watch(sock: socket.socket) -> None:
    """Makes a connection between hosts end within about a minute when the other host is gone. There
    is no limit for data that the other process does not take, which may pause for longer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for names, value in ((("TCP_KEEPIDLE", "TCP_KEEPALIVE"), 20), (("TCP_KEEPINTVL",), 10), (("TCP_KEEPCNT",), 4)):
        option = next((getattr(socket, name) for name in names if hasattr(socket, name)), None)  # macOS has the second
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Reader:
    """What the first peer has: the sockets at which its child listens, and the child."""

    def __init__(self, count: int, metrics: str, opening: Dict[str, Any], near: int, hosts: Sequence[str] = ()) -> None:
        """``near`` peers are on this host; the others reach it at the addresses ``hosts``, and no
        interface without one of them is listened at. ``opening`` is the OPEN of this peer."""
        self.secret, self._metrics = os.urandom(16).hex(), metrics
        #: The port for other hosts; 0 if no peers are elsewhere, or no address is this host's.
        self.port = 0
        self._listeners = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)]
        self.child: Optional[_Child] = None
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
        if ranks.isdigit():  # the child has the processors of all peers here
            opening = dict(opening, local_ranks=max(1, int(ranks) // near))
        self._gone: List[int] = []
        self._asked = {"count": count, "secret": self.secret, "opening": opening, "gone": self._gone}
        try:
            self._listeners[0].bind(address())
            #: Where peers on this host connect.
            self.name = os.fsencode(self._listeners[0].getsockname()).hex()
            for host in hosts if near < count else ():
                with contextlib.suppress(OSError):  # an address of something between the hosts
                    self._listeners.append(socket.create_server((host, self.port)))
                    self.port = int(self._listeners[1].getsockname()[1])
            for sock in self._listeners:
                sock.listen(2 * count + 128)
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> Client:
        """Starts the child, unless it runs. The connections of peers wait for it meanwhile."""
        child, self.child = self.child, None
        if child is not None:
            with contextlib.suppress(ServerDiedError):
                frame = child.ready()
                while frame is not None:
                    self._gone.append(frame[3])
                    frame = child.ready()
                self.child = child
                return child
            child.close()
        self.child = child = _Child(self._metrics, self._listeners)
        child.send(proto.pack(proto.PEERS, body=json.dumps(self._asked).encode()))
        return child

    def close(self) -> None:
        """Ends the child, once the peers have what was read for them."""
        for sock in self._listeners:
            close_listener(sock)
        child, self.child = self.child, None
        if child is not None:
            child.finish()

    def forget(self) -> None:
        """In a forked process: closes the copies of the sockets."""
        for sock in self._listeners:
            sock.close()


class _Child(Client):
    """The child that serves the peers. Its client is told who they are, and nothing else."""

    def __init__(self, metrics: str, listeners: Sequence[socket.socket]) -> None:
        self._listeners = listeners
        super().__init__(metrics)

    def _connect(self, options: List[str], *inherited: int) -> None:
        fds = [fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD_CLOEXEC, 3) for sock in self._listeners]
        try:
            super()._connect([*options, "--peers", ",".join(map(str, fds))], *fds, *inherited)
        finally:
            for fd in fds:
                os.close(fd)
            del self._listeners

    def finish(self) -> None:
        """Ends the child, which first gives the peers what it has read for them. Meanwhile it sends
        signs of life."""
        with contextlib.suppress(ShardtoolError, OSError):
            self.send(proto.pack(proto.STOP))
            while True:
                self.receive()
        self.close()


class Peers:
    """This process among the peers of a rank, from the making of a loader to its end."""

    def __init__(self, group: Any, metrics: str, opening: Dict[str, Any]) -> None:
        """Meets the others. All of them must call it. ``opening`` is what OPEN will ask for."""
        self.index, self.count, gather = _members(group)
        self.pid = os.getpid()
        self._reader: Optional[Reader] = None
        self._presence: Optional[socket.socket] = None
        self._client: Optional[_PeerClient] = None
        _met.add(self)
        if self.count == 1:
            return
        try:
            self._meet(gather, metrics, opening)
        except BaseException:
            self.close()
            raise

    def _meet(self, gather: Gather, metrics: str, opening: Dict[str, Any]) -> None:
        places = gather({"host": _host(), "name": socket.gethostname(), "pid": self.pid})
        said: Dict[str, Any] = {}
        if self.index == 0:
            try:
                hosts, here = [place["host"] for place in places], _addresses()
                self._reader = reader = Reader(self.count, metrics, opening, hosts.count(hosts[0]), here)
                reached = [*here, socket.gethostname()] if reader.port else []  # others may know the name by another address
                said = {"name": reader.name, "secret": reader.secret, "port": reader.port, "hosts": reached}
            except Exception as err:  # the others wait for it
                said = {"error": f"{type(err).__name__}: {err}"}
        self._said = gather(said)[0]
        self._where = f"process {places[0]['pid']} on {places[0]['name']}, which reads for its peers"
        self._near = places[0]["host"] == places[self.index]["host"]
        problem = ""
        try:
            if "error" in self._said:
                raise ConfigError(f"{self._where}, cannot begin: {self._said['error']}")
            self._presence = self._open(PRESENCE)
        except ShardtoolError as err:
            problem = err.message
        failed = [(i, text) for i, text in enumerate(gather(problem)) if text]  # no one waits for one that cannot connect
        if failed:
            raise ConfigError(f"peer {failed[0][0]} of {self.count}: {failed[0][1]}")

    def _open(self, purpose: int) -> socket.socket:
        """Returns a connection to the child."""
        sock = self._reach()
        frame = proto.pack(proto.JOIN, self.index, purpose, body=self._said["secret"].encode())
        try:
            sock.sendall(frame)
        except OSError as err:
            sock.close()
            raise ServerDiedError(f"{self._where}, ended: {err}") from None
        return sock

    def _reach(self) -> socket.socket:
        if self._near:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(bytes.fromhex(self._said["name"]))
            except OSError:
                sock.close()
                raise ServerDiedError(f"{self._where}, closed its loader or ended") from None
            return sock
        failed = []
        for host in self._said["hosts"]:
            try:
                sock = socket.create_connection((host, self._said["port"]), _CONNECT)
            except OSError as err:
                failed.append(f"{host}: {err}")
                continue
            sock.settimeout(None)
            watch(sock)
            return sock
        raise ServerDiedError(
            f"{self._where}, cannot be reached at port {self._said['port']} ({'; '.join(failed) or 'it has no address'}): set"
            " GLOO_SOCKET_IFNAME to its network interface that the other hosts reach"
        )

    def connect(self, metrics: str) -> Client:
        """Returns a client of the reader."""
        if self.pid != os.getpid() or (self._presence is None and self.count > 1):
            raise ClosedError("the peers of a loader are the processes that made it: make one here, on all of them")
        if self.count == 1:
            return Client(metrics)
        child = None if self._reader is None else self._reader.start()
        self._present()
        self._client = _PeerClient(self._open(CLIENT), self._near, self._where, child)
        return self._client

    def _present(self) -> Optional[socket.socket]:
        """Returns the presence, which is made again where the child has ended: the next one has to
        know of this peer."""
        if self._presence is not None and (_over(self._presence) or (self._client is not None and self._client.over)):
            self._presence.close()
            self._presence = self._open(PRESENCE)
        return self._presence

    def left(self) -> None:
        """Tells that the loop was left before its end. The others may go on."""
        if self._client is not None and self._client.alive:
            self._client.leave()

    def close(self) -> None:
        """Parts. The process that reads first gives the others what it has read for them."""
        if self.pid != os.getpid():
            return
        with contextlib.suppress(ShardtoolError, OSError):
            presence = self._present()
            if presence is not None:
                presence.sendall(proto.pack(proto.BYE))
        if self._presence is not None:
            self._presence.close()
            self._presence = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _over(sock: socket.socket) -> bool:
    """Whether the process at the other end, which sends nothing, has ended."""
    try:
        return not sock.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


_met: "weakref.WeakSet[Peers]" = weakref.WeakSet()


def _after_fork() -> None:
    """Closes copies of sockets, with which a forked process would hide the end of this one."""
    for peers in list(_met):
        if peers._presence is not None:
            peers._presence.close()
        if peers._reader is not None:
            peers._reader.forget()
    _met.clear()


os.register_at_fork(after_in_child=_after_fork)


class _PeerClient(Joined):
    """A client of the child that serves the peers."""

    private = True
    ended = "ended: it was killed, or ran out of memory"

    def __init__(self, sock: socket.socket, near: bool, where: str, child: Optional[Client] = None) -> None:
        """``child`` is None where another process has started it."""
        super().__init__(sock, f"the child of {where}")
        self._near, self._child = near, child
        self._run = 0
        self._numbers = 1 << 20  # of memory for batches from another host
        self.over = False  # whether the child has ended

    def _died(self, what: str) -> ShardtoolError:
        err = super()._died(what)
        if isinstance(err, ServerDiedError):
            self.over = True
            if self._child is not None:
                return self._child._ended(what, 5)
        return err

    def forward(self) -> None:
        """Logs the warnings of the child, in the process that started it."""
        if self._child is not None:
            self._child.forward()

    def send(self, data: bytes) -> None:
        """As a Client does. If the child is gone, what it sent before can still be read."""
        if proto.words.unpack_from(data)[0] == proto.START:
            self._run = proto.words.unpack_from(data)[3]
        self.dirty = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                self._sock.sendall(self._releases() + data)
            except OSError as err:
                if not isinstance(err, (BrokenPipeError, ConnectionResetError)):  # another thread closed it
                    raise self._died("") from None
                raise
        self.dirty = False

    def leave(self) -> None:
        """Tells that no more batches are wanted of the run under way."""
        # Not send: a garbage collection in another thread may call this while it runs.
        with contextlib.suppress(OSError):
            self._sock.send(proto.pack(proto.LEAVE, self._run), socket.MSG_DONTWAIT)

    def aside(self, frame: Frame) -> Optional[ShardtoolError]:
        """As a Client does. After an error of the connection, the next iteration makes another."""
        try:
            return super().aside(frame)
        except ShardtoolError:
            self._sock.close()
            raise

    def receive(self, got: int = 0) -> Frame:
        """As a Client does. The bytes of a batch from another host follow its frame."""
        frame = super().receive(got)
        if self._near or frame[0] != proto.BATCH:
            return frame
        kind, flags, size, number, _, samples, _, length, *rest = frame
        self.dirty = True
        try:
            memory = mmap.mmap(-1, length)
            with memoryview(memory) as view:
                at = 0
                while at < length:
                    try:
                        n = self._sock.recv_into(view[at:])
                    except OSError:
                        n = 0
                    if n == 0:
                        raise self._died("")
                    at += n
        except BaseException:  # the rest of the batch is no frame
            self._sock.close()
            raise
        self.dirty = False
        self._numbers += 1
        self._segments[self._numbers] = memory, ctypes.c_char * length
        return (kind, flags, size, number, self._numbers, samples, 0, length, *rest)  # type: ignore[return-value]

    def release(self, segment: int, offset: int) -> None:  # type: ignore[override]
        """As a Client does; memory for a batch from another host is this process's own."""
        if self._near:
            super().release(segment, offset)
        else:
            self._segments.pop(segment, None)

    def _heartbeat(self) -> None:
        _, flags, size, run, waited, *_ = proto.words.unpack(self._frame)
        body = self.body(size) if size else b""
        seconds = waited // 1000
        if flags & proto.FOR_PEERS:
            if seconds in (30, 120, 600) or (seconds and seconds % 3600 == 0):
                logger.warning("waiting for %s of this rank for %d s, to take batches or to begin an iteration", body.decode(), seconds)
        elif body:
            self.hear(run, body)


def _members(group: Any) -> "Tuple[int, int, Gather]":
    """Returns the number of this process in a group, how many there are, and how they exchange
    values."""
    if hasattr(group, "get_group") and hasattr(group, "mesh"):  # a DeviceMesh
        if getattr(group, "ndim", 1) != 1:
            raise ConfigError("peers: give one dimension of the device mesh, such as mesh['tp']")
        group = group.get_group()
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and isinstance(group, distributed.ProcessGroup):
        index, count = int(distributed.get_rank(group)), int(distributed.get_world_size(group))
        if index < 0:
            raise ConfigError("peers: this process is not in the group: give the group that it is in")

        def gather(value: Any) -> List[Any]:
            out = [None] * count
            distributed.all_gather_object(out, value, group=group)
            return out

        return index, count, gather
    try:
        return int(group.rank), int(group.size), group.allgather
    except (AttributeError, TypeError):
        raise ConfigError(
            f"peers={group!r}: give a process group of torch.distributed, one dimension of a device mesh, or an object with rank, size"
            " and allgather(value), such as a communicator of mpi4py"
        ) from None


def _host() -> str:
    """Identifies what processes must share to map each other's memory: a kernel, and names of
    sockets."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() + os.readlink("/proc/self/ns/net")
    except OSError:
        return socket.gethostname()


def _addresses() -> List[str]:
    """Returns addresses of this host at which others may reach it, the likeliest first."""
    out = []
    for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(","):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            said = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            out.append(socket.inet_ntoa(said[20:24]))
    if out:  # the user's choice of an interface
        return list(dict.fromkeys(out))
    for other in filter(None, (os.environ.get("MASTER_ADDR"), _ELSEWHERE)):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((other, 9))  # sends nothing: the system chooses an interface
            out.append(str(sock.getsockname()[0]))
    with contextlib.suppress(OSError):
        out += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)]
    return list(dict.fromkeys(out))
