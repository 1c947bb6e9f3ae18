"""The shards of a layer, computed by a function in this process or in others."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from array import array
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .._wire import receiver
from .._wire.process import logger
from ..batch import Batch
from ..errors import EncodeError, ShardtoolError
from ..loader import Loader
from .columns import column_frames, of_batch
from .encode import Slots
from .jobs import begin_process, killed, note, portable, processes, start_method
from .progress import TERMINAL, Progress


class Annotation(NamedTuple):
    """What an annotate writes, without its shards."""

    url: str  # of the data set
    function: Any
    loader: Loader[Any]
    begin: Dict[str, Any]  # BEGIN of the child that writes
    schema: Tuple[Dict[str, str], Dict[str, str]]  # types and attributes
    on_error: str
    title: str = "shardtool.annotate"

    def write(self, shards: Sequence[int], workers: int, first: int, part: int, parts: int) -> Dict[str, Any]:
        """Writes some shards; in a task of an engine."""
        job = self.own()
        with contextlib.closing(Shards(job)) as there, job.loader:
            return run(job, there, shards, workers, Progress("", "samples", False))

    def own(self) -> "Annotation":
        """Returns the job with a loader that no other process has."""
        loader: Loader[Any] = Loader.__new__(Loader)
        loader.__setstate__(self.loader.__getstate__())
        return self._replace(loader=loader)


class Shards:
    """The child that writes shards of a layer, and what is to be written."""

    def __init__(self, job: Annotation) -> None:
        self.child = receiver.Child(job.url, job.begin)
        try:
            said = self.child.answer()
        except BaseException:
            self.child.close()
            raise
        self.first, self.at = int(said["layer"]["first"]), said["layer"]["at"]
        self.last = self.first + len(self.at) - 1
        self.missing = frozenset(said["layer"]["missing"])
        #: Whether an equal call has published the layer.
        self.done = bool(said.get("done"))
        self.slots = Slots(*job.schema)
        self.slots.learn(said["layer"].get("types") or {})
        self._put = 0  # shards whose answers to END are to come
        self._wanted = False
        self.written = 0

    def close(self) -> None:
        """Ends the child."""
        self.child.close()

    def bounds(self, shard: int) -> Tuple[int, int]:
        """The numbers of the first sample of a shard and of the next one."""
        return self.at[shard - self.first], self.at[shard - self.first + 1]

    def size(self, shards: Sequence[int]) -> int:
        """The number of samples in shards."""
        return sum(end - begin for begin, end in map(self.bounds, shards))

    def begin(self, shard: int) -> None:
        """Begins a shard."""
        self.child.send(receiver.SHARD, [shard.to_bytes(4, "little")])
        self._wanted = not self._answer("ready").get("done")

    def rows(self, numbers: Sequence[int], keys: Sequence[Any], columns: Dict[str, Any]) -> None:
        """Adds rows of the shard: a column for each field, in the order of the samples' numbers."""
        made, rows = of_batch(self.slots, {"__key__": list(keys), **columns}, 0, str, bare=True)
        if not self._wanted or not any(c.role == "field" for c in made):
            return
        at = 0
        for body, n in column_frames(made, rows):
            self.child.send(receiver.NUMBERS, [array("Q", numbers[at : at + n]).tobytes()])
            self.child.send(receiver.COLUMNS, [bytes(4), *body])
            at += n

    def end(self) -> None:
        """Ends the shard. The child puts it while the next one is read."""
        if self._wanted:
            self.child.send(receiver.END, [])
            self._put += 1

    def settle(self) -> None:
        """Waits until all shards are put."""
        while self._put:
            self._answer("result")

    def _answer(self, kind: str) -> Dict[str, Any]:
        """Waits for an answer of a kind. Shards that were put answer meanwhile."""
        while True:
            said = self.child.answer()
            if said["kind"] == "result" and self._put:
                self._put -= 1
                self.written += int(said["result"]["written"])
            if said["kind"] == kind:
                return said

    def commit(self) -> Dict[str, Any]:
        """Publishes the layer if all of its shards are there."""
        self.settle()
        self.child.send(receiver.COMMIT, [])
        result: Dict[str, Any] = self.child.answer()["result"]
        return result


