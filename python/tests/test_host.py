"""One reader a host: what ranks get is what they get alone, it is read once, and the end of one
ends no other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest
from conftest import children, run

from shardtool import ConfigError, Loader, Order, Tuning
from shardtool._wire import host

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes share a reader on Linux alone")

#: Does what lines on stdin say, and answers each with a line of JSON.
RANK = """
import hashlib, json, os, signal, sys, shardtool
from shardtool import Loader, Order, Tuning
url, memory, share = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "shared"
def make(**more):
    options = dict(fields=["txt", "x.npy"], shuffle=True, seed=5, batch_size=10, format="numpy",
        order=Order(shuffle_memory=memory), tuning=Tuning(host=True))
    return Loader(url, **{**options, **more})
if not share:
    from shardtool._wire import host
    host.connect = shardtool._wire.client.Client
loaders, its = {}, {}
def take(name, count):
    if name not in its:
        its[name] = iter(loaders[name])
    out = []
    for _ in range(count):
        batch = next(its[name], None)
        if batch is None:
            del its[name]
            break
        checkpoint = batch.state_dict()["checkpoint"]
        text = repr((batch.sample_keys, [bytes(p) for p in batch.payloads("txt")], batch["x.npy"].tolist(), checkpoint))
        out.append(hashlib.sha256(text.encode()).hexdigest())
    return out
for line in sys.stdin:
    what = json.loads(line)
    try:
        if what["do"] == "make":
            loaders[what["name"]] = make(**what.get("more", {}))
            answer = True
        elif what["do"] == "take":
            answer = take(what["name"], what["count"])
        elif what["do"] == "stats":
            s = loaders[what["name"]].stats()
            answer = [s.blocks, s.stored_bytes, s.held]
        elif what["do"] == "close":
            its.pop(what["name"], None)
            loaders.pop(what["name"]).close()
            answer = True
        elif what["do"] == "child":
            client = loaders[what["name"]]._session.client
            answer = [type(client).__name__, getattr(getattr(client, "process", None), "pid", 0)]
    except Exception as err:
        answer = [type(err).__name__, str(err)]
    print(json.dumps(answer), flush=True)
