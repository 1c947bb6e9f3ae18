"""The client: the child process, its frames and its segments."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

from .. import guesses, hints
from .._system import PORTABLE
from ..errors import BinaryError, ClosedError, ConfigError, ServerDiedError, ShardtoolError, VersionError, from_body
from . import program
from . import protocol as proto
from .process import Process, _alive, logger
from .regions import Region, Regions, Segment, map_file

#: Seconds without a frame after which the child counts as dead; it sends one every second.
SILENCE = 60.0

#: Not an enum, which is looked up for each call.
_DONTWAIT = int(socket.MSG_DONTWAIT)

#: The members of a frame: see protocol.frame.
Frame = Tuple[int, int, int, int, int, int, int, int, int, int, int]


def limit_silence(sock: socket.socket) -> None:
    """Lets a wait for a frame end. It is a timeout of the kernel: Python's own costs a poll()
    before every call."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(SILENCE), 0))


class Client(Regions, Process):
    """One child process and the connection to it. Only one thread at a time may call methods; any
    thread may drop regions.

    A client does not survive a fork: the forked process closes its copy of the socket and must not
    use it. Regions that are in use then stay as they are until the forked process has ended.
    """

    #: Whether batches are copied out of the memory, because other processes map it too, or because
    #: it is a file that the system would write to a disk.
    private = PORTABLE

    def __init__(self, metrics: str = "") -> None:
        if sys.byteorder != "little":
            raise ConfigError("shardtool's Python package needs a little-endian processor")
        self._prepare()
        self._connect(["--metrics", metrics] if metrics else [])
        try:
            self._hello()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self.version = ""
        self.dirty = False  # an exception interrupted a frame
        #: Called with the number of a run and its account when a heartbeat has one.
        self.hear: Callable[[int, bytes], None] = lambda run, account: None
        self._closed = False
        self._frame = bytearray(proto.FRAME)
        self._view = memoryview(self._frame)
        self._segments: Dict[int, Segment] = {}
        self._released: Deque[Tuple[int, int]] = deque()
        self._begin_regions()

    def _connect(self, options: List[str], *inherited: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock = ours
        if PORTABLE:  # macOS begins with 8 KiB, less than the answers to the samples that are asked for together
            for sock in (ours, theirs):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 10)
        fd = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
        arguments = ["serve", "--fd", str(fd), "--parent", str(os.getpid()), *options]
        try:
            self._spawn(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(fd, *inherited))
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(fd)
            theirs.close()
        self._reader = f"shardtool's child process {self.process.pid}"
        limit_silence(ours)

    def _hello(self) -> None:
        ours = program.package_version()  # while the child starts
        try:
            kind, _, size, magic, protocol, *_ = self.receive()
        except ServerDiedError as err:
            raise BinaryError(f"{self.binary} cannot be used: package and binary must be of one version. {err}") from err
        if kind != proto.HELLO or magic != proto.MAGIC or size > proto.MAX_BODY:
            raise BinaryError(f"{self.binary} is not the program shardtool: correct SHARDTOOL_BINARY or PATH")
        self.version = self.body(size).decode("utf-8", "replace")
        if protocol != proto.PROTOCOL:
            raise VersionError(
                f"{self.binary} is shardtool {self.version} and speaks protocol {protocol}; this Python package"
                f" {ours and f'is {ours} and '}speaks {proto.PROTOCOL}: install package and binary of one version",
                package=ours,
                program=self.version,
            )
        program.check_release(self.binary, self.version, ours)

    # Frames

    def send(self, data: bytes) -> None:
        """Sends frames, after the RELEASEs that are queued."""
        self.dirty = True
        self._settle_dropped()
        try:
            self._sock.sendall(self._releases() + data)
        except OSError:  # also if another thread closed it
            raise self._died("the child ended") from None
        self.dirty = False

    def _releases(self) -> bytes:
        """Returns the RELEASEs that are queued."""
        out = []
        while self._released:
            out.append(proto.pack_release(*self._released.popleft()))
        return b"".join(out)

    def ready(self) -> Optional[Frame]:
        """Returns the next frame if one has arrived, else None."""
        self.dirty = True
        try:
            got = self._sock.recv_into(self._view, 0, _DONTWAIT)
        except BlockingIOError:
            self.dirty = False
            return None
        except OSError:
            got = 0
        if got == 0:
            raise self._died("the child ended")
        return self.receive(got)

    def receive(self, got: int = 0) -> Frame:
        """Returns the next frame, of which ``got`` bytes have arrived. The caller must read its
        body with body(). Raises ServerDiedError after SILENCE."""
        self.dirty = True
        flags = 0
        while got < proto.FRAME:
            try:
                n = self._sock.recv_into(self._view[got:] if got else self._view, 0, flags)
            except BlockingIOError:
                if flags:
                    raise self._died(f"the child did not respond for {SILENCE:.0f} s") from None
                # Both processes may have been stopped, and continued together: the child then sends
                # one now.
                time.sleep(2.5)
                flags = _DONTWAIT
                continue
            except OSError:
                n = 0
            if n == 0:
                raise self._died("the child ended")
            got += n
        self.dirty = False
        return proto.frame.unpack(self._frame)

    def body(self, size: int) -> bytes:
        """Reads the body of the latest frame."""
        self.dirty = True
        out = bytearray(size)
        view = memoryview(out)
        while view:
            try:
                n = self._sock.recv_into(view)
            except OSError:
                n = 0
            if n == 0:
                raise self._died("the child ended in the middle of a message")
            view = view[n:]
        self.dirty = False
        return bytes(out)

    def expect(self, kind: int, of: int, ident: int) -> Frame:
        """Returns the next frame of a kind, or END of the run ``ident``. Raises an error that
        answers request ``of`` with number ``ident``; drops frames of earlier requests."""
        while True:
            frame = self.receive()
            got = frame[0]
            if got == kind or (got == proto.END and kind == proto.BATCH and frame[3] == ident):
                return frame
            err = self.aside(frame)
            if err is not None and frame[5] == of and frame[3] == ident:
                raise err

    def gather(self, idents: range) -> "Dict[int, Union[Frame, ShardtoolError]]":
        """Returns the answers to GETs by their numbers. The caller must release each SAMPLE."""
        out: Dict[int, Union[Frame, ShardtoolError]] = {}
        while len(out) < len(idents):
            frame = self.receive()
            if frame[0] == proto.SAMPLE and frame[3] in idents:
                out[frame[3]] = frame
                continue
            err = self.aside(frame)
            if err is not None and frame[5] == proto.GET and frame[3] in idents:
                out[frame[3]] = err
        return out

    def aside(self, frame: Frame) -> Optional[ShardtoolError]:
        """Handles a frame that no caller waits for. Returns the error of a request; raises an
        error of the connection."""
        kind = frame[0]
        if kind == proto.SEGMENT:
            self._map(frame[4], frame[7])
        elif kind == proto.RETIRE:
            self._unmap(frame[4])
        elif kind == proto.HEARTBEAT:
            self._heartbeat()
        elif kind in (proto.BATCH, proto.SAMPLE):
            self.release(frame[4], frame[6])
        elif kind == proto.ERROR:
            err = from_body(json.loads(self.body(frame[2])), frame[4], hints.reading)
            if frame[5] == 0:
                raise err
            return err
        elif kind in (proto.INFO, proto.STARTED):
            self.body(frame[2])
        elif kind != proto.END:
            raise BinaryError(f"{self.binary} sent a message of kind {kind}, which is unknown: install package and binary of one version")
        return None

    def call(self, request: bytes, kind: int, of: int, ident: int = 0) -> Any:
        """Sends a request and returns the JSON of its answer."""
        self.send(request)
        frame = self.expect(kind, of, ident)
        return json.loads(self.body(frame[2]))

    def _heartbeat(self) -> None:
        _, _, size, run, waited, *_ = proto.words.unpack(self._frame)
        if size:
            self.hear(run, self.body(size))
        waited /= 1000
        if waited in (30, 120, 600) or (waited and waited % 3600 == 0):
            logger.warning("waiting for data for %d s: the store is slow or hangs; %s is alive", waited, self._reader)
        self.forward()

    # Segments

    def _map(self, number: int, length: int) -> None:
        fd = self._file()
        try:
            self._mapped(number, fd, length)
        finally:
            os.close(fd)

    def _file(self) -> int:
        """Receives the file of a segment."""
        self.dirty = True
        fd = received_file(self._sock)
        if fd is None:
            raise self._died("a segment without a file descriptor")
        self.dirty = False
        return fd

    def _mapped(self, number: int, fd: int, length: int) -> None:
        self._segments[number] = map_file(fd, length)

    def _unmap(self, number: int) -> None:
        self._segments.pop(number, None)

    def claim(self, segment: int, offset: int) -> "Tuple[Any, Region]":
        """Returns the segment as a buffer, and the region, which is released when nothing refers to
        the buffer any more."""
        return self._buffer(self._segment(segment), (segment, offset))

    def mapped(self, segment: int) -> mmap.mmap:
        """Returns the segment, to copy from."""
        return self._segment(segment)[0]

    def _segment(self, number: int) -> Segment:
        found = self._segments.get(number)
        if found is None:  # another thread closed the client meanwhile
            raise self._died("the child sent a batch in an unknown segment")
        return found

    def release(self, segment: int, offset: int) -> None:  # type: ignore[override]
        """Releases a region. That is told with the next frame."""
        self._released.append((segment, offset))

    # The end

    def forward(self) -> None:
        """Logs the warnings that the child wrote to stderr."""
        text = self._said()
        if text:
            os.ftruncate(self._stderr, 0)
            for line in text.splitlines():
                logger.warning("%s", line)

    def _died(self, what: str) -> ShardtoolError:
        if self.pid != os.getpid():
            return ClosedError("this reader belongs to the process that forked this one: make or iterate one here")
        if self._closed:
            return ClosedError("the loader or data set was closed")
        self._sock.close()
        return self._ended(what, 5)

    @property
    def alive(self) -> bool:
        """Whether the connection can be used."""
        return self.pid == os.getpid() and not self.dirty and self._sock.fileno() >= 0

    def close(self) -> None:
        """Ends the child. Regions in use stay readable."""
        if self.pid != os.getpid():
            return
        self._closed = True
        if self._sock.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._sock.send(proto.pack(proto.STOP), _DONTWAIT)
                self._sock.shutdown(socket.SHUT_RDWR)  # another thread may be waiting for a frame
            self._sock.close()
        self._end(5)
        self.forward()
        self._close_stderr()
        self._segments.clear()
        self._forks.clear()

    def forget(self) -> None:
        """In a forked process: leaves the child to the parent."""
        self._sock.close()
        self._forks.clear()
        super().forget()


