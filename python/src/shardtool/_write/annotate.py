"""Computing the fields of a layer by a function of batches."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Dict, Iterable, Literal, Mapping, Optional, Sequence, Union

from .. import _checks, guesses
from .._wire.process import logger
from ..batch import Batch
from ..errors import ConfigError, ExistsError, redact
from ..fields import Spec
from ..loader import Loader
from ..options import Tuning
from . import engines
from .encode import Slots
from .parts import share, tasks
from .progress import Progress
from .shards import Annotation, Shards, run


@guesses.answering(guesses.ANNOTATING, written="annotate('out/', 'captions', FUNCTION, batch_size=32)")
def annotate(
    data: Union[str, os.PathLike[str]],
    name: Union[str, os.PathLike[str]],
    function: Callable[[Batch], Optional[Mapping[str, Any]]],
    *,
    batch_size: int,
    fields: Union[Iterable[str], Mapping[str, Spec], None] = None,
    version: str = "",
    layers: Optional[Sequence[Union[str, os.PathLike[str]]]] = None,
    where: Optional[str] = None,
    types: Optional[Mapping[str, str]] = None,
    attrs: Optional[Mapping[str, str]] = None,
    replaces: Sequence[str] = (),
    on_exists: Literal["fail", "append", "overwrite", "resume"] = "resume",
    on_error: Literal["fail", "skip"] = "fail",
    workers: int = 0,
    engine: Optional[Literal["ray", "dask", "spark"]] = None,
    parts: Optional[int] = None,
    part: Optional[int] = None,
    task_options: Optional[Mapping[str, Any]] = None,
    level: Literal["fastest", "default", "better", "best"] = "default",
    memory: _checks.Size = "256MiB",
    progress: bool = True,
    tuning: Tuning = Tuning(),
) -> Dict[str, Any]:
    """Computes a layer: fields that a function makes of the samples of a data set.

    ::

        def caption(batch):
            return {"caption": model(batch["jpg"])}  # a value for each sample, in the batch's order

        images = {"jpg": shardtool.Image(336)}
        shardtool.annotate("photos/", "captions", caption, batch_size=64, fields=images)
        loader = shardtool.Loader("photos/", 256, layers=["captions"], fields=["jpg", "caption"])

    The data set is not written. The layer is in ``layers/captions`` below it, or at an address such
    as ``s3://mine/captions``.

    **The function** gets a ``Batch`` and returns a dict with a column for each new field: an array
    or a tensor of n rows, or a sequence of n values, as ``Writer.write_batch`` takes them. None for
    a sample means that it has nothing in this field; None in place of the dict, that no sample of
    the batch has any. A class is made once in each process, and its object called.

    **Order and kills.** The samples are read in storage order, ahead of the function. The unit of
    work is a shard of the data set: batches begin anew at each, and its rows are put when all are
    there. After a kill, repeat the call: it continues with the shards that are not there yet, so
    that each process loses the work of one shard at most. The call that completes the last shard
    publishes the layer; until then no reader sees it. If the layer is complete, the call does
    nothing. A call with another function, ``version``, ``batch_size`` or other fields than the
    shards that are there is refused. A function that returns the same for a batch makes the same
    bytes with any number of processes and machines.

    The data set may get samples, or lose some, meanwhile. Removed ones have nothing; for those that
    were appended, call it again with ``on_exists="append"`` afterwards.

    **Many processes and machines.** ``workers`` processes of this machine share the shards. Under
    torchrun, or where srun started several tasks, each process takes its share, and with ``parts``
    each task of a Slurm array or of a Kubernetes Indexed Job does. ``engine`` runs ``parts`` tasks
    on the cluster of Ray, Dask or Spark.

    Args:
        data: The data set. ``#name`` at its end selects a view, without weights: samples outside it
            have nothing.
        name: The name of the layer, or its address.
        function: A function of a Batch, or a class whose objects are.
        batch_size: Samples of a batch. The last one of a shard has fewer.
        fields, layers, where: What is read, as for Loader.
        version: A text that names the function's version, such as the one of its model: the names
            of functions are compared, and their code is not.
        types: Encodings of the new fields, as ``fields`` of Writer. Fields that are not named are
            stored as their first values are.
        attrs: Values that the index keeps, for filters and weights, from attribute to field, such
            as ``{"score": "score"}``.
        replaces: Names of fields and attributes of the data set, or of other layers, in whose place
            this layer's are delivered.
        on_exists: "resume": continue, or do nothing if the layer is complete. "fail": raise
            ExistsError if there is a complete one. "append": add the shards that the data set has
            got since. "overwrite": publish a new generation of it. The last two continue, too,
            after a kill.
        on_error: "skip": samples of a batch for which the function raises have nothing; they are
            logged, and ``failed`` of the result lists the batches.
        workers: Number of processes that call the function. 0: this one, as a model on a GPU needs
            it. Reading, decoding and writing have threads and processes of their own.
        engine, parts, part, task_options: As for optimize. The bytes do not depend on them.
        level: Of compression, as for Writer.
        memory: Bytes of rows that are held while a shard is computed; more are kept on disk.
        progress: Print samples, rate and the time left, to stderr.
        tuning: How data is read, as for Loader.

    Returns a dict: ``published``, ``written`` and ``resumed`` samples of this call and of earlier
    ones, ``failed`` batches, and once it is published what ``Writer.result`` has.

    A column of another length than the batch's, or of another type than before, raises EncodeError
    with the key of the batch's first sample. An exception of the function has a note with it.
    """
    if not callable(function):
        raise ConfigError(f"function={function!r}: give a function of a batch, or a class")
    given = _checks.typed(annotate, {
        "data": data, "name": name, "batch_size": batch_size, "version": version, "where": where, "on_exists": on_exists,
        "on_error": on_error, "workers": workers, "engine": engine, "parts": parts, "part": part, "task_options": task_options,
        "level": level, "memory": memory, "progress": progress,
    })  # fmt: skip
    _checks.at_least("workers", given["workers"], 0)
    if engine is not None:
        engines.check(engine, given["parts"], given["part"], given["workers"])
    elif task_options is not None:
        raise ConfigError("task_options: give engine too")
    if tuning.out == "arrow":
        raise ConfigError("Tuning(out='arrow'): a function gets a Batch; its to_arrow() is a record batch")
    Slots(types, attrs)  # checks them before a child starts
    loader = Loader(
        data, given["batch_size"], fields=fields, layers=layers, where=where, shuffle=False, epochs=1, rank=0, world_size=1, tuning=tuning
    )
    with loader:
        begin = {
            "mode": on_exists if on_exists in ("append", "overwrite") else "create", "level": level,
            "memory": _checks.size_of("memory", given["memory"]), "resume": True,
            "schema": json.dumps([sorted((str(k), v) for k, v in (types or {}).items()), sorted((attrs or {}).items())]),
            "layer": {"name": layer_address(name), "replaces": list(replaces), "parts": True, "options": _facts(loader, function, version)},
        }  # fmt: skip
        job = Annotation(_base(data), function, loader, begin, (dict(types or {}), dict(attrs or {})), on_error)
        with contextlib.closing(Shards(job)) as there:
            if there.done and on_exists == "fail":
                raise ExistsError(f"{redact(os.fsdecode(name))}: the layer is complete: on_exists='overwrite' replaces it")
            if there.done and on_exists == "resume":
                logger.warning("annotate %s: the layer is complete already, so the function is not called: on_exists='overwrite' computes"
                               " it anew", redact(os.fsdecode(name)))  # fmt: skip
            every = range(there.first, there.last)
            if engine is not None and not there.done:
                return engines.write(engine, job, every, given["parts"], dict(task_options or {}))
            mine = [s for p, n in tasks(given["parts"], given["part"]) for s in every[slice(*share(every, p, n))]]
            return run(job, there, mine, given["workers"], Progress(f"annotate {redact(os.fsdecode(name))}", "samples", progress))


def layer_address(name: Union[str, os.PathLike[str]]) -> str:
    """The name of a layer, or its address for a process in another working directory."""
    text = os.fsdecode(name)
    return _checks.address(text) if text.startswith((".", "/")) or not isinstance(name, str) else text


def _facts(loader: Loader[Any], function: Any, version: str) -> Dict[str, str]:
    """What the shards of a layer depend on, as they record it."""
    asked, info = loader._asked, loader.info
    made = function if hasattr(function, "__qualname__") else type(function)
    read = [[f.name, repr(f.image) if f.image else "function" if f.function else repr(f.spec)] for f in asked.fields or ()]
    facts = {
        "function": f"{made.__module__}.{made.__qualname__}", "version": version, "batch_size": str(asked.starting["batch_size"]),
        "fields": json.dumps(read) if asked.fields is not None else "all", "where": asked.opening.get("where", ""),
        "view": info.get("view", ""), "layers": json.dumps(info.get("layers") or {}, sort_keys=True),
    }  # fmt: skip
    return {name: text for name, text in facts.items() if text}


def _base(data: Union[str, os.PathLike[str]]) -> str:
    """The address of a data set without its view. The name of a folder may contain a #."""
    text = os.fsdecode(data)
    return _checks.address(text if os.path.exists(text) else text.rpartition("#")[0] or text)