"""


class Rank:
    """A process of a job."""

    def __init__(self, url: Path, memory: int, rank: int, world: int, share: str = "shared", **env: str) -> None:
        job = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": str(os.getpid()), **env}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **job}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(url), str(memory), share], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment, start_new_session=True, text=True,
        )  # fmt: skip

    def ask(self, do: str, name: str = "a", **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "name": name, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"it ended"')

    def say(self, do: str, name: str = "a", **more: Any) -> Any:
        self.ask(do, name, **more)
        return self.answer()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


@contextlib.contextmanager
def ranks(url: Path, memory: int, world: int, **more: Any) -> Iterator[List[Rank]]:
    made = [Rank(url, memory, rank, world, **more) for rank in range(world)]
    try:
        yield made
    finally:
        for rank in made:
            rank.end()


@pytest.fixture(scope="session")
def size(small: Path) -> Dict[str, int]:
    said: Dict[str, int] = json.loads(run("inspect", small, "--json").stdout)
    return said


def alone(url: Path, memory: int, world: int, name: str = "a", **more: Any) -> List[List[str]]:
    """What each rank gets with a child of its own."""
    out = []
    for number in range(world):
        rank = Rank(url, memory, number, world, share="alone")
        rank.say("make", name, more=more)
        out.append(rank.say("take", name, count=10_000))
        rank.end()
    return out


def everybody(made: List[Rank], do: str, name: str = "a", **more: Any) -> List[Any]:
    for rank in made:
        rank.ask(do, name, **more)
    return [rank.answer() for rank in made]


def owner(made: List[Rank]) -> int:
    """Returns the number of the rank that started the child."""
    kinds = [rank.say("child")[0] for rank in made]
    assert sorted(kinds) == ["_Member"] * (len(made) - 1) + ["_Owner"]
    return kinds.index("_Owner")


def test_ranks_share(small: Path, size: Dict[str, int]) -> None:
    memory = size["decoded_bytes"]
    want = alone(small, memory, 8, epochs=2)
    assert all(want) and len({len(batches) for batches in want}) == 1
    with ranks(small, memory, 8) as made:
        assert everybody(made, "make", more={"epochs": 2}) == [True] * 8
        assert everybody(made, "take", count=10_000) == want
        owner(made)
        again = everybody(made, "take", count=10_000)  # the next epoch
        assert again != want and list(map(len, again)) == list(map(len, want))
        assert everybody(made, "take", count=1) == [[]] * 8  # all that was read is counted at the end
        stats = everybody(made, "stats")
        assert sum(blocks for blocks, _, _ in stats) == size["blocks"]
        assert all(0 < held < 1.25 * size["decoded_bytes"] for _, _, held in stats)


def test_loaders_in_another_order(small: Path, size: Dict[str, int]) -> None:
    """Ranks make and iterate their loaders in different orders."""
    memory = size["decoded_bytes"]
    other = {"seed": 9, "batch_size": 7, "fields": ["txt", "x.npy", "cls"]}
    want = alone(small, memory, 2), alone(small, memory, 2, "b", **other)
    with ranks(small, memory, 2) as made:
        made[0].say("make")
        made[0].say("make", "b", more=other)
        made[1].say("make", "b", more=other)
        made[1].say("make")
        first = made[0].say("take", count=3), made[1].say("take", "b", count=4)
        assert first == (want[0][0][:3], want[1][1][:4])
        assert made[0].say("take", "b", count=10_000) == want[1][0]
        assert made[1].say("take", count=10_000) == want[0][1]
        assert made[0].say("take", count=10_000) == want[0][0][3:]
        assert made[1].say("take", "b", count=10_000) == want[1][1][4:]


def test_ends(small: Path, size: Dict[str, int]) -> None:
    """The process that started the child closes its loader, ends, or is killed; others are killed
    or stopped. The rest get all of their batches, and the child ends with the last of them."""
    memory = size["decoded_bytes"]
    want = alone(small, memory, 4)
    for how in ("close", "exit", "kill the owner", "kill another", "stop another"):
        with ranks(small, memory, 4) as made:
            everybody(made, "make")
            assert everybody(made, "take", count=2) == [batches[:2] for batches in want]
            first = owner(made)
            child = made[first].say("child")[1]
            gone = made[first if how in ("close", "exit", "kill the owner") else first - 1]
            rest = [rank for rank in made if rank is not gone]
            if how == "close":
                assert gone.say("close") is True
            elif how == "exit":
                assert gone.process.stdin is not None
                gone.process.stdin.close()
                gone.process.wait()
            elif how == "stop another":
                gone.process.send_signal(signal.SIGSTOP)
            else:
                gone.process.kill()
                gone.process.wait()
            got = everybody(rest, "take", count=10_000)
            assert got == [batches[2:] for rank, batches in zip(made, want) if rank is not gone], how
            if how == "stop another":
                gone.process.send_signal(signal.SIGCONT)
                assert gone.say("take", count=10_000) == want[made.index(gone)][2:]
            if how == "close":  # it comes back
                assert gone.say("make") is True
                assert gone.say("take", count=3) == want[first][:3]
                assert gone.say("child")[0] == "_Member"
            for rank in made:
                rank.end()
            ended(child)


def test_a_rank_never_iterates(small: Path, size: Dict[str, int]) -> None:
    """Ranks that make a loader and do not iterate it, or ask for one batch and no more, hold nobody
    up: not the one that started the child either."""
    memory = size["decoded_bytes"]
    want = alone(small, memory, 4)
    for idle in (0, 3):
        with ranks(small, memory, 4) as made:
            assert made[idle].say("make") is True
            assert made[idle].say("take", count=1 if idle else 0) == want[idle][: 1 if idle else 0]
            rest = [rank for rank in made if rank is not made[idle]]
            everybody(rest, "make")
            assert everybody(rest, "take", count=10_000) == [batches for rank, batches in zip(made, want) if rank is not made[idle]]
            assert made[idle].say("take", count=10_000) == want[idle][1 if idle else 0 :]


def test_the_owner_stops(small: Path, size: Dict[str, int]) -> None:
    """The process that started the child is stopped, and goes on later. Nobody else notices."""
    memory = size["decoded_bytes"]
    want = alone(small, memory, 3)
    with ranks(small, memory, 3) as made:
        everybody(made, "make")
        assert everybody(made, "take", count=2) == [batches[:2] for batches in want]
        stopped = owner(made)
        made[stopped].process.send_signal(signal.SIGSTOP)
        rest = [number for number in range(3) if number != stopped]
        assert everybody([made[n] for n in rest], "take", count=10_000) == [want[n][2:] for n in rest]
        for number in rest:
            made[number].end()
        time.sleep(1)
        made[stopped].process.send_signal(signal.SIGCONT)
        assert made[stopped].say("take", count=10_000) == want[stopped][2:]


def ended(child: int) -> None:
    """Waits for the end of a process, which may be nobody's to reap."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with contextlib.suppress(OSError), open(f"/proc/{child}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)
                continue
        return
    raise AssertionError(f"process {child} goes on")


