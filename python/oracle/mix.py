"""Several sources as one stream, ``interleave/1``: section 9.13 of ORDER.md."""

from __future__ import annotations

import bisect
import hashlib
import re
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from .limits import demand
from .order import Order
from .parameters import MAX_BATCH, MAX_EPOCH, TAILS, Parameters
from .units import UnitParameters, Units
from .words import U64, words

MAX_POSITION, MAX_WEIGHTS, MAX_SOURCES, MAX_SEGMENTS = 2**63, 2**62, 1000, 4096

#: A node of a split tree: its weight, the lowest source number under it, and a source or two nodes.
Node = Tuple[int, int, "Union[int, Tuple[Node, Node]]"]


def source_key(seed: int, name: str) -> int:
    """9.13, Source keys."""
    text = b"shardtool source\0" + seed.to_bytes(8, "little") + name.encode("ascii")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def sample_seed(key: int, epoch: int, number: int, draw: int = 0) -> int:
    """9.13, Seeds of samples: the seed for random choices of a program for one sample. ``key`` is
    the key of the source, or the seed of an order that is read alone; ``epoch`` is the source's
    epoch and ``number`` the sample's number."""
    demand(0 <= number < 2**56 and 0 <= epoch < MAX_EPOCH and draw >= 0, "a sample, epoch or draw out of its limits")
    sequence = words(key, 7, number >> 32, epoch, number % 2**32)
    drawn = [next(sequence) for _ in range(2 * draw + 2)]
    return drawn[-2] + (drawn[-1] << 32)


# ---- The split tree ----
def split_tree(weights: Sequence[int]) -> Optional[Node]:
    """Builds the tree of weights by source number; None if all are 0."""
    nodes: List[Node] = [(w, s, s) for s, w in enumerate(weights) if w > 0]
    while len(nodes) > 1:
        nodes.sort(key=lambda node: node[:2])
        left, right = nodes[:2]
        nodes[:2] = [(left[0] + right[0], min(left[1], right[1]), (left, right))]
    return nodes[0] if nodes else None


