"""Ranks that count skipped samples together: after each batch, all know the blocks that any of them
skipped (ORDER.md 9.11).

A rank finds only the damage in its own samples. Before a batch is delivered, the ranks exchange
whether one of them skipped a block in it, by an all_reduce of 64 bytes between CPUs. If one did,
they gather the lists. All ranks then have the same state after a step, and exceed ``max_skipped``
at the same step.
"""

from __future__ import annotations

import contextlib
import json
import sys
import zlib
from typing import Any, List, NoReturn, Optional, Tuple

from .._wire.process import logger
from ..errors import CheckpointError, ConfigError, ShardtoolError, SkippedError
from .states import Ledger, place_of, read_ledger, samples_in, unite, with_ledger, write_ledger

#: What a rank is about to do: begin at a place, deliver the batch before a place, or end with an
#: error.
BEGIN, BATCH, FAILED = range(3)


class Group:
    """This rank's membership. All ranks must make the same calls in the same order, as for
    torch.distributed, from one thread at a time."""

    def __init__(self, group: Any, world: Any) -> None:
        self.inner = group
        #: The default group when this one was made; None if the user gave the group.
        self.world = world
        self._known: Ledger = {}  # the blocks that all ranks have agreed on
        self._text: Optional[str] = None  # the ledger of them

    def begin(self, checkpoint: Optional[str], begin: Optional[int], ledger: Optional[str]) -> Tuple[Optional[str], Optional[str]]:
        """Begins to iterate at a place. Returns checkpoint and ledger with the blocks of all ranks.
        Raises CheckpointError on all ranks if they begin at different places."""
        self._known, self._text = {}, None
        own = read_ledger(ledger)
        place = "the first epoch" if checkpoint is None else "epoch {}, position {}".format(*place_of(checkpoint))
        if begin is not None:
            place = f"epoch {begin}"
        if checkpoint is not None:  # only the skipped blocks may differ
            place += f" of checkpoint {json.loads(with_ledger(checkpoint, {}))['check']}"
        self._exchange(BEGIN, place, own, bool(own))
        return self._agreed(checkpoint) or checkpoint, self._text

    def batch(self, place: Tuple[int, int], checkpoint: str, ledger: Optional[str], limit: int) -> Tuple[str, Optional[str]]:
        """Delivers the batch before a place. Returns checkpoint and ledger with the blocks of all
        ranks. Raises SkippedError on all ranks if they skipped more than the limit, and
        ShardtoolError if another rank failed."""
        own: Ledger = {}
        if ledger is not None and ledger != self._text:
            own = {at: block for at, block in read_ledger(ledger).items() if at not in self._known}
        before = samples_in(self._known)
        self._exchange(BATCH, "epoch {}, position {}".format(*place), own, bool(own))
        samples = samples_in(self._known)
        if samples > limit and samples != before:
            raise SkippedError(
                f"the ranks together skipped {samples} samples in {len(self._known)} damaged blocks, but max_skipped allows {limit}:"
                " restore the data set from a copy, or allow more"
            )
        return self._agreed(checkpoint) or checkpoint, self._text

    def failed(self, err: Exception) -> None:
        """Tells the other ranks that this one failed, so that they do not wait for it."""
        with contextlib.suppress(ShardtoolError):  # this rank raises its own error
            self._exchange(FAILED, "", {}, True, err)

    def _agreed(self, checkpoint: Optional[str]) -> Optional[str]:
        return with_ledger(checkpoint, self._known) if checkpoint is not None and self._known else None

    def _exchange(self, what: int, place: str, own: Ledger, news: bool, err: Optional[Exception] = None) -> None:
        import torch
        import torch.distributed as dist

        crc = zlib.crc32(place.encode())
        # The maximum over all ranks; for negated numbers, the minimum.
        mine = torch.tensor([what, -what, crc, -crc, int(news), 0, 0, 0], dtype=torch.int64)
        try:
            dist.all_reduce(mine, op=dist.ReduceOp.MAX, group=self.inner)
            most, least, high, low, any_news = mine.tolist()[:5]
            if not any_news and (most, high) == (-least, -low):
                return
            said: List[Any] = [None] * dist.get_world_size(self.inner)
            message = (what, place, write_ledger(own), None if err is None else (type(err).__name__, str(err)))
            dist.all_gather_object(said, message, group=self.inner)
        except RuntimeError as gone:
            raise ShardtoolError(f"the other ranks cannot be reached: one ended, or waits too long for data: {gone}") from gone
        self._hear(said)

    def _hear(self, said: "List[Any]") -> None:
        """Adds the messages of all ranks. They are the same on all ranks, and so is the result."""
        for rank, (_, _, _, problem) in enumerate(said):
            if problem is not None:
                kind = SkippedError if problem[0] == "SkippedError" else ShardtoolError
                raise kind(f"rank {rank} failed at this step: {problem[0]}: {problem[1]}")
        if len({(what, place) for what, place, _, _ in said}) > 1:
            _out_of_step(said)
        for _, _, ledger, _ in said:
            unite(self._known, read_ledger(ledger))
        self._text = write_ledger(self._known)


