"""What a loader has delivered, and what the training process has waited for."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _protocol as proto


class Stalls(NamedTuple):
    """The wait by its causes, in seconds. A moment has one cause, so they sum to the wait. docs/stalls.md says what helps against each.

    request: A block was being read from the store, over the network or from disk.
    throttled: That read paused, because the store asked for less load, failed or broke off.
    cache: That read used the cache on local disk.
    window: The window that samples are shuffled in was being filled: at the beginning, after a resume, at the turn of an epoch.
    decode: A block was being checked, decoded and indexed.
    memory: The budget of ``memory`` was full.
    order: The batch was being planned, assembled and handed over: put into shared memory, told of, copied out.
    map: The loader's ``map`` ran.
    """

    request: float = 0.0
    throttled: float = 0.0
    cache: float = 0.0
    window: float = 0.0
    decode: float = 0.0
    memory: float = 0.0
    order: float = 0.0
    map: float = 0.0


class Stats(NamedTuple):
    """What a loader has done since it was made, over all its iterations.

    **What counts as waiting** is the time that the loop spends in asking for its next batch. While the batch is not there yet, the cause is
    what holds up the child at that moment; what remains, from a batch that is ready to the loop that has it, is ``order``; ``map`` is
    this process's own. What the child does ahead while the loop computes is waited for by nobody, and not in it. Nor is decoding of
    fields, such as images, that happens when the loop first looks at them.

    ``later - before`` is what happened between two readings. The figures are those behind the batch delivered last; while one is waited for
    they are renewed every second.

    rank, world_size: Data-parallel rank and the number of ranks; None before the first iteration, where only the environment tells them.
    batches, samples, bytes: Delivered. Padding is left out; bytes are those of all fields of the samples, as they were packed.
    elapsed: Seconds since the first iteration began, until the loader was closed.
    wait, first_wait: Seconds that the loop has waited for batches, the sum of ``stalls``, and those of them for the first batch.
    opening: Seconds that starting children and opening the data set took. They are not in ``wait``.
    stalls: The wait by causes.
    blocks, stored_bytes: Fetched, those read again included.
    evicted: Blocks that had to go for want of memory while they were still needed, and were read again.
    rereads: Reads repeated because the first gave damaged bytes.
    skipped: Samples left out because their block is damaged, as the checkpoint has them.
    held: The most bytes of blocks that the child held at once.
    """

    rank: Optional[int] = None
    world_size: Optional[int] = None
    batches: int = 0
    samples: int = 0
    bytes: int = 0
    elapsed: float = 0.0
    wait: float = 0.0
    first_wait: float = 0.0
    opening: float = 0.0
    stalls: Stalls = Stalls()
    blocks: int = 0
    stored_bytes: int = 0
    evicted: int = 0
    rereads: int = 0
    skipped: int = 0
    held: int = 0

    def __add__(self, other: object) -> "Stats":
        """Both together, as of two loaders of one rank."""
        if not isinstance(other, Stats):
            return NotImplemented
        stalls = Stalls(*(a + b for a, b in zip(self.stalls, other.stalls)))
        return other._replace(
            **{name: getattr(self, name) + getattr(other, name) for name in _COUNTED},
            stalls=stalls,
            wait=sum(stalls),
            first_wait=self.first_wait or other.first_wait,
            skipped=other.skipped or self.skipped,
            held=max(self.held, other.held),
            rank=self.rank if other.rank is None else other.rank,
            world_size=self.world_size if other.world_size is None else other.world_size,
        )

    @property
    def wait_share(self) -> float:
        """The share of the time that was waited, 0 to 1."""
        return min(1.0, self.wait / self.elapsed) if self.elapsed > 0 else 0.0

    def __sub__(self, before: "Stats") -> "Stats":
        stalls = Stalls(*(a - b for a, b in zip(self.stalls, before.stalls)))
        return self._replace(
            **{name: getattr(self, name) - getattr(before, name) for name in _COUNTED},
            stalls=stalls,
            wait=sum(stalls),
            first_wait=0.0 if before.batches else self.first_wait,
            skipped=self.skipped - before.skipped,
        )

    def as_dict(self) -> Dict[str, Any]:
        """The same as a dict of numbers, with a dict of the causes: for JSON, or for an experiment tracker."""
        return {**self._asdict(), "stalls": self.stalls._asdict()}

    def _seen_by(self, wait: int, first: int, rest: str) -> "Stats":
        """The same for a loop that others read ahead for, and that waited so many nanoseconds itself: by the causes of those others as long
        as they waited, and what goes beyond by the cause ``rest``. An estimate: whether both waited at the same time is not known."""
        share = min(1.0, wait / 1e9 / self.wait) if self.wait else 0.0
        causes = {name: s * share for name, s in self.stalls._asdict().items()}
        causes[rest] += max(0.0, wait / 1e9 - sum(causes.values()))
        stalls = Stalls(**causes)
        return self._replace(stalls=stalls, wait=sum(stalls), first_wait=first / 1e9)

    def __str__(self) -> str:
        """One line for a log."""
        per = max(self.elapsed, 1e-9)
        said = f"rank {self.rank} of {self.world_size}: {self.batches} batches, {self.batches / per:.3g}/s, "
        said += f"{self.bytes / 1e6 / per:.3g} MB/s, waited {self.wait_share:.1%}"
        causes = sorted(((s / per, name) for name, s in self.stalls._asdict().items() if s >= per / 1000), reverse=True)
        return said + "".join(f", {name} {share:.1%}" for share, name in causes[:2])


#: Places in an account: counts, causes, and what follows them.
_CAUSES = slice(3, 11)
_ORDER = 6  # among the causes
_SKIPPED, _HELD = 15, 16
_NONE = (0,) * 17


#: Figures of Stats that only grow, one by one.
_COUNTED = ("batches", "samples", "bytes", "elapsed", "opening", "blocks", "stored_bytes", "evicted", "rereads")


class Meter:
    """Measures one loader. One thread at a time waits; ``read`` is for any."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ranks: "Optional[Tuple[int, int]]" = None
        self._ended = 0
        #: When the first iteration began, of time.perf_counter_ns; 0: none has.
        self.begun = 0
        self._opening = 0
        # In one tuple, so that other threads see what belongs together: nanoseconds of wait, of map, and of the first wait; the account of
        # the run there is; the sum of those before.
        self._told: "Tuple[int, int, int, bytes, Tuple[int, ...]]" = (0, 0, 0, b"", _NONE)
        self._heard = b""  # a later account of that run, while a batch is waited for
        self._logged = Stats()
        self._due = 0

    def opened(self, begin: int, rank: int, world_size: int) -> None:
        """Begins a run, which was asked for at that time of time.perf_counter_ns."""
        now = time.perf_counter_ns()
        self._ranks = rank, world_size
        self.begun, self._ended = self.begun or begin, 0
        self._opening += now - begin
        wait, mapped, first, account, past = self._told
        self._heard = b""
        self._told = (wait, mapped, first, b"", _sum(past, _numbers(account)))

    def hear(self, mine: int, run: int, account: bytes) -> None:
        """Takes the account of a run that came while a batch is waited for, if it is mine."""
        if run == mine:
            self._heard = account

    def waited(self, account: bytes, wait: int) -> None:
        """Counts a wait that has ended, in nanoseconds, with the account behind the batch taken last."""
        had, mapped, first, _, past = self._told
        heard = self._heard
        if heard and sum(_numbers(heard)[_CAUSES]) > sum(_numbers(account)[_CAUSES]):
            account = heard  # there was no batch
        self._told = (had + wait, mapped, first or wait, account, past)
        self._heard = b""

    def mapped(self, took: int) -> None:
        """Counts time in ``map``."""
        wait, mapped, first, account, past = self._told
        self._told = (wait + took, mapped + took, first, account, past)

    def close(self) -> None:
        """Ends the time that counts."""
        if self.begun and not self._ended:
            self._ended = time.perf_counter_ns()

    def line(self, every: float) -> Optional[Stats]:
        """What has happened since the last line, if it is time for one."""
        now = time.perf_counter_ns()
        if now < self._due:
            return None
        first, self._due = not self._due, now + int(every * 1e9)
        if first:
            return None
        stats = self.read()
        out, self._logged = stats - self._logged, stats
        return out

    def read(self, ranks: "Tuple[Optional[int], Optional[int]]" = (None, None)) -> Stats:
        """The figures of this moment. The ranks are those to be, as far as they are known, before there is a run."""
        (wait, mapped, first, account, past), heard = self._told, self._heard
        run = _numbers(account)
        if heard:
            later = _numbers(heard)
            more = sum(later[_CAUSES]) - sum(run[_CAUSES])
            if more >= 0:  # else the wait has ended meanwhile
                wait, run = wait + more, later
        n = _sum(past, run)
        causes = list(n[_CAUSES])
        causes[-1] += mapped
        causes[_ORDER] = max(0, wait - sum(causes) + causes[_ORDER])
        stalls = Stalls(*(c / 1e9 for c in causes))
        until = self._ended or time.perf_counter_ns()
        rank, world_size = self._ranks or ranks
        return Stats(
            rank=rank, world_size=world_size, batches=n[0], samples=n[1], bytes=n[2],
            elapsed=(until - self.begun) / 1e9 if self.begun else 0.0,
            wait=sum(stalls), first_wait=first / 1e9, opening=self._opening / 1e9, stalls=stalls,
            blocks=n[11], stored_bytes=n[12], evicted=n[13], rereads=n[14], skipped=n[15], held=n[16],
        )  # fmt: skip


def _numbers(account: bytes) -> "Tuple[int, ...]":
    return proto.account.unpack(account) if account else _NONE


def _sum(past: Sequence[int], run: Sequence[int]) -> "Tuple[int, ...]":
    """Both together: what was skipped is known to a run of those before it, and what was held is a maximum."""
    out = [a + b for a, b in zip(past, run)]
    out[_SKIPPED], out[_HELD] = run[_SKIPPED] or past[_SKIPPED], max(past[_HELD], run[_HELD])
    return tuple(out)