def tree_counts(node: Node, units: int) -> Iterator[Tuple[int, int]]:
    """Divides the first units of a node: pairs of a source and its count."""
    weight, _, below = node
    if isinstance(below, int):
        yield below, units
        return
    left = (units * below[0][0] + weight // 2) // weight
    yield from tree_counts(below[0], left)
    yield from tree_counts(below[1], units - left)


# ---- A mix ----
class MixSource(NamedTuple):
    """One source of a mix."""

    name: str
    samples: int  #: N_s, of an epoch.
    parameters: Parameters  #: V, E, W, H and affinity; the rest is the mix's.
    digest: str = ""
    tables: str = ""
    max_epochs: int = MAX_EPOCH
    epoch: int = 0  #: An epoch of the source,
    first: int = 0  #: and the units before its first one.
    base: int = 0  #: The units before the mix begins.
    view: str = ""  #: The ID of the view, 16 hexadecimal digits; empty: all samples.
    unit: Optional[UnitParameters] = None  #: Of the units that positions hold; None: samples. ``samples`` is then U(0).
    by: str = ""  #: The attribute with the lengths,
    lengths: str = ""  #: and the hash of them.
    line: Optional[Units] = None  #: The units. Without them, only the epoch is known that the source is in.

    def limit(self) -> int:
        """All units that the source has."""
        if self.unit is not None:
            if self.max_epochs <= self.epoch:
                return self.first
            if self.max_epochs == MAX_EPOCH or self.line is None:
                return MAX_POSITION
            return self.first + sum(map(self.line.count, range(self.epoch, self.max_epochs)))
        return self.first + (self.max_epochs - self.epoch) * self.samples

    def place(self, unit: int) -> Tuple[int, int]:
        """Returns the epoch of a unit counted over all epochs, and its place in that epoch."""
        if self.unit is not None:
            return self._place_in_line(unit)
        epochs, place = divmod(unit - self.first, self.samples)
        return self.epoch + epochs, place

    def _place_in_line(self, unit: int) -> Tuple[int, int]:
        epoch, first = self.epoch, self.first
        while unit < first:
            demand(epoch > 0 and self.line is not None, f"source {self.name}: first does not fit")
            assert self.line is not None
            epoch -= 1
            first -= self.line.count(epoch)
        while self.line is not None and unit > first and unit - first >= self.line.count(epoch):
            first += self.line.count(epoch)
            epoch += 1
        return epoch, unit - first


class Stretch(NamedTuple):
    """Positions between two changes of the weights."""

    begin: int
    end: int
    segment: int
    base: List[int]
    tree: Optional[Node]

    def counts(self, position: int) -> List[int]:
        """Returns what each source has delivered before a position of the stretch, or at its
        end."""
        given = list(self.base)
        if self.tree:
            for (s, now), (_, before) in zip(tree_counts(self.tree, position), tree_counts(self.tree, self.begin)):
                given[s] += now - before
        return given


class MixBatch(NamedTuple):
    """A global batch of a mix."""

    position: int
    next_position: int
    samples: List[Tuple[int, int, Any]]  #: Number of the source, its epoch, and the sample or the unit.
    real: int  #: The number of samples; padding follows them.


class Mix(NamedTuple):
    """Sources and segments: what a job reads from position ``begin`` on."""

    sources: Sequence[MixSource]  #: In ascending order of names.
    segments: Sequence[Tuple[int, Sequence[int]]]  #: Positions and the weights of all sources from there on.
    epoch_length: int
    seed: int = 0
    shuffle: bool = True
    tail: str = "wrap"
    begin: int = 0
    steered: bool = False  #: Whether the training program set the weights.

    def check(self) -> None:
        """Raises ConfigError if it is not a valid mix."""
        demand(not self.steered or (len(self.segments) == 1 and self.segments[0][0] <= self.begin), "steered, but not by one segment")
        demand(1 <= len(self.sources) <= MAX_SOURCES and 1 <= len(self.segments) <= MAX_SEGMENTS, "too many sources or segments, or none")
        demand(len(self.sources) * len(self.segments) <= 2**20, "too many segments for this number of sources")
        demand(
            self.tail in TAILS and 1 <= self.epoch_length < MAX_POSITION and 0 <= self.begin < MAX_POSITION, "out of the limits of a mix"
        )
        demand(0 <= self.seed < U64, "no seed")
        names = [s.name for s in self.sources]
        demand(names == sorted(set(names)), "sources are not in ascending order of names, or given twice")
        demand(sum(s.base for s in self.sources) == self.begin, "base does not fit the position")
        for i, s in enumerate(self.sources):
            demand(re.fullmatch("[a-z0-9._-]{1,32}", s.name) is not None, f"source {s.name!r}: not a name")
            demand(
                0 <= s.samples < MAX_POSITION and 1 <= s.max_epochs <= MAX_EPOCH and 0 <= s.epoch <= MAX_EPOCH,
                f"source {s.name}: out of its limits",
            )
            before = s.first <= s.base if s.samples == 0 else s.unit is not None or s.epoch * s.samples >= s.first - s.base
            if s.unit is not None:
                s.unit.check()
            demand(before and s.base >= 0, f"source {s.name}: first does not fit")
            self.parameters(i).check()
        for i, (at, weights) in enumerate(self.segments):
            demand(len(weights) == len(names) and all(w >= 0 for w in weights), f"segment at {at}: not one weight for each source")
            demand(0 < sum(weights) < MAX_WEIGHTS, f"segment at {at}: all weights are 0, or too large")
            demand(
                all(s.samples > 0 for s, w in zip(self.sources, weights) if w > 0),
                f"segment at {at}: a source without samples has a weight",
            )
            above = at > max(self.segments[i - 1][0], self.begin) if i > 0 else at == 0 or self.begin > 0
            demand(0 <= at < MAX_POSITION and above, f"segment at {at}: positions do not ascend")

        weighted = [s for i, s in enumerate(self.sources) if any(weights[i] > 0 for _, weights in self.segments)]
        demand(len({None if s.unit is None else s.unit[:2] for s in weighted}) == 1, "sources with units of several kinds or sizes")

    def parameters(self, source: int) -> Parameters:
        """Returns the parameters of the order of a source."""
        s = self.sources[source]
        return s.parameters._replace(seed=source_key(self.seed, s.name), shuffle=self.shuffle, mix_block=0, tail="wrap")

    # -- Counts --
    def stretches(self) -> Iterator[Stretch]:
        """Yields the stretches from the beginning to the end of the stream."""
        segment, begin, given = 0, self.begin, [s.base for s in self.sources]
        while begin < MAX_POSITION:
            opened = [s.limit() > c for s, c in zip(self.sources, given)]
            while segment < len(self.segments) and not any(w for w, is_open in zip(self.segments[segment][1], opened) if is_open):
                segment += 1
            if segment == len(self.segments):
                return
            tree = split_tree([w if is_open else 0 for w, is_open in zip(self.segments[segment][1], opened)])
            end = self.segments[segment + 1][0] if segment + 1 < len(self.segments) else MAX_POSITION
            stretch = Stretch(begin, end, segment, given, tree)
            end = min([end, *(self._reached(stretch, i, s.limit()) for i, s in enumerate(self.sources) if opened[i])])
            stretch = stretch._replace(end=end)
            yield stretch
            begin, given = end, stretch.counts(end)
            if segment + 1 < len(self.segments) and begin == self.segments[segment + 1][0]:
                segment += 1

    @staticmethod
    def _reached(stretch: Stretch, source: int, count: int) -> int:
        """The least position at which a source has given a count, or the end of the stretch."""
        low, high = stretch.begin, stretch.end
        while low < high:
            middle = (low + high) // 2
            if stretch.counts(middle)[source] >= count:
                high = middle
            else:
                low = middle + 1
        return low

    def _stretch(self, position: int) -> Tuple[Optional[Stretch], int]:
        """The stretch of a position, None after the end; and where the stream ends, if known."""
        end = self.begin
        for stretch in self.stretches():
            if position < stretch.end:
                return stretch, MAX_POSITION
            end = stretch.end
        return None, end

    def counts(self, position: int) -> List[int]:
        """Returns what each source has delivered before a position."""
        return next(self._counts([position]))

    def _counts(self, positions: Sequence[int]) -> Iterator[List[int]]:
        """What each source has given before positions in ascending order."""
        demand(
            self.begin <= positions[0] and positions[-1] <= MAX_POSITION, f"position {positions[0]} or {positions[-1]} is out of the mix"
        )
        walk, stretch = self.stretches(), Stretch(self.begin, self.begin, 0, [s.base for s in self.sources], None)
        for position in positions:
            while position > stretch.end:
                following = next(walk, None)
                demand(following is not None, f"position {position} is past the end of the stream")
                stretch = following or stretch
            yield stretch.counts(position)

    def end(self) -> int:
        """Returns the end of the stream; 2^63 if it has none."""
        return self._stretch(MAX_POSITION)[1]

    def length(self, rule: str) -> int:
        """9.13, Epochs of a mix: the length of an epoch by the rules "first" and "all"."""
        begun: Dict[int, bool] = {}
        for stretch in self.stretches():
            begun.update({s: True for s, w in enumerate(self.segments[stretch.segment][1]) if w > 0})
            reached = [
                stretch.begin if stretch.base[s] >= self.sources[s].samples else self._reached(stretch, s, self.sources[s].samples)
                for s in begun
            ]
            least = min(reached) if rule == "first" else max(reached)
            given = stretch.counts(least)
            enough = (any if rule == "first" else all)(given[s] >= self.sources[s].samples for s in begun)
            if least < stretch.end and enough:
                return least
        end = self._stretch(MAX_POSITION)[1]
        given = self.counts(end)
        enough = (any if rule == "first" else all)(given[s] >= self.sources[s].samples for s in begun)
        demand(end < MAX_POSITION and enough, f"epoch {rule!r} never ends")
        return end

    # -- Batches --
    def beginning(self, position: int, size: int, left_out: Sequence[Tuple[int, int]] = ()) -> int:
        """Returns where the batch after a position begins."""
        while True:
            was = position
            for low, high in left_out:
                if low <= position < high:
                    position = high
            left = self.epoch_length - position % self.epoch_length
            if self.tail == "drop" and left < size:
                position += left
            if position == was:
                return position

    def batch(
        self,
        orders: Sequence[Optional[Order]],
        position: int,
        global_batch: int,
        *,
        until: int = MAX_POSITION,
        left_out: Sequence[Tuple[int, int]] = (),
    ) -> Optional[MixBatch]:
        """Returns the global batch at a position; None at the end.

        Args:
            orders: Of the sources, made with ``parameters``; not used for sources with units.
            position: Where the batch before it ended.
            global_batch: Its size.
            until: No batch begins in this epoch of the mix, or later.
            left_out: Ranges of positions to skip.
        """
        demand(1 <= global_batch <= MAX_BATCH, f"global_batch={global_batch}: give 1 to {MAX_BATCH}")
        demand(self.tail != "drop" or global_batch <= self.epoch_length, "all would be dropped")
        position = self.beginning(position, global_batch, left_out)
        if position >= MAX_POSITION or position // self.epoch_length >= until:
            return None
        cut = self.tail in ("short", "pad")
        size = min(global_batch, self.epoch_length - position % self.epoch_length) if cut else global_batch
        stretch, end = self._stretch(position + size - 1)
        if stretch is None:
            if end <= position or not cut:
                return None
            size = end - position
        demand(not any(position < low < position + size for low, _ in left_out), "the batch reaches into positions that are left out")
        samples = self._entries(orders, position, size)
        if self.tail == "pad":
            samples = [samples[k % size] for k in range(global_batch)]
        return MixBatch(position, position + size, samples, size)

    def _entries(self, orders: Sequence[Optional[Order]], position: int, size: int) -> List[Tuple[int, int, Any]]:
        """9.13, Batches and ranks."""
        counts = list(self._counts(range(position, position + size + 1)))
        lists = [self._share(orders, s, *interval) for s, interval in enumerate(zip(counts[0], counts[-1]))]
        entries = []
        for before, after in zip(counts, counts[1:]):
            (source,) = (s for s in range(len(before)) if after[s] > before[s])
            entries.append((source, *next(lists[source])))
        return entries

    def _share(self, orders: Sequence[Optional[Order]], source: int, first: int, end: int) -> Iterator[Tuple[int, Any]]:
        """Returns the units first..end-1 of a source: epoch by epoch, each part lane by lane,
        or arc by arc."""
        s = self.sources[source]
        while first < end:
            epoch, place = s.place(first)
            given: Iterable[Any]
            if s.line is not None:
                n = min(end - first, s.line.count(epoch) - place)
                given = s.line.part(epoch, place, n)
            else:
                n, order = min(end - first, s.samples - place), orders[source]
                assert order is not None
                given = order._part(epoch, place, n)
            for x in given:
                yield epoch, x
            first += n

    def change(self, position: int, asked: "Mix") -> "Mix":
        """The mix that continues at a position with what another mix asks for (9.13, Changes)."""
        given = self.counts(position)
        old = {s.name: (s, c) for s, c in zip(self.sources, given)}
        new = {s.name: s for s in asked.sources}
        sources = []
        for name in sorted({*old, *new}):
            if name not in old:
                sources.append(new[name])
                continue
            was, count = old[name]
            epoch, place = was.place(count) if was.samples else (was.epoch, count - was.first)
            if name not in new:
                sources.append(was._replace(epoch=epoch, first=count - place, base=count))
            elif all(getattr(new[name], part) == getattr(was, part) for part in ("digest", "view", "samples", "unit", "lengths")):
                sources.append(new[name]._replace(epoch=epoch, first=count - place, base=count))
            else:
                sources.append(new[name]._replace(epoch=epoch + (place > 0), first=count, base=count))
        number = {s.name: i for i, s in enumerate(asked.sources)}
        last = bisect.bisect_right([at for at, _ in asked.segments], position) - 1
        segments = [(at, [weights[number[s.name]] if s.name in number else 0 for s in sources]) for at, weights in asked.segments[last:]]
        return self._replace(sources=sources, segments=segments, begin=position, steered=False)

    def steer(self, position: int, weights: Sequence[int]) -> "Mix":
        """The mix that continues at a position with weights that training sets (9.13)."""
        changed = self.change(position, self)
        return changed._replace(segments=[(position, list(weights))], steered=True)