def _out_of_step(said: "List[Any]") -> NoReturn:
    tell = {BEGIN: "begins at", BATCH: "delivers the batch before"}
    other = next(rank for rank in range(len(said)) if said[rank][:2] != said[0][:2])
    lines = [f"rank {rank} {tell[said[rank][0]]} {said[rank][1]}" for rank in (0, other)]
    raise CheckpointError(
        f"the ranks are at different steps: {'; '.join(lines)}: resume all from the states of one step, and iterate on all ranks alike"
    )


def join(wanted: Any, rank: int, world_size: int, before: Optional[Group]) -> Optional[Group]:
    """Returns the group that a loader counts skipped samples with, or None if its rank counts
    alone. wanted is the argument ``skip_group``, before the group that the loader had until now."""
    if world_size == 1 or wanted is False:
        return None
    automatic = wanted is None or wanted is True
    dist = sys.modules.get("torch.distributed")
    why = why_not(dist, (rank, world_size) if automatic else None)
    if why:
        if wanted is True:
            raise ConfigError(f"skip_group=True: {why}")
        logger.warning(
            "rank %d of %d counts skipped samples alone, because %s: max_skipped is the limit of each rank, and ranks may"
            " stop at different steps; resume from the states of all: load_state_dict takes their list",
            rank,
            world_size,
            why,
        )
        return None
    assert dist is not None
    if not automatic:
        if (dist.get_rank(wanted), dist.get_world_size(wanted)) != (rank, world_size):
            raise ConfigError(
                f"skip_group has rank {dist.get_rank(wanted)} of {dist.get_world_size(wanted)}, the loader rank {rank} of"
                f" {world_size}: give the group of the data-parallel ranks"
            )
        if str(dist.get_backend(wanted)) == "nccl":
            raise ConfigError("skip_group must connect CPUs: make it with torch.distributed.new_group(ranks, backend='gloo')")
        return before if before is not None and before.inner is wanted else Group(wanted, None)
    world = dist.group.WORLD
    if before is not None and before.world is world:
        return before
    return Group(dist.new_group(backend="gloo"), world)  # a separate group: other threads may use the default one


def why_not(dist: Any, ranks: Optional[Tuple[int, int]]) -> str:
    """Explains why ranks cannot communicate; empty if they can. ranks are the loader's if it
    would use the default group."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return "it reads in a worker of a DataLoader"
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return "torch.distributed is not initialised"
    if ranks is None:
        return ""
    if not dist.is_gloo_available():
        return "this torch is built without gloo"
    if (dist.get_rank(), dist.get_world_size()) != ranks:
        return "its rank differs from the rank of torch.distributed (skip_group takes the group of the data-parallel ranks)"
    return ""
