"""Epochs, batches and their split over ranks: sections 9.5 to 9.8 of ORDER.md."""

from __future__ import annotations

import bisect
import itertools
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from shardtool._checks import size_of
from shardtool.errors import CheckpointError

from .checkpoint import Checkpoint, read_checkpoint
from .limits import demand
from .parameters import MAX_BATCH, MAX_EPOCH, Parameters, Table, choose
from .words import shuffle, words


# ---- 9.5 An epoch ----
def prime_factors(v: int) -> List[int]:
    """Returns the prime factors of v, ascending, with repetitions."""
    factors, p = [], 2
    while v > 1:
        if v % p == 0:
            factors.append(p)
            v //= p
        else:
            p += 1
    return factors


def lanes_in_turn(lanes: int, count: int) -> List[int]:
    """9.5, Turn: for i = 0..count-1, the lane l with turn[l] = i."""
    factors, out = prime_factors(lanes), []
    for i in range(count):
        lane, w, x = 0, lanes, i
        for p in factors:
            w //= p
            lane += x % p * w
            x //= p
        out.append(lane)
    return out


def cut_arcs(pieces: Sequence[Sequence[int]], lengths: Sequence[int]) -> List[List[Sequence[int]]]:
    """9.5, Lanes and slots: cuts the line of runs into arcs of these lengths. An arc is a list of
    slots."""
    arcs: List[List[Sequence[int]]] = []
    queue = list(reversed(pieces))
    for length in lengths:
        slots: List[Sequence[int]] = []
        left = length
        while left > 0:
            piece = queue.pop()
            slots.append(piece[:left])
            if len(piece) > left:
                queue.append(piece[left:])
            left -= len(slots[-1])
        arcs.append(slots)
    return arcs


def order_lane(p: Parameters, lane: int, epoch: int, slots: List[Sequence[int]]) -> Sequence[int]:
    """9.5, Slots to Ticks: the samples of a lane in their order."""
    if not p.shuffle:
        return slots[0]
    seed, delay, m = p.seed, p.delay, len(slots)
    if p.affinity == "run" and epoch > 0:
        slots = shuffle(slots, words(seed, 1, lane, epoch, 1))
    t0 = min(p.head, delay, m) - 1
    ticks: List[List[int]] = [[] for _ in range(m)]
    for q, slot in enumerate(slots):
        for u, sample in enumerate(shuffle(slot, words(seed, 2, lane, epoch, q))):
            t = q + u * delay // len(slot)
            ticks[min(max(t, t0), m - 1)].append(sample)
    out: List[int] = []
    for t, listed in enumerate(ticks):
        out += shuffle(listed, words(seed, 3, lane, epoch, t))
    return out