class Joined(Client):
    """A client of what another process has started."""

    #: What an error says where it ended.
    ended = "ended"

    def __init__(self, sock: socket.socket, reader: str) -> None:
        self._prepare()
        self.pid, self.binary, self._stderr = os.getpid(), reader, -1
        self._sock, self._reader = sock, reader
        limit_silence(sock)
        _alive.add(self)

    def forward(self) -> None:
        """The process that started it logs what it writes."""

    def _died(self, what: str) -> ShardtoolError:
        if self.pid != os.getpid() or self._closed:
            return super()._died(what)
        self._sock.close()
        return ServerDiedError(f"{self._reader}, {f'did not respond for {SILENCE:.0f} s' if 'respond' in what else self.ended}")

    def _end(self, seconds: Optional[float]) -> bool:
        return True

    def _close_stderr(self) -> None:
        _alive.discard(self)

    def forget(self) -> None:
        """In a forked process: closes the copy of the connection."""
        self._sock.close()
        self._forks.clear()


def received_file(sock: socket.socket) -> Optional[int]:
    """Receives a file that was sent with one byte; None if it was not."""
    _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(4), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    if not ancillary:
        return None
    fd = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
    os.set_inheritable(fd, False)  # macOS has no flag for it
    return fd


class Session:
    """The child of a loader or data set, started at first use. It is not pickled and does not
    survive forks."""

    def __init__(self, start: Callable[[str], Client] = Client) -> None:
        self._start = start
        self.client: Optional[Client] = None
        #: The body of INFO; empty without a client.
        self.info: Dict[str, Any] = {}
        self._finalizer: Optional[Any] = None

    @property
    def lost(self) -> bool:
        """Whether there was a client that can no longer be used."""
        return self.client is not None and not self.client.alive

    def connect(self, owner: object, request: Dict[str, Any], metrics: str = "") -> Client:
        """Returns the client, with the data set open. The child ends with its owner and with this
        process."""
        if self.client is not None and self.client.alive:
            return self.client
        self.close()
        self.client = self._start(metrics)
        self._finalizer = weakref.finalize(owner, self.client.close)
        try:
            self.info = self.client.call(proto.pack_open(json.dumps(request).encode()), proto.INFO, proto.OPEN)
        except BaseException:
            self.close()
            raise
        return self.client

    def facts(self) -> Dict[str, Any]:
        """Returns INFO as users see it."""
        return guesses.Facts({name: value for name, value in self.info.items() if name not in ("ranks", "metrics")})

    def close(self) -> None:
        """Ends the child, if there is one."""
        client, self.client, self.info = self.client, None, {}
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if client is not None:
            client.close()