class Work:
    """Computes shards in this process."""

    def __init__(self, job: Annotation, there: Shards, tell: Callable[[int], None]) -> None:
        self._job, self._there, self._tell = job, there, tell
        self._function = job.function() if isinstance(job.function, type) else job.function
        #: Batches for which the function raised, with on_error="skip".
        self.failed: List[Dict[str, Any]] = []
        self._batches = self._nothing = 0  # batches, and those for which the function returned None

    def shards(self, shards: Sequence[int]) -> int:
        """Writes shards, and returns how many samples they have."""
        before = self._there.written
        at = 0
        while at < len(shards):
            end = at + 1
            while end < len(shards) and shards[end] == shards[end - 1] + 1:
                end += 1
            self._some(shards[at], shards[end - 1] + 1)
            at = end
        self._there.settle()
        if self._nothing == self._batches > 0:
            logger.warning("%s: the function returned None for all %d batches, so their samples get nothing: did it forget to return?",
                           self._job.title, self._batches)  # fmt: skip
        return self._there.written - before

    def _some(self, lo: int, hi: int) -> None:
        """Writes neighbouring shards."""
        there, reads = self._there, _read(self._job.loader, lo, hi)
        batch = next(reads, None)
        for shard in range(lo, hi):
            told, end = there.bounds(shard)
            made = None if batch is None or batch.numbers[0] >= end else self._made(batch, shard)
            there.begin(shard)  # after the first batch, because it waits for the shard before
            while batch is not None and batch.numbers[0] < end:
                if made:
                    try:
                        there.rows(batch.numbers, batch.sample_keys, made)
                    except ShardtoolError as err:
                        raise self._wrong(err, batch, shard) from None
                self._tell(batch.numbers[-1] + 1 - told)
                told = batch.numbers[-1] + 1
                batch = next(reads, None)
                made = None if batch is None or batch.numbers[0] >= end else self._made(batch, shard)
            there.end()
            self._tell(end - told)

    def _made(self, batch: Batch, shard: int) -> "Optional[Dict[str, Any]]":
        """The columns that the function makes of a batch."""
        try:
            self._batches += 1
            out = self._function(batch)
        except Exception as err:
            key = batch.sample_keys[0]
            if self._job.on_error != "skip":
                note(err, f"{self._job.title}: the batch of {batch.size} samples that begins with {key!r}, in shard {shard}")
                raise
            logger.warning("annotate: %d samples from %r on, in shard %d, get nothing: %r", batch.size, key, shard, err)
            self.failed.append({"shard": shard, "key": key, "samples": batch.size, "error": repr(err)[:1000]})
            return None
        if out is None:
            self._nothing += 1
            return None
        if not isinstance(out, Mapping) or not all(isinstance(name, str) for name in out):
            text = f"the function returned {type(out).__name__}: return a dict with a column for each field"
            raise self._wrong(EncodeError(text), batch, shard)
        for name, column in out.items():
            text = ""
            if name == "__key__":
                text = "a column '__key__': the keys are the keys of the batch"
            elif hasattr(column, "__len__") and not isinstance(column, (str, bytes, dict)) and len(column) != batch.size:
                text = f"the function returned {len(column)} values of {name!r} for {batch.size} samples: return one for each, in order"
            if text:
                raise self._wrong(EncodeError(text, field=name), batch, shard)
        tensor = getattr(sys.modules.get("torch"), "Tensor", ())
        return {name: c.detach().cpu() if isinstance(c, tensor) else c for name, c in out.items()}

    def _wrong(self, err: ShardtoolError, batch: Batch, shard: int) -> ShardtoolError:
        """Adds the place to an error about what the function returned."""
        first = batch.sample_keys[0]
        err.key = err.key or first
        err.more(f"the batch of {batch.size} samples that begins with {first!r}, in shard {shard}")
        return err


def _read(loader: Loader[Any], lo: int, hi: int) -> Iterator[Batch]:
    """The batches of neighbouring shards. Each begins and ends in one shard."""
    loader._asked = dataclasses.replace(loader._asked, starting={**loader._asked.starting, "shards": [lo, hi]})
    loader._checkpoint = loader._ledger = loader._place = loader._pass = loader._run = loader._begin = None
    loader._begun = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a view may have no sample of the shards
        batches = iter(loader)
        first = next(batches, None)
    if first is not None:
        yield from (b for b in (first,) if b.size)
        yield from (b for b in batches if b.size)


def run(job: Annotation, there: Shards, shards: Sequence[int], workers: int, progress: Progress) -> Dict[str, Any]:
    """Writes those of the shards that are missing, and publishes the layer if it is complete."""
    left = [s for s in shards if s in there.missing]
    size = there.size(left)
    progress.begin(size)
    try:
        if workers == 0 or not left:
            work = Work(job, there, progress.add) if left else None
            written, failed = (work.shards(left), work.failed) if work else (0, [])
        else:
            written, failed = _spread(job, left, workers, progress)
    finally:
        progress.end()
    done = there.commit()
    more = done if done["published"] else {"published": False}
    return {**more, "written": written, "resumed": there.size(shards) - size, "failed": failed}


# Other processes

_work: List[Work] = []  # of a process
_counts: List[Any] = []


def _begin(job: Annotation, counter: Any, parent: int) -> None:
    begin_process(parent)
    _work[:], _counts[:] = [], [job.own(), counter]


def _count(samples: int) -> None:
    with _counts[1].get_lock():
        _counts[1].value += samples


def _compute(shards: Sequence[int]) -> Tuple[int, List[Dict[str, Any]], Optional[BaseException]]:
    try:
        if not _work:
            job = _counts[0]
            _work.append(Work(job, Shards(job), _count))
        work = _work[0]
        work.failed = []
        return work.shards(shards), work.failed, None
    except Exception as err:
        return 0, [], portable(err, _counts[0].title)


def _spread(job: Annotation, shards: List[int], workers: int, progress: Progress) -> Tuple[int, List[Dict[str, Any]]]:
    """Computes shards in several processes."""
    from concurrent.futures import FIRST_COMPLETED, wait
    from concurrent.futures.process import BrokenProcessPool

    written, failed = 0, []
    step = max(1, len(shards) // (4 * workers))
    counter = start_method(job.function).Value("q", 0)
    with processes(job.function, workers, _begin, (job, counter)) as pool:
        waiting = {pool.submit(_compute, shards[i : i + step]) for i in range(0, len(shards), step)}
        while waiting:
            done, waiting = wait(waiting, TERMINAL, FIRST_COMPLETED)
            progress.at(counter.get_obj().value)
            for future in done:
                try:
                    n, lost, error = future.result()
                except BrokenProcessPool as err:
                    raise killed(job.title, "") from err
                if error is not None:
                    raise error
                written += n
                failed += lost
    return written, sorted(failed, key=lambda f: (f["shard"], f["key"]))
