"""Statistics: what a loader delivered, and what the training process waited for."""

from __future__ import annotations

import os
import time
from types import MappingProxyType
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._wire import protocol as proto


class Stalls(NamedTuple):
    """The wait by cause, in seconds. Each moment has one cause, so the causes add up to the wait.
    docs/stalls.md lists remedies.

        request: reading a block from the store, over the network or from disk.
        throttled: a pause in that read, because the store asked for less load, failed, or
            disconnected.
        cache: reading or writing the cache on local disk.
        window: filling the window that samples are shuffled in: at the start, after a resume,
            between epochs.
        decode: checking, decompressing and indexing a block.
        memory: the ``memory`` limit was reached.
        order: planning, assembling and delivering the batch.
        map: the loader's ``map``.
    """

    request: float = 0.0
    throttled: float = 0.0
    cache: float = 0.0
    window: float = 0.0
    decode: float = 0.0
    memory: float = 0.0
    order: float = 0.0
    map: float = 0.0


class SourceStats(NamedTuple):
    """What was delivered of a source of a mix: samples, without padding, and bytes of their fields,
    as packed."""

    samples: int = 0
    bytes: int = 0


def _more(a: "Mapping[str, SourceStats]", b: "Mapping[str, SourceStats]", sign: int = 1) -> "Dict[str, SourceStats]":
    """Adds or subtracts counts by source."""
    none = SourceStats()
    return {name: SourceStats(*(x + sign * y for x, y in zip(a.get(name, none), b.get(name, none)))) for name in sorted({*a, *b})}


