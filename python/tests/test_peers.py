"""Peers of a rank: one process reads, all get its batches, and no end of one leaves another
waiting."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import peers_help
import pytest

from shardtool import ConfigError, Loader, Order, Tuning, _system
from shardtool._wire import protocol as proto
from shardtool._wire.client import Client
from shardtool._wire.peers import CLIENT, PRESENCE, Peers, Reader, _PeerClient, watch

OPTIONS: Dict[str, Any] = {
    "fields": ["txt", "x.npy"],
    "shuffle": True,
    "seed": 5,
    "epochs": 2,
    "rank": 0,
    "world_size": 1,
    "batch_size": 50,
}
#: Batches that are not all read ahead, because there are more than 64.
MANY = {"batch_size": 2}

Lines = List[Dict[str, Any]]


def job(url: Any, count: int, folder: Path, **asked: Any) -> List[Lines]:
    """Runs the peers, and returns the lines of each."""
    folder.mkdir(exist_ok=True)
    asked = {"url": url if isinstance(url, dict) else str(url), "count": count, "folder": str(folder), **asked}
    asked["options"] = {**OPTIONS, **asked.get("options", {})}
    program = [sys.executable, peers_help.__file__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    made = [
        subprocess.Popen([*program, json.dumps({**asked, "index": i})], stdout=subprocess.PIPE, env=environment, start_new_session=True)
        for i in range(count)
    ]
    outs: List[bytes] = [b""] * count
    idle = {int(i) for i, do in asked.get("do", {}).items() if do.get("idle")}

    def listen(i: int) -> None:
        outs[i] = made[i].communicate()[0]

    threads = [threading.Thread(target=listen, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for i in sorted(range(count), key=idle.__contains__):
        if i in idle:
            (folder / "done").touch()
        threads[i].join(300)
        assert not threads[i].is_alive(), f"peer {i} of {count} hangs"
    return [[json.loads(line) for line in out.splitlines()] for out in outs]


def alone(url: Any, options: Optional[Dict[str, Any]] = None, load: Any = None, epochs: int = 2) -> List[Dict[str, Any]]:
    """The batches of a Loader without peers."""
    given = {**OPTIONS, **(options or {})}
    order = Order(**given.pop("order", {}))
    with Loader(url, tuning=Tuning(out="bytes"), order=order, **given) as loader:
        if load:
            loader.load_state_dict(load)
        return [peers_help.seen(loader, batch) for _ in range(loader.epoch, epochs) for batch in loader]


def batches(lines: Lines) -> Lines:
    return [line for line in lines if "batch" in line]


def errors(lines: Lines) -> List[Tuple[str, str]]:
    return [(line["error"], line["message"]) for line in lines if "error" in line]


class Counting(BaseHTTPRequestHandler):
    """A web server that counts the bytes it gives."""

    protocol_version = "HTTP/1.1"
    root: Path
    given: List[int]

    def do_GET(self) -> None:
        path = self.root / self.path.lstrip("/").partition("?")[0]
        data = path.read_bytes() if path.is_file() else None
        if data is None:
            self.send_error(404)
            return
        size, status = len(data), 200
        asked = self.headers.get("Range")
        first, last = 0, size - 1
        if asked:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = (int(begin), min(int(end), size - 1) if end else size - 1) if begin else (size - int(end), size - 1)
            status = 206
        self.send_response(status)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{size}"')
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if self.command == "GET":
            self.given.append(last - first + 1)
            self.wfile.write(data[first : last + 1])

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web(small: Path) -> "Iterator[Tuple[str, List[int]]]":
    handler = type("Handler", (Counting,), {"root": small, "given": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler.given  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def test_eight_of_one_rank(web: "Tuple[str, List[int]]", tmp_path: Path) -> None:
    """The store gives each byte once, and all have the same batches and states, as one alone."""
    url, given = web
    want = alone(url)
    once = sum(given)
    given.clear()
    got = job(url, 8, tmp_path / "group", do={"all": {"loops": 2, "len": True}})
    assert sum(given) < 1.1 * once  # what is read twice, as pieces that were evicted, depends on the pace
    for lines in got:
        assert lines[0] == {"len": 20} and batches(lines) == want and lines[-1] == got[0][-1]
    assert len(want) == 40 and got[0][-1]["state"]["checkpoint"]


@pytest.mark.parametrize("hosts", [False, True])
def test_pace_and_a_small_ring(small: Path, tmp_path: Path, hosts: bool) -> None:
    """Slow and fast peers get the same, in little shared memory, on one host and between hosts."""
    options = {"ring": 256 << 10, "epochs": 1, "batch_size": 10, "fields": ["txt", "bin"]}
    do = {"0": {"slow": 0.002}, "1": {}, "2": {"slow": 0.01}}
    got = job(small, 3, tmp_path / "group", options=options, do=do, hosts=hosts)
    options.pop("ring")
    want = alone(small, options, epochs=1)
    assert [batches(lines) for lines in got] == [want] * 3 and len(want) == 100


def test_ranks_and_resume(small: Path, tmp_path: Path) -> None:
    """Two ranks of two peers. The state of any of them continues any rank of another job."""
    saved: List[Any] = []
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, "batch_size": 20}
        got = job(small, 2, tmp_path / f"rank{rank}", options=options, do={"all": {"break": [0, 7]}})
        assert [batches(lines) for lines in got] == [alone(small, options)[:7]] * 2
        saved += [lines[-1]["state"] for lines in got]
    assert all(state == saved[0] for state in saved)
    options = {"order": {"global_batch": 40}}
    for key in ("batch_size",):
        options[key] = None
    got = job(small, 3, tmp_path / "on", options=options, do={"all": {"load": saved[3], "loops": 2}})
    assert [batches(lines) for lines in got] == [alone(small, options, load=saved[0])] * 3
    assert len(got[0]) == 18 + 25 + 1


def test_leave_together(small: Path, tmp_path: Path) -> None:
    """Peers that leave after the same batch begin the next epoch together."""
    got = job(small, 3, tmp_path / "group", do={"all": {"break": [0, 4], "loops": 2, "slow": 0.005}})
    want = alone(small)
    assert [batches(lines)[:4] for lines in got] == [want[:4]] * 3
    assert [[b["keys"] for b in batches(lines)[4:]] for lines in got] == [[b["keys"] for b in want[20:]]] * 3


def test_mixes_and_units(small: Path, tmp_path: Path) -> None:
    mix = {"sources": {"a": {"data": str(small), "weight": 3}, "b": {"data": str(small), "weight": 1}}}
    got = job(mix, 2, tmp_path / "mix", options={"epochs": 1})
    assert [batches(lines) for lines in got] == [alone(mix, {"epochs": 1}, epochs=1)] * 2
    pytest.importorskip("numpy")
    from test_units import write

    docs = write(tmp_path / "docs")
    got = job(docs, 2, tmp_path / "units", options={"units": 96, "epochs": 1, "fields": None, "batch_size": 4})
    assert batches(got[0]) == batches(got[1]) and len(got[0]) > 10


@pytest.mark.parametrize("hosts", [False, True])
def test_weights(small: Path, tmp_path: Path, hosts: bool) -> None:
    """Peers set the weights of a mix together; other weights are an error on all."""
    mix = {"sources": {"a": {"data": str(small), "weight": 3}, "b": {"data": str(small), "weight": 1}}}
    options = {"epochs": 1}
    plain = job(mix, 2, tmp_path / "plain", options=options, hosts=hosts)
    got = job(mix, 2, tmp_path / "mix", options=options, hosts=hosts, do={"all": {"steer": [3, {"b": 1}]}})
    assert got[0] == got[1] and len(batches(got[0])) > 4
    assert batches(got[0])[:3] == batches(plain[0])[:3] and batches(got[0])[3:5] != batches(plain[0])[3:5]
    assert '"steered":[' in got[0][-1]["state"]["checkpoint"]
    got = job(mix, 2, tmp_path / "other", options=options, hosts=hosts, do={str(i): {"steer": [3, {"b": 1, "a": i}]} for i in range(2)})
    for lines in got:
        ((kind, message),) = errors(lines)
        assert kind == "ConfigError" and 'weights is {"a":0.0,"b":1.0} in peer 0 and {"a":1.0,"b":1.0} in peer 1' in message


@pytest.mark.parametrize("hosts", [False, True])
def test_reader_is_killed(small: Path, tmp_path: Path, hosts: bool) -> None:
    """A process that it forked does not hide its end."""
    got = job(small, 3, tmp_path / "group", hosts=hosts, options=MANY, do={"0": {"fork": 4, "kill": 5}, "all": {"slow": 0.01}})
    for lines in got[1:]:
        ((kind, message),) = errors(lines)
        assert kind == "ServerDiedError" and "which reads for its peers, ended without closing its loader: it was killed" in message
        assert hosts or len(batches(lines)) >= 4  # with a process, what it had sent to another host may be lost


def test_other_peer_is_killed(small: Path, tmp_path: Path) -> None:
    got = job(small, 3, tmp_path / "group", options=MANY, do={"2": {"kill": 5}, "all": {"slow": 0.01}})
    for lines in got[:2]:
        ((kind, message),) = errors(lines)
        assert kind == "ServerDiedError" and message.startswith("peer 2 ended without closing its loader")


def test_one_leaves_and_idles(small: Path, tmp_path: Path) -> None:
    """The others go on to the end of the epoch."""
    options = {"epochs": 1, "batch_size": 5, "ring": 256 << 10, "fields": ["txt", "bin"]}
    got = job(small, 3, tmp_path / "group", options=options, do={"1": {"break": [0, 3], "idle": True}})
    assert [len(lines) for lines in got] == [201, 4, 201]  # the last has the state, also of the one that idled
    got = job(small, 3, tmp_path / "none", options=options, do={"1": {"give_up": True, "loops": 0, "idle": True}})
    assert [len(lines) for lines in got] == [201, 1, 201]


def test_all_give_up(small: Path, tmp_path: Path) -> None:
    """Iterations that end before the first batch leave the place as it is."""
    got = job(small, 2, tmp_path / "group", do={"all": {"give_up": True}})
    assert [batches(lines) for lines in got] == [alone(small)[:20]] * 2


def test_one_leaves_and_begins_again(small: Path, tmp_path: Path) -> None:
    """Peers that do not iterate alike get an error, all of them."""
    got = job(small, 3, tmp_path / "group", options={**MANY, "epochs": 5}, do={"1": {"break": [0, 3], "loops": 2}, "all": {"loops": 5}})
    for lines in got:
        ((kind, message),) = errors(lines)
        assert kind == "ConfigError" and "after the same batch: peer 1 began another iteration, and peers 0, 2 went on" in message


def test_one_closes(small: Path, tmp_path: Path) -> None:
    got = job(small, 3, tmp_path / "group", do={"1": {"close": 3}, "all": {"loops": 2}})
    assert [len(batches(lines)) for lines in got] == [40, 3, 40] and not any(map(errors, got))


def test_reader_closes(small: Path, tmp_path: Path) -> None:
    """What it got, the others get, too; then they learn of it."""
    got = job(small, 3, tmp_path / "group", options=MANY, do={"0": {"close": 10}, "all": {"loops": 2, "slow": 0.01}})
    for lines in got[1:]:
        ((kind, message),) = errors(lines)
        assert kind == "ClosedError" and message == "the process that reads for its peers, peer 0, closed its loader"
        assert 10 <= len(batches(lines)) < 1000


@pytest.mark.parametrize("hosts", [False, True])
def test_reader_ends_first(small: Path, tmp_path: Path, hosts: bool) -> None:
    """A slow peer gets all batches of a reader that has ended."""
    got = job(small, 2, tmp_path / "group", hosts=hosts, options={"epochs": 1}, do={"1": {"slow": 0.1}})
    assert len(batches(got[1])) == 20 and not errors(got[1])


def test_damage(damaged: Path, tmp_path: Path) -> None:
    """An error of the reader reaches all, at the same batch, each time."""
    got = job(damaged, 3, tmp_path / "group", do={"all": {"again": True}})
    assert all(lines == got[0] for lines in got)
    assert errors(got[0])[0][0] == "CorruptError"
    options = {"on_error": "skip", "epochs": 1}
    got = job(damaged, 3, tmp_path / "skips", options=options)
    assert all(lines == got[0] for lines in got)


def test_child_is_killed(small: Path, tmp_path: Path) -> None:
    """The next iteration starts another, and continues after the last batch of all."""
    got = job(
        small, 3, tmp_path / "group", options={**MANY, "epochs": 1}, do={"0": {"kill_child": 7, "again": True}, "all": {"again": True}}
    )
    want = alone(small, {**MANY, "epochs": 1}, epochs=1)
    for i, lines in enumerate(got):
        ((kind, message),) = errors(lines)
        said = "killed by signal 9" if i == 0 else "the child of process"
        assert kind == "ServerDiedError" and said in message
        assert batches(lines) == want and "error" not in lines[-1]


def test_child_is_killed_and_one_gives_up(small: Path, tmp_path: Path) -> None:
    """The others go on without it."""
    again = {"again": True}
    got = job(small, 3, tmp_path / "group", options={**MANY, "epochs": 1}, do={"0": {"kill_child": 7, **again}, "1": {}, "2": again})
    want = alone(small, {**MANY, "epochs": 1}, epochs=1)
    assert all(errors(lines)[0][0] == "ServerDiedError" for lines in got)
    assert [batches(lines) == want for lines in got] == [True, False, True]


def test_who_is_gone() -> None:
    """Another child knows who had closed its loader before."""
    reader = Reader(3, "", {}, 3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(bytes.fromhex(reader.name))
        sock.sendall(proto.pack(proto.JOIN, 2, PRESENCE, body=reader.secret.encode()) + proto.pack(proto.BYE))
        assert sock.recv(1) == b""
    assert reader.child is not None
    before = reader.child.process
    before.kill()
    before.wait()
    assert isinstance(reader.start(), Client)
    assert reader.child.process is not before and reader._gone == [2]
    assert reader.start() is reader.child
    reader.close()


def test_no_data(tmp_path: Path, small: Path) -> None:
    """What cannot be opened or begun is an error on all. The reader may have closed its loader for
    it when another begins."""
    (tmp_path / "empty").mkdir()
    for url, options, kind in ((tmp_path / "empty", {}, "NotFoundError"), (small, {"fields": ["none"]}, "ConfigError")):
        got = job(url, 2, tmp_path / kind, options=options)
        assert errors(got[0])[0][0] == kind and errors(got[1])[0][0] in (kind, "ServerDiedError", "ClosedError")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fields": ["txt"]}, "columns is"),
        ({"rank": 1, "world_size": 2}, "rank is 0 in peer 0 and 1 in peer 1"),
        ({"seed": 9}, "seed is 5 in peer 0 and 9 in peer 1"),
        ({"order": {"lanes": 3}}, "lanes is not given in peer 0 and 3 in peer 1"),
    ],
)
def test_different_loaders(small: Path, tmp_path: Path, options: Dict[str, Any], said: str) -> None:
    got = job(small, 2, tmp_path / "group", do={"1": {"options": options}})
    for lines in got:
        ((kind, message),) = errors(lines)
        assert kind == "ConfigError" and said in message


def test_different_data(small: Path, damaged: Path, tmp_path: Path) -> None:
    got = job(small, 2, tmp_path / "group", do={"1": {"url": str(damaged)}})
    for lines in got:
        ((kind, message),) = errors(lines)
        assert kind == "ConfigError" and f'address is "{small}" in peer 0 and "{damaged}" in peer 1' in message


def test_different_states(small: Path, tmp_path: Path) -> None:
    """A state that only one of them loads is an error on all."""
    with Loader(small, tuning=Tuning(out="bytes"), **OPTIONS) as loader:
        next(iter(loader))
        state = loader.state_dict()
    got = job(small, 2, tmp_path / "group", do={"1": {"load": state}})
    for lines in got:
        ((kind, message),) = errors(lines)
        assert kind == "ConfigError" and "load one state" in message


def test_arguments(small: Path) -> None:
    class One:
        rank, size = 0, 1

        def allgather(self, value: Any) -> List[Any]:
            return [value]

    with Loader(small, tuning=Tuning(out="bytes", peers=One()), **OPTIONS) as loader:
        assert sum(1 for _ in loader) == 20
    with pytest.raises(ConfigError, match="give rank and world_size"):
        Loader(small, 10, tuning=Tuning(peers=One()))
    with pytest.raises(ConfigError, match="give a process group"):
        Loader(small, tuning=Tuning(out="bytes", peers=5), **OPTIONS)
    with pytest.raises(TypeError, match="tuning=Tuning\\(peers="):
        Loader(small, 10, peers=One())  # type: ignore[call-arg]


def test_strangers() -> None:
    """Connections without the secret are closed, whatever they send."""
    reader = Reader(2, "", {}, 2)
    for sent in (
        b"GET / HTTP/1.1\r\n\r\n" * 10,
        bytes(64),
        proto.pack(proto.JOIN, 1, 0, body=b"x" * 32),
        proto.words.pack(proto.JOIN, 0, 1 << 31, 0, 0, 0, 0, 0, 0, 0),
        proto.pack(proto.JOIN, 1 << 40, 0, body=reader.secret.encode()),
        proto.pack(proto.OPEN, body=b"{}"),
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(bytes.fromhex(reader.name))
            sock.settimeout(300)
            sock.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""
    reader.close()


def test_many_strangers() -> None:
    """Connections that say nothing take little room, and no peer waits for them. Only the addresses
    that other peers are told are listened at."""
    reader = Reader(2, "", {"address": "/none"}, 1, ["127.0.0.1", "192.0.2.1"])
    with contextlib.ExitStack() as stack, pytest.raises(ConnectionRefusedError):
        for _ in range(300):
            silent = stack.enter_context(socket.socket())
            silent.connect(("127.0.0.1", reader.port))
        peer = stack.enter_context(socket.create_connection(("127.0.0.1", reader.port), 300))
        peer.sendall(proto.pack(proto.JOIN, 1, CLIENT, body=reader.secret.encode()) + proto.pack_open(b'{"address": "/none"}'))
        kind, _, _, _, code, *_ = proto.frame.unpack(peer.recv(64, socket.MSG_WAITALL))
        assert (kind, code) == (proto.ERROR, 6)
        assert reader.child is not None
        if sys.platform == "linux":
            assert len(os.listdir(f"/proc/{reader.child.process.pid}/fd")) < 150
        stack.enter_context(socket.create_connection(("127.0.0.2", reader.port)))  # another address of this host
    reader.close()


def test_host_is_gone() -> None:
    """The end of a host is noticed, without a limit for a process that pauses."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        watch(sock)
        tcp = socket.IPPROTO_TCP
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(tcp, socket.TCP_KEEPINTVL) * sock.getsockopt(tcp, socket.TCP_KEEPCNT) == 40
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(tcp, socket.TCP_KEEPIDLE) == 20


