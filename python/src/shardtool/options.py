"""The groups of options that Loader, Dataset and open share: Order, Tuning and Faults.

They hold the options that most programs leave alone. A group cannot be changed after it was made;
``dataclasses.replace(group, name=value)`` makes a changed copy. Sizes are bytes, or text such as
"64MiB" or "1GB". Errors are ConfigError.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Dict, Literal, Optional, Union

from . import guesses
from ._checks import Output, Size, at_least, check_max_skipped, installed, set_typed
from .errors import ConfigError

__all__ = ["Faults", "Lanes", "Order", "Tuning"]


@guesses.answered(guesses.LANES, "Lanes(96)")
@dataclasses.dataclass(frozen=True)
class Lanes:
    """The lanes that the order is made of: independent streams of runs of blocks. Each batch takes
    samples from all of them, and each rank reads its share. Few programs need to set them: the
    shuffle memory determines all. An option that is None is as in ``Order``."""

    number: Optional[int] = None
    """How many there are. More mix more places of the data set, and need more memory. Default 96,
    or a divisor of 96 where the shuffle memory is small."""

    run_blocks: Optional[int] = None
    """Consecutive blocks that are read together, as one run. More make longer reads; fewer mix
    better. Default: 1, or up to 8 where blocks are small."""

    delay: Optional[int] = None
    """Steps of its lane over which the samples of a run are spread. More mix better and hold more
    memory. Default: what the shuffle memory allows, at most 4096."""

    head: Optional[int] = None
    """Runs of each lane that the first batch draws from. More mix the first batches better and
    make the first batch wait longer. Default 4, at most ``delay``."""

    affinity: Optional[Literal["epoch", "run"]] = None
    """"epoch" (the default): a lane gets other data in every epoch. "run": a lane keeps its data,
    so that the cache of a node has it from the second epoch on, and the epochs mix less."""

    whole_shards: Optional[bool] = None
    """True: read whole shards at a time. Reads are longer, which helps disks that seek and shards
    that are in a cache. The same shuffle memory mixes fewer places of the data set. Default
    False."""

    def __post_init__(self) -> None:
        set_typed(self)
        for name in ("number", "run_blocks", "delay", "head"):
            at_least(name, getattr(self, name), 0)


@guesses.answered(guesses.ORDERING, "Order(shuffle_memory='4GiB')", 0)
@dataclasses.dataclass(frozen=True)
class Order:
    """Details of the order of samples and of the batches cut from it.

    Different values give a different order, except for ``global_batch`` on a resumed job, which
    only changes where batches are cut. An option that is None has the value of the checkpoint that
    the job resumes from, or else its default. A value that contradicts the checkpoint is refused.
    """

    global_batch: Optional[int] = None
    """Samples of a batch over all ranks, in place of ``batch_size``: it stays the same when the
    number of ranks changes. With a checkpoint, both may be left out."""

    epoch: int = 0
    """The first epoch, from 0. ``epochs`` counts from here."""

    shuffle_memory: Optional[Size] = None
    """Decoded bytes that the samples are shuffled among, over all ranks; default 2 GiB. A batch of
    a data set that is stored class by class needs more to mix well. The ranks hold about 1.5 times
    this much together."""

    cost_group: Optional[int] = None
    """With the argument ``cost``: how many consecutive ranks exchange entries of a batch, a divisor
    of the world size. Each of them reads what all of the group need, so the ranks of a host that
    share a ``cache`` are a good choice. Default: all ranks."""

    micro_batches: Optional[int] = None
    """With the argument ``cost``: how many parts a loop divides the batch of a rank into, to add up
    their gradients. The parts of a batch then cost nearly the same, too: part i is
    ``batch["micro_start"][i]`` to ``[i + 1]`` of its samples, of the sequences of a ``Pack``, or of
    the micro-batches of a ``Bucket``. A rank has the same samples without it."""

    whole_shards: Optional[bool] = None
    """As ``lanes=Lanes(whole_shards=...)``, which is its place now."""

    lanes: Union[Lanes, int, None] = None
    """The lanes that the order is made of: see ``shardtool.Lanes``. A number is
    ``Lanes(number=...)``."""

    run_blocks: Optional[int] = None
    """As ``lanes=Lanes(run_blocks=...)``, which is its place now."""

    delay: Optional[int] = None
    """As ``lanes=Lanes(delay=...)``, which is its place now."""

    head: Optional[int] = None
    """As ``lanes=Lanes(head=...)``, which is its place now."""

    affinity: Optional[Literal["epoch", "run"]] = None
    """As ``lanes=Lanes(affinity=...)``, which is its place now."""

    def __post_init__(self) -> None:
        set_typed(self, sizes=("shuffle_memory",))
        for name, least in (("global_batch", 1), ("epoch", 0), ("run_blocks", 0), ("delay", 0), ("head", 0), ("cost_group", 0),
                            ("micro_batches", 1)):  # fmt: skip
            at_least(name, getattr(self, name), least)
        if isinstance(self.lanes, int):
            at_least("lanes", self.lanes, 0)
        for name in vars(self.lanes) if isinstance(self.lanes, Lanes) else ():
            if getattr(self, name, None) is not None:
                raise ConfigError(f"lanes=Lanes(...) and {name}: give Lanes({name}=...)")

    def _members(self) -> Dict[str, Any]:
        """What was given, by the names that the child knows."""
        said = dict(vars(self))
        if isinstance(self.lanes, Lanes):
            said.update(vars(self.lanes))
            said["lanes"] = said.pop("number")
        return said


@guesses.answered(guesses.TUNINGS, "Tuning(workers=8, memory='4GiB')", 0)
@dataclasses.dataclass(frozen=True)
class Tuning:
    """Memory, parallelism, reports and the type of arrays. No option changes which samples a batch
    has.

    ``open`` uses ``out``, ``memory``, ``workers`` and ``cache_size``; the others concern batches.
    """

    out: Optional[Output] = None
    """The type of arrays, where the argument ``format`` does not give it."""

    memory: Optional[Size] = None
    """Bytes of blocks that the child process holds. More lets it read further ahead. Default: 1.5
    times this rank's share of the shuffle memory."""

    ring_memory: Optional[Size] = None
    """Most bytes of shared memory for batches that are made ahead of the loop; default 1 GiB. It is
    allocated as batches need it. Batches that the loop has got do not count."""

    prefetch: Optional[int] = None
    """Complete batches that wait for the loop. More even out steps of uneven length, and take
    shared memory. Default: 4, or as many small ones as 8 MiB hold, up to 64."""

    requests: Optional[int] = None
    """Requests in flight to an object store. None: 64 at first, then as many as the measured
    store and step need."""

    depth: Optional[int] = None
    """Batches that are read ahead of the complete ones, if ``memory`` allows. None: as many as
    the measured store and step need."""

    autotune: bool = True
    """False: measure nothing. ``requests`` stays at 64 and ``depth`` at what the memory allows
    where they are None."""

    workers: Optional[int] = None
    """Threads of the child process that decompress. Default: the CPUs that this process may use,
    divided by the ranks on this host."""

    cache_size: Optional[Size] = None
    """The argument ``cache_size`` of a loader, where that is not given."""

    copy: Optional[bool] = None
    """Has no effect any more: batches are not copied, and may be kept. Memoryviews of payloads are
    ``fields={"jpg": "view"}``."""

    peers: Any = None
    """The processes that get the same batches as this one, as those of tensor, pipeline and context
    parallelism do: a process group of torch.distributed, one dimension of a device mesh, or an
    object with ``rank``, ``size`` and ``allgather(value)``, such as a communicator of mpi4py. The
    first of them reads, and gives its batches to the others: in shared memory on its host, over
    TCP to others. All must make the loader, with one ``rank`` and ``world_size``, and iterate it
    alike. A copy of the loader in another process reads by itself."""

    host: bool = False
    """True: the processes of this job on this host share one child process, which reads and decodes
    what they need once. A data set that fits ``Order(shuffle_memory=...)`` is then held whole,
    once for the host, and every rank draws from all of it: without it, each rank holds an eighth of
    that. All ranks must give the same value, because it chooses the order of a new run. A process
    that finds no child to share reads alone, in the same order, with all of the memory.

    The first process starts the child, which ends with the last of them. Linux."""

    metrics: Optional[str] = None
    """Address to serve metrics for Prometheus at: ":9400" for this host, "0.0.0.0:9400" for
    others. None: the environment variable SHARDTOOL_METRICS. "": no metrics. Loaders that share
    the address take the first free one of 64 ports from this one on, or any port for port 0;
    ``metrics_url`` of the loader has the result."""

    stats_every: float = 0.0
    """Seconds between lines of ``stats`` in the log "shardtool", level INFO; 0: no lines."""

    def __post_init__(self) -> None:
        asked = self.memory
        set_typed(self, sizes=("memory", "ring_memory", "cache_size"))
        if self.memory is not None and int(self.memory) < 1 << 20:
            raise ConfigError(f"memory={asked!r}: the least is '1MiB', one block")
        if self.copy is not None:
            warnings.warn(
                "Tuning(copy=...) has no effect: batches are not copied and may be kept; leave it out, and declare fields of"
                ' which you want memoryviews as "view"',
                DeprecationWarning,
                stacklevel=3,
            )
            object.__setattr__(self, "copy", None)
        if self.host and self.peers is not None:
            raise ConfigError("host and peers: give one of them: the first of the peers reads for all of them")
        for name, least in (("prefetch", 0), ("requests", 1), ("depth", 1), ("workers", 0), ("stats_every", 0)):
            at_least(name, getattr(self, name), least)


