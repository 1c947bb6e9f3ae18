"""The samples that a function makes of inputs, in this process or in others."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import sys
import time
import traceback
from collections import deque
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .._system import end_with_parent
from .._wire import receiver
from .._wire.process import logger
from ..errors import ConfigError, EncodeError, ShardtoolError, redact
from ..writer import Writer
from .arrow import batches
from .columns import column_frames
from .encode import Slots
from .progress import Progress
from .rows import Rows, Run

#: Seconds and bytes of the work that a process gets at a time.
_SECONDS, _BYTES = 0.1, 4 << 20

#: The error of a call without inputs.
EMPTY = "inputs: there are none, and so no samples; a glob that matches no file gives an empty list: check the path"


class _Table(NamedTuple):
    """An Arrow table as frames of columns, and the types of its fields."""

    samples: int
    types: List[Tuple[str, str]]
    frames: List[bytes]


class _Made(NamedTuple):
    """What a process makes of several inputs."""

    counts: List[int]  # samples of each input
    parts: List[Union[Run, _Table]]  # the samples, in the order of the function's
    error: Optional[BaseException]  # that ended the last input


class Job(NamedTuple):
    """What an optimize writes, without its inputs."""

    fn: Callable[[Any], Any]
    url: Union[str, os.PathLike[str]]
    options: Dict[str, Any]  # of Writer
    progress: bool = True
    title: str = "shardtool.optimize"

    def write(
        self, inputs: Iterable[Any], workers: int, first: int = 0, rank: Optional[int] = None, parts: Optional[int] = None
    ) -> Dict[str, Any]:
        """Writes the data set or the part ``rank``; ``first`` is the number of its first input."""
        with Writer(self.url, **self.options, rank=rank, world_size=parts) as w:
            if not w._done:
                where = redact(os.fsdecode(self.url)) + (f", part {rank} of {parts}" if parts else "")
                progress = Progress(f"optimize {where}", "inputs", self.progress)
                schema = (self.options["fields"], self.options["attrs"])
                some = _write_all(w, self.fn, inputs, workers, schema, first, progress)
                if not some and rank is None:
                    raise ConfigError(EMPTY)
            elif rank is None:
                logger.warning("optimize %s: the data set is complete already, so the function is not called: on_exists='overwrite'"
                               " writes it anew", redact(os.fsdecode(self.url)))  # fmt: skip
        assert w.result is not None
        return w.result


def _write_all(w: Writer, fn: Any, inputs: Iterable[Any], workers: int, schema: Any, base: int, progress: Progress) -> bool:
    """Returns whether there are inputs."""
    first, skip = w._place
    progress.begin(len(inputs) - first if isinstance(inputs, Sequence) else 0)
    left: Iterator[Any] = iter(inputs[first:]) if isinstance(inputs, Sequence) else itertools.islice(inputs, first, None)
    made = _here(fn, left, schema) if workers == 0 else _there(fn, left, schema, workers, base + first)
    # Closed here, and not when its memory is freed: an error keeps it, and a garbage collection may
    # run in a thread of the processes' pool, which cannot wait for itself.
    with contextlib.closing(made):
        for some in made:
            skip = min(skip, some.counts[0])
            some.counts[0] -= skip
            w._inputs(first, some.counts)
            _take(w, some.parts, skip)
            w._flush()  # the samples of complete shards need not be made again
            first, skip = first + len(some.counts), 0
            progress.add(len(some.counts))
            if some.error is not None:
                note(some.error, f"shardtool.optimize: input number {base + first - 1}")
                raise some.error
    progress.end()
    return first > 0


def _take(w: Writer, parts: List[Union[Run, _Table]], skip: int) -> None:
    """Writes samples, except the first ones, which the store has."""
    for part in parts:
        if isinstance(part, Run):
            kept = _without(part, skip)
            if kept.samples:
                w._take(kept.kind, kept.samples, [kept.data])
                w._rows.samples += kept.samples
        else:
            _take_table(w, part, skip)
        skip = max(0, skip - part.samples)


def _without(run: Run, skip: int) -> Run:
    """A run without its first samples."""
    if skip == 0:
        return run
    skip = min(skip, run.samples)
    at, lengths = 0, 1 + len(run.kind.fields) + len(run.kind.attrs)
    for _ in range(skip):
        sizes = memoryview(run.data)[at : at + 4 * lengths].cast("I")
        at += 4 * lengths + sum(n for n in sizes if n != 0xFFFFFFFF)
    return Run(run.kind, run.samples - skip, run.data[at:])


def _take_table(w: Writer, table: _Table, skip: int) -> None:
    for name, word in table.types:
        slot = w._slots.slot(name)
        slot.kind = slot.kind or word
        if slot.kind != word:
            raise EncodeError(
                f"field {name!r} is {word}, and {slot.kind} in earlier samples: convert it, or declare it in fields", field=name
            )
    w._flush()
    for frame in table.frames:
        rows = int.from_bytes(frame[:4], "little")
        if skip >= rows:
            skip -= rows
            continue
        w._send(receiver.COLUMNS, [skip.to_bytes(4, "little"), frame[4:]])
        w._rows.samples += rows - skip
        skip = 0


def note(error: BaseException, text: str) -> None:
    """Adds a line to an exception of the user's function."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    elif isinstance(error, ShardtoolError):
        error.more(text)