def test_batches_from_another_host() -> None:
    """One that no one wants is freed; one that cannot be held ends the connection."""
    ours, theirs = socket.socketpair()
    client = _PeerClient(ours, False, "process 1")
    with theirs:
        theirs.sendall(proto.frame.pack(proto.BATCH, 0, 0, 0, 1, 1, 0, 5, 0, 0, 0) + b"12345")
        client.aside(client.receive())
        assert not client._segments and not client._released and client.alive
        theirs.sendall(proto.frame.pack(proto.BATCH, 0, 0, 0, 1, 1, 0, 1 << 62, 0, 0, 0))
        with pytest.raises((OSError, OverflowError, ValueError)):
            client.receive()
        assert not client.alive and ours.fileno() < 0
    client.close()


def test_a_meeting_fails() -> None:
    """An error of the group is raised as it is, and leaves nothing behind."""
    said: List[Any] = []

    class Group:
        rank, size, calls = 0, 2, 0

        def allgather(self, value: Any) -> List[Any]:
            self.calls += 1
            if self.calls > 1:
                said.append(value)
                raise KeyboardInterrupt
            return [value, value]

    with pytest.raises(KeyboardInterrupt):
        Peers(Group(), "", {})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, pytest.raises(OSError):
        sock.connect(bytes.fromhex(said[0]["name"]))


def test_name_of_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is a file, it has a short name, and is gone at the end."""
    from multiprocessing import util

    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(_system, "PORTABLE", True)
    monkeypatch.setattr(util, "get_temp_dir", lambda: str(folder))
    reader = Reader(2, "", {}, 2)
    path = Path(os.fsdecode(bytes.fromhex(reader.name)))
    assert path.exists() and len(str(path)) < 100
    reader.close()
    assert not path.exists()