def split(samples: Sequence[int], world_size: int) -> List[Sequence[int]]:
    """9.7: splits a global batch into the parts of the ranks 0 to world_size - 1. Parts are
    contiguous, and differ in size by at most one sample."""
    demand(world_size >= 1, f"world_size={world_size}: the least is 1")
    n = len(samples)
    return [samples[r * n // world_size : (r + 1) * n // world_size] for r in range(world_size)]


class GlobalBatch(NamedTuple):
    """A batch over all ranks."""

    epoch: int  #: The place where it begins: epoch,
    position: int  #: and samples of it before the batch, over all ranks.
    next_epoch: int  #: The place after it.
    next_position: int
    samples: List[int]  #: Numbers of its samples in storage order.
    real: int  #: The number of samples without padding (``tail="pad"``).

    def part(self, rank: int, world_size: int) -> Sequence[int]:
        """Returns the samples of a rank."""
        demand(0 <= rank < world_size, f"rank={rank}, world_size={world_size}: ranks are from 0 to one less than the world size")
        return split(self.samples, world_size)[rank]


class Order:
    """The order of a table with parameters.

    ::

        order = Order.of("out/", shuffle=True, seed=7, global_batch=256)
        for batch in order.batches(256):
            print(batch.epoch, batch.position, batch.part(rank=3, world_size=8))

    An epoch is computed at the first request for one of its batches, in some microseconds a sample.
    The last epoch stays in memory, some tens of bytes a sample. An order can be pickled. Raises
    ConfigError for what SPEC.md requires to be refused.

    ``shardtool.Order`` is another class: the options of a Loader that this class computes the order
    of.
    """

    def __init__(self, table: Table, parameters: Parameters) -> None:
        parameters.check()
        table.check()
        self.table = table
        self.parameters = parameters
        #: Samples of an epoch.
        self.samples = table.samples
        self._runs = table.runs(parameters.run_blocks, parameters.seed)
        # Only lanes with samples (9.5: lane l has some if turn[l] < N): an empty lane changes
        # nothing.
        self._in_turn = lanes_in_turn(parameters.lanes, min(parameters.lanes, self.samples))
        self._epochs: Dict[int, Dict[int, Sequence[int]]] = {}

    @classmethod
    def of(cls, url: str, *, checkpoint: "Union[Checkpoint, str, None]" = None, **given: Any) -> "Order":
        """Returns the order that a Loader with the same arguments has.

        Args:
            url: As for Loader. The program ``shardtool`` reads the manifest; no sample is read.
            checkpoint: A checkpoint, or its text, with the parameters of the order; then nothing
                else is given. ``batches`` may begin at its ``epoch`` and ``position``.
            given: As for ``choose``; a size may be text such as "64MiB". ``world_size`` and
                ``global_batch`` affect the parameters: give those of the job.

        Raises:
            CheckpointError: The checkpoint does not fit the data set.
        """
        table = Table.of(url)
        if checkpoint is None:
            if "shuffle_memory" in given:
                given["shuffle_memory"] = size_of("shuffle_memory", given["shuffle_memory"])
            if given.get("tail") is None:
                given["tail"] = "wrap" if given.get("epochs") == 0 else "short" if given.get("world_size") in (None, 1) else "pad"
            return cls(table, choose(table, **given))
        demand(not given, f"{', '.join(given)}: the checkpoint has all parameters of the order: give nothing else")
        if isinstance(checkpoint, str):
            checkpoint = read_checkpoint(checkpoint)
        for name, theirs, ours in (("digest", checkpoint.digest, table.digest), ("N", checkpoint.samples, table.samples)):
            if theirs != ours:
                raise CheckpointError(f"the checkpoint is of another data set: {name} is {theirs}, that of {url} is {ours}")
        return cls(table, checkpoint.parameters)

    def __getstate__(self) -> Tuple[Table, Parameters]:
        return self.table, self.parameters

    def __setstate__(self, state: Tuple[Table, Parameters]) -> None:
        Order.__init__(self, *state)

    def _lanes(self, epoch: int) -> Dict[int, Sequence[int]]:
        """9.5: returns the samples of each lane, in order, by lane number."""
        if epoch not in self._epochs:
            n, v = self.samples, self.parameters.lanes
            ascending = sorted((lane, (n + v - 1 - turn) // v) for turn, lane in enumerate(self._in_turn))
            arcs = cut_arcs(self._line(epoch), [length for _, length in ascending])
            self._epochs = {epoch: {lane: order_lane(self.parameters, lane, epoch, slots) for (lane, _), slots in zip(ascending, arcs)}}
        return self._epochs[epoch]

    def _line(self, epoch: int) -> Sequence[Sequence[int]]:
        """9.5, Runs, and Unshuffled, for which the boundaries of runs do not matter."""
        p = self.parameters
        if p.affinity == "run":
            epoch = 0
        runs = self._runs
        if epoch > 0 and self.table.view is not None and not self.table.view.fixed:
            runs = self.table.runs(p.run_blocks, p.seed, epoch)
        if not p.shuffle:
            return [[number for run in runs for number in run]]
        return shuffle(runs, words(p.seed, 1, 0, epoch, 0))

    def _part(self, epoch: int, position: int, n: int) -> List[int]:
        """9.7: returns the samples at n positions, lane by lane."""
        lanes, v = self._lanes(epoch), self.parameters.lanes
        where = sorted((self._in_turn[g % v], g // v) for g in range(position, position + n))
        return [lanes[lane][k] for lane, k in where]

    def place(self, epoch: int, position: int) -> Tuple[int, int]:
        """9.6: returns a place as checkpoints have it: the end of an epoch is the beginning of the
        next."""
        inside = 0 <= epoch < MAX_EPOCH and 0 <= position <= self.samples
        demand(inside or (epoch, position) == (MAX_EPOCH, 0), f"epoch {epoch}, position {position}: an epoch has {self.samples} samples")
        return (epoch + 1, 0) if position == self.samples > 0 else (epoch, position)  # except that position 0 stays if N is 0 (9.10)

    def batch(self, epoch: int, position: int, global_batch: int, until: int = MAX_EPOCH) -> Optional[GlobalBatch]:
        """9.8: returns the global batch at a place; None at the end of the order, which is epoch
        ``until``."""
        demand(1 <= global_batch <= MAX_BATCH, f"global_batch={global_batch}: give 1 to {MAX_BATCH}")
        size, tail, g = self.samples, self.parameters.tail, global_batch
        demand(
            tail != "drop" or g <= size,
            f"tail='drop' with batches of {g}, but the data set has {size} samples: every batch would be dropped",
        )
        epoch, position = self.place(epoch, position)
        if tail == "drop" and size - position < g:
            epoch, position = epoch + 1, 0
        n = min(g, size - position)
        if n == 0 or epoch >= min(until, MAX_EPOCH) or (tail == "wrap" and epoch + (position + g - 1) // size >= MAX_EPOCH):
            return None
        samples, following = self._part(epoch, position, n), self.place(epoch, position + n)
        while tail == "wrap" and len(samples) < g:
            n = min(g - len(samples), size)
            samples += self._part(following[0], 0, n)
            following = self.place(following[0], n)
        real = len(samples)
        if tail == "pad":
            samples = [samples[k % real] for k in range(g)]
        return GlobalBatch(epoch, position, *following, samples, real)

    def batches(self, global_batch: int, *, epoch: int = 0, position: int = 0, epochs: Optional[int] = 1) -> Iterator[GlobalBatch]:
        """Yields the global batches from a place on: all that begin in the next ``epochs`` epochs,
        including the current one. None: without end."""
        until = MAX_EPOCH if epochs is None else epoch + epochs
        while True:
            batch = self.batch(epoch, position, global_batch, until)
            if batch is None:
                return
            yield batch
            epoch, position = batch.next_epoch, batch.next_position

    def locate(self, sample: int) -> Tuple[int, int]:
        """Returns where a sample is stored: the number of its shard, and of its block in that
        shard, not counting empty blocks."""
        if not hasattr(self, "_ends"):
            self._ends = list(itertools.accumulate(self.table.blocks))
        stored = self._ends[-1] if self._ends else 0
        demand(0 <= sample < stored, f"sample {sample}: the data set has {stored}, from 0")
        block = bisect.bisect_right(self._ends, sample)
        shard = bisect.bisect_right(self.table.shard_first_block, block) - 1
        return shard, block - self.table.shard_first_block[shard]

    def checkpoint(self, epoch: int, position: int, global_batch: int = 0, *, skip_hash: str = "", skipped: int = 0) -> Checkpoint:
        """Returns the checkpoint of a place. Readers resume from its ``text()``."""
        made = Checkpoint(
            self.parameters,
            self.samples,
            *self.place(epoch, position),
            global_batch,
            self.table.digest,
            self.table.tables,
            skip_hash,
            skipped,
        )
        made.check()
        return made