# Encoding, in any process


class _Encoder:
    """Makes samples of inputs. The types of an input's samples depend on it alone, so that they are
    the same in any process."""

    def __init__(self, fn: Callable[[Any], Any], schema: Any) -> None:
        self._fn, self._rows = fn, Rows(Slots(*schema))

    def encode(self, items: Iterable[Any], seconds: float, size: int) -> _Made:
        """Makes the samples of inputs, of at least one and then of no more after some time or
        bytes. Samples before an exception are returned with it."""
        rows, made, until = self._rows, _Made([], [], None), time.monotonic() + seconds
        for item in items:
            rows.apart()
            try:
                for sample in _samples(self._fn(item)):
                    if hasattr(sample, "__arrow_c_stream__"):
                        made.parts.extend(rows.take())
                        made.parts.append(_table(sample, rows))
                    elif isinstance(sample, Mapping):
                        rows.add(sample)
                    else:
                        raise EncodeError(f"fn returned {type(sample).__name__}: samples are dicts, or tables of Arrow")
            except Exception as err:
                made = made._replace(error=err)
            made.counts.append(rows.samples)
            if made.error is not None or rows.size >= size or time.monotonic() >= until:
                break
        made.parts.extend(rows.take())
        return made


def _samples(returned: Any) -> Iterable[Any]:
    if returned is None:
        return ()
    if isinstance(returned, Mapping) or hasattr(returned, "__arrow_c_stream__"):
        return (returned,)
    if not hasattr(returned, "__iter__") or isinstance(returned, (str, bytes)):
        raise EncodeError(f"fn returned {type(returned).__name__}: return or yield samples, which are dicts, or tables of Arrow")
    made: Iterable[Any] = returned
    return made


def _table(table: Any, rows: Rows) -> _Table:
    rows.begin()
    count, types, frames = 0, {}, []
    with batches(rows.slots, table, None, lambda i: rows.numbered(rows.samples + i)) as made:
        for columns, n in made:
            for body, part in column_frames(columns, n):
                frames.append(part.to_bytes(4, "little") + b"".join(body))
            types.update({c.name: c.facts["type"] for c in columns if c.role == "field"})
            count += n
    rows.samples += count
    return _Table(count, sorted(types.items()), frames)