def format_of(format: Optional[Output], tuning: Tuning) -> Output:
    """Returns the type of arrays: torch where it is installed, otherwise numpy, unless one is
    given."""
    if format is not None and tuning.out not in (None, format):
        raise ConfigError(f"format={format!r} and Tuning(out={tuning.out!r}): leave the second out")
    return format or tuning.out or ("torch" if installed("torch") else "numpy")


def cached(tuning: Tuning, cache_size: Optional[Size]) -> Tuning:
    """Returns the tuning with the size of the cache."""
    if cache_size is None:
        return tuning
    if tuning.cache_size is not None:
        raise ConfigError("cache_size and Tuning(cache_size=...): leave the second out")
    return dataclasses.replace(tuning, cache_size=cache_size)


@guesses.answered(guesses.ON_FAULTS, "Faults(on_error='skip')", 2)
@dataclasses.dataclass(frozen=True)
class Faults:
    """What happens when a block is damaged, which a second read must confirm."""

    on_error: Literal["fail", "skip"] = "fail"
    """"fail": raise CorruptError. "skip": leave out the samples of the block; no other sample
    moves. It also leaves out samples whose image a field of ``shardtool.Image`` cannot decode:
    each rank logs and counts its own, since its loader was made, and states do not have them."""

    max_skipped: Union[int, float, None] = None
    """With "skip", the most samples to leave out, over all epochs and ranks: an int is a number of
    samples, a float a share of the data set. Default 0.001. More raise SkippedError; 0 means
    "fail"."""

    skip_group: Any = None
    """With "skip", the ranks that count together: they have the same state after each step, and
    raise SkippedError at the same step. It costs an all_reduce of 64 bytes a batch, and all ranks
    have to iterate alike.

    None: all ranks of torch.distributed, if it is initialised and this loader has its rank and
    world size; otherwise each rank counts alone, with a warning. True: the same, but counting
    alone is an error. A process group for CPUs (gloo): its ranks. False: each rank alone."""

    def __post_init__(self) -> None:
        set_typed(self)
        check_max_skipped(self.max_skipped)