class Stats(NamedTuple):
    """What a loader has done since it was made, over all its iterations.

    **The wait** is the time that the loop spends asking for its next batch. Until the batch is
    ready, the cause is what the child is doing; the rest, until the loop has it, is ``order``;
    ``map`` runs in this process. Work that the child does ahead while the loop computes is not part
    of the wait, and neither is decoding that happens when the loop first uses a field, such as an
    image.

    ``later - before`` is the difference of two readings. The figures are those after the last batch
    delivered; during a wait they are updated every second.

        rank, world_size: data-parallel rank and number of ranks; None before the first iteration if
            only the environment has them.
        batches, samples, bytes: delivered, without padding; bytes of all fields, as packed.
        elapsed: seconds since the first iteration began, until the loader was closed.
        wait, first_wait: seconds that the loop waited, which ``stalls`` add up to; and those for
            its first batch.
        opening: seconds to start children and open the data set. They are not part of ``wait``.
        stalls: the wait by cause.
        blocks, stored_bytes: fetched, including repeated reads.
        evicted: blocks dropped for lack of memory while they were still needed, and read again.
        rereads: reads repeated because the first returned damaged bytes.
        skipped: samples left out because their block is damaged, as the checkpoint counts them.
        held: the maximum of bytes of blocks that the child held.
        truncated, dropped: samples of an epoch that ``long=`` cuts off and leaves out, because they
            are longer than a unit; ``tokens_cut`` and ``tokens_dropped`` are what they lose.
        sources: of a mix, ``samples`` and ``bytes`` by the name of the source; else empty.
        decoder: the decoder of ``shardtool.Image``; empty without such a field.
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
    sources: Mapping[str, SourceStats] = MappingProxyType({})
    decoder: str = ""
    truncated: int = 0
    tokens_cut: int = 0
    dropped: int = 0
    tokens_dropped: int = 0

    def __add__(self, other: object) -> "Stats":
        """Returns the sum, as of two loaders of one rank."""
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
            sources=_more(self.sources, other.sources),
            **{name: getattr(other, name) or getattr(self, name) for name in _LOST},
        )

    @property
    def wait_share(self) -> float:
        """The share of the time spent waiting, 0 to 1."""
        return min(1.0, self.wait / self.elapsed) if self.elapsed > 0 else 0.0

    def __sub__(self, before: "Stats") -> "Stats":
        stalls = Stalls(*(a - b for a, b in zip(self.stalls, before.stalls)))
        return self._replace(
            **{name: getattr(self, name) - getattr(before, name) for name in _COUNTED},
            stalls=stalls,
            wait=sum(stalls),
            first_wait=0.0 if before.batches else self.first_wait,
            skipped=self.skipped - before.skipped,
            sources=_more(self.sources, before.sources, -1),
        )

    def as_dict(self) -> Dict[str, Any]:
        """Returns a dict of numbers, with a dict of the causes, for JSON or an experiment
        tracker."""
        sources = {name: counted._asdict() for name, counted in self.sources.items()}
        return {**self._asdict(), "stalls": self.stalls._asdict(), "sources": sources}

    @classmethod
    def _from_dict(cls, said: "Mapping[str, Any]") -> "Stats":
        """Returns the statistics from which as_dict made a dict."""
        sources = {name: SourceStats(**counted) for name, counted in said["sources"].items()}
        return cls(**{**said, "stalls": Stalls(**said["stalls"]), "sources": sources})

    def _seen_by(self, wait: int, first: int, rest: str) -> "Stats":
        """Returns the statistics of a loop that waited ``wait`` nanoseconds while others read ahead
        for it. Their causes explain as much of the wait as they waited; the cause ``rest`` explains
        the remainder. It is an estimate: whether both waited at the same time is unknown."""
        share = min(1.0, wait / 1e9 / self.wait) if self.wait else 0.0
        causes = {name: s * share for name, s in self.stalls._asdict().items()}
        causes[rest] += max(0.0, wait / 1e9 - sum(causes.values()))
        stalls = Stalls(**causes)
        return self._replace(stalls=stalls, wait=sum(stalls), first_wait=first / 1e9)

    def __str__(self) -> str:
        """Formats one line for a log."""
        per = max(self.elapsed, 1e-9)
        said = f"rank {self.rank} of {self.world_size}: {self.batches} batches, {self.batches / per:.3g}/s, "
        said += f"{self.bytes / 1e6 / per:.3g} MB/s, waited {self.wait_share:.1%}"
        causes = sorted(((s / per, name) for name, s in self.stalls._asdict().items() if s >= per / 1000), reverse=True)
        return said + "".join(f", {name} {share:.1%}" for share, name in causes[:2])


#: Positions in an account: counts, causes, and the members after them.
_CAUSES = slice(3, 11)
_ORDER = 6  # index among the causes
_SKIPPED, _HELD = 15, 16
_NONE = (0,) * 17

#: An account and the names of the sources in it.
_Account = Tuple[bytes, Tuple[str, ...]]
_Past = Tuple[Tuple[int, ...], Dict[str, SourceStats]]


#: Figures of Stats that only grow, each by itself.
_COUNTED = ("batches", "samples", "bytes", "elapsed", "opening", "blocks", "stored_bytes", "evicted", "rereads")


#: Members of Stats, and of the lengths in STARTED.
_LOST = {"truncated": "truncated", "tokens_cut": "cut", "dropped": "dropped", "tokens_dropped": "left_out"}


class Meter:
    """Measures one loader. One thread at a time waits; any thread may call ``read``."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ranks: "Optional[Tuple[int, int]]" = None
        self._ended = 0
        #: When the first iteration began, by time.perf_counter_ns; 0 before it.
        self.begun = 0
        self._opening = 0
        #: What an epoch loses of samples longer than a unit.
        self._lost: "Dict[str, int]" = {}
        # One tuple, so that other threads see consistent values: nanoseconds of the wait, of map
        # and of the first wait; the account of the current run and the names of its sources; the
        # sum of the earlier runs, and that by source.
        self._told: "Tuple[int, int, int, _Account, _Past]" = (0, 0, 0, (b"", ()), (_NONE, {}))
        self._heard = b""  # a later account of the run, during a wait
        self._logged = Stats()
        self._due = 0

    def opened(
        self, begin: int, rank: int, world_size: int, sources: Sequence[str] = (), lengths: "Mapping[str, int]" = MappingProxyType({})
    ) -> str:
        """Begins a run, requested at a time of time.perf_counter_ns. Returns what it loses of
        samples longer than a unit, if an earlier run has not said so."""
        now = time.perf_counter_ns()
        lost = {ours: lengths.get(theirs, 0) for ours, theirs in _LOST.items()}
        told, self._lost = lost == self._lost or not any(lost.values()), lost
        self._ranks = rank, world_size
        self.begun, self._ended = self.begun or begin, 0
        self._opening += now - begin
        wait, mapped, first, account, past = self._told
        self._heard = b""
        past = _sum(past[0], _numbers(account[0])), _more(past[1], _by_source(account))
        self._told = (wait, mapped, first, (b"", tuple(sources)), past)
        if told:
            return ""
        said = f"of the {lengths['samples']} samples of an epoch, {lengths['long']} are longer than a unit"
        said += f": {lost['truncated']} are cut off, which leaves out {lost['tokens_cut']} tokens" if lost["truncated"] else ""
        return said + (f": {lost['dropped']} are left out, with {lost['tokens_dropped']} tokens" if lost["dropped"] else "")

    def hear(self, mine: int, run: int, account: bytes) -> None:
        """Records an account that arrived during a wait, if it is of the loader's run."""
        if run == mine:
            self._heard = account

    def waited(self, account: bytes, wait: int) -> None:
        """Records the end of a wait, in nanoseconds, with the account after the last batch."""
        had, mapped, first, (_, sources), past = self._told
        heard = self._heard
        if heard and sum(_numbers(heard)[_CAUSES]) > sum(_numbers(account)[_CAUSES]):
            account = heard  # no batch followed
        self._told = (had + wait, mapped, first or wait, (account, sources), past)
        self._heard = b""

    def mapped(self, took: int) -> None:
        """Records time spent in ``map``."""
        wait, mapped, first, account, past = self._told
        self._told = (wait + took, mapped + took, first, account, past)

    def close(self) -> None:
        """Stops the clock."""
        if self.begun and not self._ended:
            self._ended = time.perf_counter_ns()

    def line(self, every: float) -> Optional[Stats]:
        """Returns the difference since the last line, if a line is due."""
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
        """Returns the current figures. ``ranks`` are used as long as no run has begun."""
        (wait, mapped, first, account, past), heard = self._told, self._heard
        run = _numbers(account[0])
        if heard:
            later = _numbers(heard)
            more = sum(later[_CAUSES]) - sum(run[_CAUSES])
            if more >= 0:  # otherwise the wait has ended meanwhile
                wait, run = wait + more, later
        n = _sum(past[0], run)
        causes = list(n[_CAUSES])
        causes[-1] += mapped
        causes[_ORDER] = max(0, wait - sum(causes) + causes[_ORDER])
        stalls = Stalls(*(c / 1e9 for c in causes))
        until = self._ended or time.perf_counter_ns()
        rank, world_size = self._ranks or ranks
        lost: Dict[str, Any] = self._lost
        return Stats(
            rank=rank, world_size=world_size, batches=n[0], samples=n[1], bytes=n[2],
            elapsed=(until - self.begun) / 1e9 if self.begun else 0.0,
            wait=sum(stalls), first_wait=first / 1e9, opening=self._opening / 1e9, stalls=stalls,
            blocks=n[11], stored_bytes=n[12], evicted=n[13], rereads=n[14], skipped=n[15], held=n[16],
            sources=_more(past[1], _by_source(account)), **lost,
        )  # fmt: skip


def _numbers(account: bytes) -> "Tuple[int, ...]":
    return proto.account.unpack_from(account) if account else _NONE


def _by_source(account: "_Account") -> "Dict[str, SourceStats]":
    text, names = account
    if not text:
        return {}
    flat = memoryview(text)[proto.account.size :].cast("Q").tolist()
    return {name: SourceStats(*pair) for name, pair in zip(names, zip(flat[::2], flat[1::2]))}


def _sum(past: Sequence[int], run: Sequence[int]) -> "Tuple[int, ...]":
    """Adds a run to those before it. What was skipped includes earlier runs, and what was held is a
    maximum."""
    out = [a + b for a, b in zip(past, run)]
    out[_SKIPPED], out[_HELD] = run[_SKIPPED] or past[_SKIPPED], max(past[_HELD], run[_HELD])
    return tuple(out)
