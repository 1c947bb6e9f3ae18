"""Packed sequences and micro-batches of samples of similar length: section 9.16 of ORDER.md."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from shardtool.errors import ConfigError

from .limits import demand
from .order import Order, lanes_in_turn
from .parameters import MAX_BATCH, MAX_EPOCH, Parameters, Table, choose
from .words import shuffle, words

KINDS, POLICIES = ("pack", "bucket"), ("error", "split", "truncate", "drop")
MAX_SIZE, MAX_WINDOW = 2**31 - 1, 2**20


class Item(NamedTuple):
    """A sample in a unit, or a piece of one."""

    sample: int  #: Number in storage order.
    offset: int  #: Where the piece begins in the sample,
    length: int  #: and its length.


#: A packed sequence or a micro-batch.
Unit = List[Item]


class UnitParameters(NamedTuple):
    """What units are made of; frozen in checkpoints like the parameters of the order."""

    kind: str  #: "pack" or "bucket".
    size: int  #: L, the length of a sequence; or the budget of a micro-batch.
    window: int  #: Samples of a lane that are packed together.
    long: str = "error"  #: What happens to a sample longer than ``size``.

    def check(self) -> None:
        """Raises ConfigError for parameters out of their limits."""
        demand(self.kind in KINDS, f"kind={self.kind!r}: give one of {', '.join(KINDS)}")
        demand(1 <= self.size <= MAX_SIZE, f"size={self.size}: give 1 to {MAX_SIZE}")
        demand(1 <= self.window <= MAX_WINDOW, f"window={self.window}: give 1 to {MAX_WINDOW}")
        demand(self.long in POLICIES, f"long={self.long!r}: give one of {', '.join(POLICIES)}")


#: The parameters of an order, and those of its units.
Chosen = Tuple[Parameters, UnitParameters]


def choose_units(table: Table, kind: str, size: int, *, window: Optional[int] = None, long: str = "error", **given: Any) -> "Chosen":
    """9.16, Choosing: the parameters of an order, ``given`` as for ``choose``, and of its units."""
    samples, blocks = sum(table.blocks), max(len(table.blocks), 1)
    tried = [window] if window else [1024, 256] if kind == "bucket" else [256]
    for least in tried:
        try:
            chosen = choose(table, unit_blocks=-(-least * blocks // max(samples, 1)), **given)
        except ConfigError:
            if least == tried[-1]:
                raise
            continue
        quarter = samples * chosen.delay // (4 * blocks)
        units = UnitParameters(kind, size, window or min(max(quarter, least), 4096), long)
        units.check()
        return chosen, units
    raise AssertionError


def cut_sample(p: UnitParameters, sample: int, length: int) -> List[Item]:
    """9.16, Long samples: the items of a sample."""
    demand(length > 0, f"sample {sample} has length {length}: lengths are at least 1")
    if length <= p.size:
        return [Item(sample, 0, length)]
    demand(p.long != "error", f"sample {sample} has length {length}, at most {p.size} fit: choose split, truncate or drop")
    if p.long == "drop":
        return []
    pieces = [Item(sample, at, min(p.size, length - at)) for at in range(0, length, p.size)]
    return pieces if p.long == "split" else pieces[:1]


def pack(lengths: Sequence[int], size: int) -> List[List[int]]:
    """9.16, Packing: best fit. Returns the numbers of the items of each sequence."""
    sequences: List[List[int]] = []
    filled: List[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):  # sorted() keeps ties in order
        fitting = [s for s, used in enumerate(filled) if used + lengths[i] <= size]
        if fitting:
            fullest = max(fitting, key=lambda s: filled[s])  # the first of those that tie
        else:
            fullest = len(sequences)
            sequences.append([])
            filled.append(0)
        sequences[fullest].append(i)
        filled[fullest] += lengths[i]
    return [sorted(s) for s in sequences]


def bucket(lengths: Sequence[int], budget: int) -> List[List[int]]:
    """9.16, Buckets. Returns the numbers of the items of each micro-batch."""
    batches: List[List[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > budget:
            batches.append([])
        batches[-1].append(i)
    return batches


def form_units(p: UnitParameters, items: Sequence[Item]) -> List[Unit]:
    """The units of a window, in the order in which they are formed."""
    lengths = [item.length for item in items]
    return [[items[i] for i in unit] for unit in (pack if p.kind == "pack" else bucket)(lengths, p.size)]


class UnitBatch(NamedTuple):
    """A global batch of units over all ranks."""

    epoch: int  #: The place where it begins: epoch,
    position: int  #: and units of it before the batch.
    next_epoch: int  #: The place after it.
    next_position: int
    units: List[Unit]
    real: int  #: The number of units without padding.


class Units:
    """The units of an order.

    ``lengths`` are those of the samples, by number. An epoch is computed when its first unit is
    asked for, in some ten microseconds a sample, and the last one stays in memory. Raises
    ConfigError for what SPEC.md requires to be refused.
    """

    def __init__(self, order: Order, lengths: Sequence[int], parameters: UnitParameters) -> None:
        parameters.check()
        stored = sum(order.table.blocks)
        demand(len(lengths) == stored, f"{len(lengths)} lengths for {stored} samples")
        self.order = order
        self.lengths = lengths
        self.parameters = parameters
        self._epochs: Dict[int, Dict[int, List[Unit]]] = {}
        self._counts: Dict[int, int] = {}

    def _line(self, epoch: int) -> Iterator[Unit]:
        """9.16, Order: the units of all lanes, end to end."""
        p, params = self.parameters, self.order.parameters
        for lane, samples in sorted(self.order._lanes(epoch).items()):
            for number, first in enumerate(range(0, len(samples), p.window)):
                window = samples[first : first + p.window]
                units = form_units(p, [item for s in window for item in cut_sample(p, s, self.lengths[s])])
                yield from shuffle(units, words(params.seed, 6, lane, epoch, number)) if params.shuffle else units

    def _arcs(self, epoch: int) -> Dict[int, List[Unit]]:
        """The line cut into arcs, by number. Arcs without units are left out."""
        if epoch not in self._epochs:
            line, v = list(self._line(epoch)), self.order.parameters.lanes
            turns = {lane: turn for turn, lane in enumerate(lanes_in_turn(v, min(v, len(line))))}
            arcs, at = {}, 0
            for lane in sorted(turns):
                length = (len(line) + v - 1 - turns[lane]) // v
                arcs[lane] = line[at : at + length]
                at += length
            self._epochs = {epoch: arcs}
        return self._epochs[epoch]

    def count(self, epoch: int) -> int:
        """U(e): the number of units of an epoch."""
        if epoch not in self._counts:
            self._counts[epoch] = sum(map(len, self._arcs(epoch).values()))
        return self._counts[epoch]

    def part(self, epoch: int, position: int, n: int) -> List[Unit]:
        """9.7 for units: returns those at n positions, arc by arc."""
        arcs, v = self._arcs(epoch), self.order.parameters.lanes
        in_turn = lanes_in_turn(v, min(v, self.count(epoch)))
        return [arcs[arc][k] for arc, k in sorted((in_turn[g % v], g // v) for g in range(position, position + n))]

    def place(self, epoch: int, position: int) -> "tuple[int, int]":
        """Returns a place as checkpoints have it: the end of an epoch is the beginning of the
        next."""
        count = self.count(epoch) if epoch < MAX_EPOCH else 0
        demand(position <= count, f"epoch {epoch}, position {position}: the epoch has {count} units")
        return (epoch + 1, 0) if position == count > 0 else (epoch, position)

    def batch(self, epoch: int, position: int, global_batch: int, until: int = MAX_EPOCH) -> Optional[UnitBatch]:
        """9.8 for units: returns the global batch at a place; None at the end, which is epoch
        ``until``."""
        demand(1 <= global_batch <= MAX_BATCH, f"global_batch={global_batch}: give 1 to {MAX_BATCH}")
        tail, g = self.order.parameters.tail, global_batch
        epoch, position = self.place(epoch, position)
        if tail == "drop" and epoch < MAX_EPOCH and self.count(epoch) - position < g:
            epoch, position = epoch + 1, 0
        if epoch >= min(until, MAX_EPOCH) or self.count(epoch) == 0:
            return None
        count = self.count(epoch)
        demand(tail != "drop" or g <= count, f"tail='drop' with batches of {g}, but epoch {epoch} has {count} units")
        n = min(g, count - position)
        units, following = self.part(epoch, position, n), self.place(epoch, position + n)
        while tail == "wrap" and len(units) < g:
            if following[0] >= MAX_EPOCH or self.count(following[0]) == 0:
                return None
            n = min(g - len(units), self.count(following[0]))
            units += self.part(following[0], 0, n)
            following = self.place(following[0], n)
        real = len(units)
        if tail == "pad":
            units = [units[k % real] for k in range(g)]
        return UnitBatch(epoch, position, *following, units, real)
