"""Parameters, tables and their limits: sections 9.1 to 9.3 of ORDER.md."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple

from .limits import demand
from .view import View
from .words import U32, U64

MAX_BATCH, MAX_EPOCH = 2**31 - 1, 2**32  # 9.2; epoch 2^32 with position 0 stands for "after the last"
AFFINITIES, TAILS = ("epoch", "run"), ("short", "drop", "wrap", "pad")

#: Default of the shuffle memory, in bytes.
MEMORY = 2**31


class Parameters(NamedTuple):
    """Everything that decides an order except the table (ORDER.md 9.1). A checkpoint contains
    them."""

    seed: int = 0  #: 0 to 2^64 - 1
    shuffle: bool = False
    lanes: int = 1  #: V
    run_blocks: int = 1  #: E, 0 for whole shards
    delay: int = 1  #: W
    head: int = 1  #: H
    mix_block: int = 0  #: T
    affinity: str = "epoch"  #: "epoch" or "run"
    tail: str = "short"  #: "short", "drop", "wrap" or "pad"

    def check(self) -> None:
        """Raises ConfigError if a parameter is out of its limits."""
        for name, low, high in (("seed", 0, U64 - 1), ("lanes", 1, 2**24), ("run_blocks", 0, U32 - 1), ("delay", 1, U32 - 1),
                                ("head", 1, self.delay), ("mix_block", 0, U32 - 1)):  # fmt: skip
            demand(low <= getattr(self, name) <= high, f"{name}={getattr(self, name)!r} is out of its limits, {low} to {high}")
        demand(isinstance(self.shuffle, bool), f"shuffle={self.shuffle!r} is no bool")
        demand(self.shuffle or self.delay == self.head == 1, "delay and head are 1 without shuffle")
        demand(self.affinity in AFFINITIES, f"affinity={self.affinity!r}: write {' or '.join(AFFINITIES)}")
        demand(self.tail in TAILS, f"tail={self.tail!r}: write one of {', '.join(TAILS)}")


class Table(NamedTuple):
    """What an order is computed from (ORDER.md 9.2). ``Table.of`` reads that of a data set."""

    blocks: Sequence[int]  #: Samples of each block, in storage order. Blocks without samples may be left out.
    shard_first_block: Sequence[int]  #: The number of the first block of each shard; then the number of blocks.
    decoded: int = 0  #: Decoded bytes of all blocks. Only ``choose`` uses it.
    digest: str = ""  #: Of the data set, as checkpoints have it.
    tables: str = ""  #: The object that defines the data set's generation in a checkpoint.
    shards: Sequence[str] = ()  #: Names of the shards.
    view: Optional[View] = None  #: Which samples an epoch has; None: all.

    @classmethod
    def of(cls, url: str) -> "Table":
        """Reads the table of a data set with ``shardtool inspect``, which reads only the manifest;
        of a view, also the indexes. Raises the errors of opening the data set, and ConfigError for
        a view with weights."""
        from .inspect import inspect

        return cls(*inspect(url))

    def check(self) -> None:
        """Raises ConfigError if it is not a valid table."""
        demand(len(self.blocks) < U32 and all(0 <= n < U32 for n in self.blocks), "too many blocks, or samples of a block")
        demand(sum(self.blocks) < 2**63, "too many samples")
        f = self.shard_first_block
        demand(len(f) > 0 and f[0] == 0 and f[-1] == len(self.blocks) and list(f) == sorted(f), "shard_first_block does not fit")
        if self.view is not None:
            self.view.check(self.blocks)

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return sum(self.blocks) if self.view is None else self.view.samples

    def runs(self, run_blocks: int, key: int = 0, epoch: int = 0) -> "List[Sequence[int]]":
        """9.5, Runs: the sample numbers of each run, in storage order, without empty runs. Those
        of a view may depend on the epoch, and on the key of its random words."""
        runs: List[Sequence[int]] = []
        chosen = None if self.view is None else self.view.chosen(self.blocks, key, epoch)
        sample = 0
        for begin, end in zip(self.shard_first_block, self.shard_first_block[1:]):
            size = run_blocks or max(1, end - begin)
            for b in range(begin, end, size):
                n = sum(self.blocks[b : min(b + size, end)])
                run: Sequence[int] = range(sample, sample + n)
                if chosen is not None:
                    run = [number for block in chosen[b : min(b + size, end)] for number in block]
                demand(len(run) < U32, "a run has too many samples")
                if len(run) > 0:
                    runs.append(run)
                sample += n
        return runs


# ---- 9.3 Parameters from a shuffle memory ----
def run_bytes(shards: Sequence[int], decoded: int, run_blocks: int) -> int:
    """9.3, S: the mean bytes of a run."""
    number = sum(shards) if run_blocks else len(shards)
    return max(run_blocks, 1) * -(-decoded // number) if decoded and number else 1


def held_whole(table: Table, shards: Sequence[int], memory: int, host: bool) -> bool:
    """9.3, "Held whole", where no parameter is explicit."""
    samples = sum(table.blocks)
    if table.view is not None:
        samples = max(samples, table.view.samples)
    if min(table.decoded, samples) == 0 or 512 * samples > memory:
        return False
    if host:
        return table.decoded <= memory
    return 8 * table.decoded <= memory or (2 * table.decoded <= min(memory, 2**31) and sum(shards) < 3072)


def choose_run_blocks(shards: Sequence[int], explicit: int, whole_shards: bool) -> int:
    """9.3, step 1, as far as the number of runs decides."""
    demand(not (whole_shards and explicit), "whole_shards and run_blocks: give one of them")
    if whole_shards or explicit:
        return explicit  # 0 for whole shards
    size = 1
    while size < max(shards, default=0) and sum(-(-blocks // size) for blocks in shards) > 2**24:
        size *= 2
    return size


def join_blocks(shards: Sequence[int], decoded: int, size: int, lanes: int, memory: int) -> int:
    """9.3, step 2: joins small blocks into longer runs."""
    while decoded and size < min(max(shards, default=0), 8) and run_bytes(shards, decoded, size) < 3 * 2**18:
        fit = memory // (lanes * run_bytes(shards, decoded, 2 * size))
        if fit < 40 or sum(-(-blocks // (2 * size)) for blocks in shards) < 32 * lanes:
            break
        size *= 2
    return size


def choose_window(shards: Sequence[int], decoded: int, run_blocks: int, lanes: int, memory: int, unit_blocks: int) -> Tuple[int, int]:
    """9.3, step 5 without an explicit W: V and W. Windows of units (9.16) take ``unit_blocks``."""
    size = run_bytes(shards, decoded, run_blocks)
    blocks = min(unit_blocks, sum(shards))
    extra = 4 - (-blocks // run_blocks if run_blocks else -blocks * max(len(shards), 1) // max(sum(shards), 1))
    divisors = (d for d in range(96, 1, -1) if 96 % d == 0 and d * unit_blocks <= sum(shards))
    v = lanes or next((d for d in divisors if memory // (d * size) >= 12 + extra), 1)
    f = memory // (v * size)
    demand(f > extra, f"the shuffle memory is too small: {(extra + 1) * v * size} bytes would do")
    return v, min(f - extra, 4096)


def choose(
    table: Table,
    *,
    seed: Optional[int] = None,
    shuffle: Optional[bool] = None,
    shuffle_memory: Optional[int] = None,
    whole_shards: Optional[bool] = None,
    lanes: Optional[int] = None,
    run_blocks: Optional[int] = None,
    delay: Optional[int] = None,
    head: Optional[int] = None,
    affinity: Optional[str] = None,
    tail: Optional[str] = None,
    epochs: Optional[int] = None,
    global_batch: Optional[int] = None,
    world_size: Optional[int] = None,
    unit_blocks: Optional[int] = None,
    host: Optional[bool] = None,
) -> Parameters:
    """Chooses parameters as readers do (ORDER.md 9.3). None, 0 and "" mean the default.

    Args:
        table: What the order is computed from; only the numbers of blocks and samples matter.
        seed, shuffle, tail, epochs: As for ``shardtool.Loader``. ``epochs`` only decides ``tail``.
        whole_shards, lanes, run_blocks, delay, head, affinity, global_batch: As for
            ``shardtool.Order``.
        world_size: The number of ranks.
        shuffle_memory: In bytes; default 2 GiB.
        host: Whether the ranks of a host share what they hold.
        unit_blocks: Blocks of a lane that a window of units takes; see ``choose_units``.

    Raises:
        ConfigError: They contradict each other, or are out of their limits.
    """
    f = table.shard_first_block
    shards = [end - begin for begin, end in zip(f, f[1:])]
    batch, world = global_batch or 0, world_size or 1
    demand(sum(shards) < U32 and 0 <= batch <= MAX_BATCH and world >= 1, "out of the limits of the order")
    demand(all((n or 0) >= 0 for n in (lanes, run_blocks, delay, head, shuffle_memory)), "a negative parameter")
    e = choose_run_blocks(shards, run_blocks or 0, bool(whole_shards))  # step 1
    v, w, h, memory = lanes or 0, delay or 0, head or 0, shuffle_memory or MEMORY
    if not shuffle:  # step 3
        v, w, h = v or (96 if world > 1 else 1), w or 1, h or 1
    elif not (run_blocks or whole_shards or v or w or h) and held_whole(table, shards, memory, bool(host)):
        v, e, w, h = 1, 1, sum(shards), sum(shards)
    elif not w:  # steps 2, 4 and 5
        if not (run_blocks or whole_shards):
            e = join_blocks(shards, table.decoded, e, v or 96, memory)
        v, w = choose_window(shards, table.decoded, e, v, memory, unit_blocks or 0)
    v, h = v or 96, h or min(4, w)  # steps 4 and 6
    t = min(max(1, batch // v), 2**31) if batch else 0  # step 7
    p = Parameters(seed or 0, bool(shuffle), v, e, w, h, t, affinity or "epoch", tail or ("short" if epochs else "wrap"))
    p.check()  # step 8
    return p
