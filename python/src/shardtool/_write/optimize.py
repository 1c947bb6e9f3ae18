"""Writing a data set by a function of inputs, in many processes."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable, Iterable, Literal, Mapping, Optional, Sequence, Union

from .. import _checks, guesses
from ..errors import ConfigError
from ..writer import Writer
from . import engines
from .encode import Slots
from .jobs import EMPTY, Job
from .parts import cores, joined, mine, share


@guesses.answering(guesses.OPTIMIZING, Writer.__init__, written="optimize(FUNCTION, inputs, 'out/')")
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
    progress: bool = True,
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
    task in a Slurm array or a Kubernetes Indexed Job, every n-th part if torchrun or srun started n
    tasks, and otherwise all of them. Parts that are complete are left alone. The bytes depend on
    the samples and the number of parts, and never on the engine.

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
        progress: Print inputs, rate and the time left, to stderr: every half second on a terminal,
            and every minute elsewhere. Tasks of an engine print nothing.
        options: Other arguments of Writer, except rank and world_size.

    Returns ``Writer.result``. An exception of ``fn`` ends the call, with a note that gives the
    number of the input.
    """
    if not callable(fn):
        raise ConfigError(f"fn={fn!r}: give a function of one input")
    given = _checks.typed(optimize, {"workers": workers, "engine": engine, "parts": parts, "part": part, "task_options": task_options})
    workers, parts, part = given["workers"], given["parts"], given["part"]
    if isinstance(inputs, (str, bytes)) or not (hasattr(inputs, "__iter__") or hasattr(inputs, "__getitem__")):
        raise ConfigError(f"inputs={_checks.cut(repr(inputs))}: give several, such as a list of paths or range(20); fn gets one at a time")
    if workers is not None and workers < 0:
        raise ConfigError(f"workers={workers!r}: give a number of processes, or 0 for this one")
    if not {"rank", "world_size"}.isdisjoint(options):
        raise ConfigError("rank and world_size: give parts, or use Writer with a rank in each process")
    if parts is None and part is not None:
        raise ConfigError(f"part={part}: give parts too, the same number for all of them")
    if engine is not None:
        engines.check(engine, parts, part, workers)
    if engine is None and task_options is not None:
        raise ConfigError("task_options: give engine too")
    if parts is not None and not isinstance(inputs, Sequence):
        inputs = list(inputs)
    if isinstance(inputs, Sequence) and not inputs:
        raise ConfigError(EMPTY)
    if source is None:
        source = _source(fn, inputs)
    Slots(fields, attrs)  # checks them before a child starts
    job = Job(
        fn, url, {"fields": dict(fields or {}), "attrs": dict(attrs or {}), "on_exists": on_exists, "source": source, **options}, progress
    )
    if workers is None:
        workers = cores()
    if parts is None:
        return job.write(inputs, workers)
    assert isinstance(inputs, Sequence)
    if engine is not None:
        return engines.write(engine, job._replace(progress=False), inputs, parts, dict(task_options or {}))
    slices = [(p, *share(inputs, p, parts)) for p in mine(parts, part)]
    return joined([job.write(inputs[lo:hi], workers, lo, p, parts) for p, lo, hi in slices])


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