def test_the_child_is_killed(small: Path, size: Dict[str, int]) -> None:
    """All ranks get one error. Those that go on share another child, at the same place."""
    memory = size["decoded_bytes"]
    small_batches = {"batch_size": 1}
    want = alone(small, memory, 4, **small_batches)
    with ranks(small, memory, 4) as made:
        everybody(made, "make", more=small_batches)
        everybody(made, "take", count=1)
        os.kill(made[owner(made)].say("child")[1], signal.SIGKILL)
        errors = everybody(made, "take", count=10_000)
        assert {kind for kind, _ in errors} == {"ServerDiedError"}
        assert sum("killed by signal 9" in text for _, text in errors) == 1
        assert sum("the reader of this host, which process" in text for _, text in errors) == 3
        everybody(made, "make", "b", more=small_batches)
        assert everybody(made, "take", "b", count=10_000) == want


def test_jobs_do_not_meet(small: Path, size: Dict[str, int], tmp_path: Path) -> None:
    """Jobs, settings and working directories tell processes apart; another program in place of the
    child is no reason to fail."""
    memory = size["decoded_bytes"]
    with (
        ranks(small, memory, 1) as one,
        ranks(small, memory, 1, MASTER_PORT="7") as two,
        ranks(small, memory, 1, AWS_PROFILE="another") as three,
    ):
        for made in (one, two, three):
            made[0].say("make")
            assert len(made[0].say("take", count=3)) == 3
            assert made[0].say("child")[0] == "_Owner"


def test_a_stranger_has_the_name(small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has the name of the socket, a process reads: a program that hangs up, or another
    user's."""
    name = b"\0shardtool-test-%d" % os.getpid()
    monkeypatch.setattr(host, "_name", lambda _: name)
    monkeypatch.setattr(host, "_LOOKS", 0.3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.bind(name)  # and never listens
        with Loader(small, 10, tuning=Tuning(host=True)) as loader:
            assert next(iter(loader)).size == 10
        assert "this process reads alone" in caplog.text
        stranger.listen()
        monkeypatch.setattr(os, "getuid", lambda: 1 << 20)
        with Loader(small, 10, tuning=Tuning(host=True)) as loader:
            assert next(iter(loader)).size == 10
        assert "a process of another user" in caplog.text


def test_strange_clients(small: Path, size: Dict[str, int]) -> None:
    """Clients that say nothing, lie about sizes, or leave in a frame disturb nobody."""
    name = b"\0shardtool-test-%d" % os.getpid()
    loader = Loader(small, 10, shuffle=True, tuning=Tuning(host=True), order=Order(shuffle_memory=size["decoded_bytes"]))
    before, host._name = host._name, lambda _: name  # type: ignore[assignment]
    held: List[socket.socket] = []
    try:
        it = iter(loader)
        for said in (b"", b"\x21\x00", b"\xff" * 64, b"\x21\x00\x00\x00\xff\xff\xff\xff" + bytes(56), bytes(64)):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(name)
            sock.sendall(said)
            held.append(sock)
            assert next(it).size == 10
        for sock in held[:2]:
            sock.close()
        assert next(it).size == 10
        assert children() != []
    finally:
        host._name = before
        loader.close()
        for sock in held:
            sock.close()
    child: Optional[int] = next(iter(children()), None)
    if child is not None:
        ended(child)


def test_same_order_alone_and_shared(small: Path, size: Dict[str, int]) -> None:
    """The order follows the argument alone. A state continues with or without it."""
    memory = size["decoded_bytes"]
    keys: Dict[bool, List[str]] = {}
    for share in (True, False):
        with Loader(small, 10, shuffle=True, order=Order(shuffle_memory=memory), tuning=Tuning(host=share)) as loader:
            it = iter(loader)
            first = next(it)
            state = first.state_dict()
            keys[share] = [key for batch in it for key in batch.sample_keys]
        with Loader(small, 10, shuffle=True, tuning=Tuning(host=not share)) as other:
            other.load_state_dict(state)
            assert [key for batch in other for key in batch.sample_keys] == keys[share]
    assert keys[True] != keys[False]


def test_refused() -> None:
    with pytest.raises(ConfigError, match="host and peers: give one of them"):
        Tuning(host=True, peers=object())