def _here(fn: Any, inputs: Iterator[Any], schema: Any) -> Generator[_Made, None, None]:
    encoder = _Encoder(fn, schema)
    while True:
        made = encoder.encode(inputs, _SECONDS, _BYTES // 8)
        if not made.counts:
            return
        yield made


# Other processes

_job: List[_Encoder] = []  # of a process


def _begin(fn: Any, schema: Any, parent: int) -> None:
    begin_process(parent)
    _job[:] = [_Encoder(fn, schema)]


def begin_process(parent: int) -> None:
    """Begins a process that calls the user's function."""
    torch = sys.modules.get("torch")
    if torch is not None:  # a process forked after parallel work of OpenMP would wait for its threads
        torch.set_num_threads(1)
    # The pool's processes hold both ends of its queues: without this they outlive a parent that was
    # killed.
    with contextlib.suppress(OSError, AttributeError):
        end_with_parent()
    if os.getppid() == 1 != parent:  # it was killed before that
        os._exit(1)


def _work(items: List[Any]) -> "Tuple[_Made, float]":
    """The samples of the first inputs, as many as a process should make at a time, and the seconds
    that they took."""
    since = time.perf_counter()
    made = _job[0].encode(items, 10 * _SECONDS, 16 * _BYTES)
    if made.error is not None:
        made = made._replace(error=portable(made.error))
    return made, time.perf_counter() - since


def portable(error: BaseException, title: str = "shardtool.optimize") -> BaseException:
    """An exception that another process can be sent."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ShardtoolError(f"fn failed:\n{text}")
    if hasattr(error, "add_note"):
        error.add_note(f"in a process of {title}:\n{text}")
    return error


def start_method(fn: Any) -> Any:
    """How processes start. They are forked where the program left the choice to Python, whose
    default is another since 3.14: functions of notebooks, and scripts without a guard of
    __main__, work with every version."""
    methods = multiprocessing.get_all_start_methods()  # the default first
    method = multiprocessing.get_start_method(allow_none=True)
    if sys.platform == "linux" and method in (None, methods[0]):
        method = "fork"
    context = multiprocessing.get_context(method)
    if context.get_start_method() != "fork":
        try:
            pickle.dumps(fn)
        except Exception as err:
            raise ConfigError(
                f"fn={fn!r} cannot be sent to processes started by {context.get_start_method()}:"
                " define it at the top of a module, or give workers=0"
            ) from err
    return context


def _there(fn: Any, inputs: Iterator[Any], schema: Any, workers: int, first: int) -> Generator[_Made, None, None]:
    """What the inputs make, in their order. Each process gets about _SECONDS of work at a time; how
    the inputs are divided does not matter for the bytes."""
    from concurrent.futures.process import BrokenProcessPool  # takes milliseconds

    waiting: deque[Any] = deque()
    size, number = 1, first
    with processes(fn, workers, _begin, (fn, schema)) as pool:
        while True:
            while len(waiting) < 2 * workers:
                items = list(itertools.islice(inputs, size))
                if not items:
                    break
                waiting.append((items, pool.submit(_work, items)))
            if not waiting:
                return
            items, future = waiting.popleft()
            try:
                made, seconds = future.result()
                rest = items[len(made.counts) :]
                if rest and made.error is None:
                    waiting.appendleft((rest, pool.submit(_work, rest)))
            except BrokenProcessPool as err:
                raise killed("shardtool.optimize", f" at input number {number} or a later one") from err
            number += len(made.counts)
            stored = sum(len(p.data) if isinstance(p, Run) else sum(map(len, p.frames)) for p in made.parts)
            share = max(seconds / _SECONDS, stored / _BYTES, 1 / 16)
            size = max(1, min(int(len(made.counts) / share), 4 * size, 10_000))
            yield made


@contextlib.contextmanager
def processes(fn: Any, workers: int, begin: Callable[..., None], arguments: Tuple[Any, ...]) -> Iterator[Any]:
    """Processes that call the user's function, each begun by ``begin``. An exception ends them,
    also where a function hangs."""
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(workers, start_method(fn), initializer=begin, initargs=(*arguments, os.getpid()))
    try:
        yield pool
    except GeneratorExit:
        raise
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def killed(title: str, where: str) -> ShardtoolError:
    """The error for a process that ended."""
    return ShardtoolError(f"a process of {title} was killed{where}; if memory ran out, give fewer workers. Repeat the call to continue")
