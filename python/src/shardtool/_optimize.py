"""Writing a data set by a function of inputs, in many processes."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import signal
import sys
import time
import traceback
from collections import deque
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _child, _columns, _config, _parts
from ._encode import Slots
from ._rows import Rows, Run
from .errors import ConfigError, EncodeError, ShardtoolError
from .writer import Writer

#: Seconds and bytes of the work that a process gets at a time.
_SECONDS, _BYTES = 0.1, 4 << 20


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


def optimize(
    fn: Callable[[Any], Any],
    inputs: Iterable[Any],
    url: Union[str, os.PathLike[str]],
    *,
    workers: Optional[int] = None,
    engine: Optional[Literal["ray", "dask", "spark"]] = None,
    parts: Optional[int] = None,
    part: Optional[int] = None,
    task_options: Optional[Mapping[str, Any]] = None,
    fields: Optional[Mapping[str, str]] = None,
    attrs: Optional[Mapping[str, str]] = None,
    on_exists: Literal["fail", "append", "overwrite", "resume"] = "resume",
    source: Optional[str] = None,
    **options: Any,
) -> Any:
    """Writes the samples of ``fn(input)`` for all inputs, in their order.

    ::

        def samples(path):
            for i, row in enumerate(read(path)):
                yield {"__key__": f"{path.stem}/{i}", "text": row.text, "emb": embed(row)}

        shardtool.optimize(samples, sorted(Path("raw").glob("*.json")), "s3://bucket/train")

    ``fn`` returns or yields samples as ``Writer.write`` takes them, or tables as
    ``Writer.write_table`` does; None is no sample. It runs in ``workers`` processes of this
    machine.
    The bytes of the data set depend on the samples, and never on the number of processes. If the
    call is killed, repeat it: it continues at the first input whose samples are not all in a
    complete shard. If the data set is complete, the call does nothing.

    **Many machines.** With ``parts``, the inputs are divided into that many contiguous slices of
    equal length, each with its own shards. The last part to be complete publishes all of them.
    ``engine`` runs a task for each part on the cluster of Ray, Dask or Spark; a task that loses its
    machine is repeated there, and continues. Without an engine, this process writes the part of its
    task in a Slurm array or a Kubernetes Indexed Job, every n-th part if srun started n tasks, and
    otherwise all of them. Parts that are complete are left alone. The bytes depend on the samples
    and the number of parts, and never on the engine.

    Args:
        fn: A function. Processes are forked, unless the program chose another way with
            ``multiprocessing.set_start_method``: those must be able to import it.
        inputs: A sequence or another iterable, which yields the same inputs each time.
        url, fields, attrs, on_exists: As for Writer.
        workers: Number of processes. None: one for each core. 0: this process. The tasks of an
            engine have one each.
        engine: "ray", "dask" or "spark", with ``parts``.
        parts: Number of parts. None: the data set is not divided, whatever the environment is.
        part: The part that this process writes. None: from the environment.
        task_options: For a task of Ray, what ``options`` of a remote function takes, such as
            ``{"num_gpus": 1}``; for one of Dask, what ``Client.submit`` takes, such as
            ``{"resources": {"GPU": 1}}``.
        source: A text that names what is written; see Writer. None: made from the names of ``fn``
            and of inputs that are text, numbers or paths, so that a change of the inputs is an
            error instead of a mixture.
        options: Other arguments of Writer, except rank and world_size.

    Returns ``Writer.result``. An exception of ``fn`` ends the call, with a note that gives the
    number of the input.
    """
    if not callable(fn):
        raise ConfigError(f"fn={fn!r}: give a function of one input")
    given = _config.typed(optimize, {"workers": workers, "engine": engine, "parts": parts, "part": part, "task_options": task_options})
    workers, parts, part = given["workers"], given["parts"], given["part"]
    if workers is not None and workers < 0:
        raise ConfigError(f"workers={workers!r}: give a number of processes, or 0 for this one")
    if not {"rank", "world_size"}.isdisjoint(options):
        raise ConfigError("rank and world_size: give parts, or use Writer with a rank in each process")
    if parts is None and part is not None:
        raise ConfigError(f"part={part}: give parts too, the same number for all of them")
    if engine is not None:
        from . import _engines

        _engines.check(engine, parts, part, workers)
    if engine is None and task_options is not None:
        raise ConfigError("task_options: give engine too")
    if parts is not None and not isinstance(inputs, Sequence):
        inputs = list(inputs)
    if source is None:
        source = _source(fn, inputs)
    Slots(fields, attrs)  # checks them before a child starts
    job = Job(fn, url, {"fields": dict(fields or {}), "attrs": dict(attrs or {}), "on_exists": on_exists, "source": source, **options})
    if workers is None:
        workers = _parts.cores()
    if parts is None:
        return job.write(inputs, workers)
    assert isinstance(inputs, Sequence)
    if engine is not None:
        return _engines.write(engine, job, inputs, parts, dict(task_options or {}))
    slices = [(p, *_parts.share(inputs, p, parts)) for p in _parts.mine(parts, part)]
    return _parts.joined([job.write(inputs[lo:hi], workers, lo, p, parts) for p, lo, hi in slices])


class Job(NamedTuple):
    """What an optimize writes, without its inputs."""

    fn: Callable[[Any], Any]
    url: Union[str, os.PathLike[str]]
    options: Dict[str, Any]  # of Writer

    def write(
        self, inputs: Iterable[Any], workers: int, first: int = 0, rank: Optional[int] = None, parts: Optional[int] = None
    ) -> Dict[str, Any]:
        """Writes the data set or the part ``rank``; ``first`` is the number of its first input."""
        with Writer(self.url, **self.options, rank=rank, world_size=parts) as w:
            if not w._done:
                _write_all(w, self.fn, inputs, workers, (self.options["fields"], self.options["attrs"]), first)
        assert w.result is not None
        return w.result


def _source(fn: Any, inputs: Any) -> str:
    name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
    if not isinstance(inputs, Sequence):
        return name
    digest = hashlib.sha256()
    for item in inputs:
        plain = isinstance(item, (str, int, float, bytes, os.PathLike))
        digest.update(repr(os.fspath(item) if isinstance(item, os.PathLike) else item).encode() if plain else b"?")
        digest.update(b"\n")
    return f"{name} of {len(inputs)} {digest.hexdigest()[:16]}"


def _write_all(w: Writer, fn: Any, inputs: Iterable[Any], workers: int, schema: Any, base: int) -> None:
    first, skip = w._place
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
            if some.error is not None:
                _note(some.error, base + first - 1)
                raise some.error


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
        w._send(_child.COLUMNS, [skip.to_bytes(4, "little"), frame[4:]])
        w._rows.samples += rows - skip
        skip = 0


def _note(error: BaseException, number: int) -> None:
    text = f"shardtool.optimize: input number {number}"
    if hasattr(error, "add_note"):
        error.add_note(text)
    elif isinstance(error, ShardtoolError):
        error.message += f" ({text})"


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
    from ._arrow import batches

    rows.begin()
    count, types, frames = 0, {}, []
    with batches(rows.slots, table, None, lambda i: rows.numbered(rows.samples + i)) as made:
        for columns, n in made:
            for body, part in _columns.frames(columns, n):
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
    _job[:] = [_Encoder(fn, schema)]
    torch = sys.modules.get("torch")
    if torch is not None:  # a process forked after parallel work of OpenMP would wait for its threads
        torch.set_num_threads(1)
    # The pool's processes hold both ends of its queues: without this they outlive a parent that was
    # killed.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() == 1 != parent:  # it was killed before that
        os._exit(1)


def _work(items: List[Any]) -> "Tuple[_Made, float]":
    """The samples of the first inputs, as many as a process should make at a time, and the seconds
    that they took."""
    since = time.perf_counter()
    made = _job[0].encode(items, 10 * _SECONDS, 16 * _BYTES)
    if made.error is not None:
        made = made._replace(error=_portable(made.error))
    return made, time.perf_counter() - since


def _portable(error: BaseException) -> BaseException:
    """An exception that another process can be sent."""
    import pickle

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ShardtoolError(f"fn failed:\n{text}")
    if hasattr(error, "add_note"):
        error.add_note(f"in a process of shardtool.optimize:\n{text}")
    return error


def _context(fn: Any) -> Any:
    """How processes start. They are forked where the program left the choice to Python, whose
    default is another since 3.14: functions of notebooks, and scripts without a guard of
    __main__, work with every version."""
    import multiprocessing
    import pickle

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
    from concurrent.futures import ProcessPoolExecutor  # takes milliseconds
    from concurrent.futures.process import BrokenProcessPool

    context = _context(fn)
    waiting: deque[Any] = deque()
    size, number = 1, first
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(fn, schema, os.getpid()))
    try:
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
                raise ShardtoolError(
                    f"a process of shardtool.optimize was killed at input number {number} or a later one;"
                    " if memory ran out, give fewer workers. Repeat the call to continue"
                ) from err
            number += len(made.counts)
            stored = sum(len(p.data) if isinstance(p, Run) else sum(map(len, p.frames)) for p in made.parts)
            share = max(seconds / _SECONDS, stored / _BYTES, 1 / 16)
            size = max(1, min(int(len(made.counts) / share), 4 * size, 10_000))
            yield made
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
