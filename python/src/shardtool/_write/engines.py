"""optimize and annotate on Ray, Dask and Spark: a task for each part.

A task whose worker was killed is repeated by the engine, on another worker, and continues after the
complete shards that it finds. An exception of the function is a result here, so that no engine
repeats it, or wraps it in its own.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _checks
from ..errors import ConfigError, ShardtoolError
from .jobs import Job, portable
from .parts import checked, joined, share
from .shards import Annotation

#: What has parts.
Parted = Union[Job, Annotation]


class _Task(NamedTuple):
    """A part and its inputs."""

    part: int
    parts: int
    first: int  # number of the first input
    inputs: Sequence[Any]


#: The result of a part, or an exception.
_Done = Tuple[Optional[Dict[str, Any]], Optional[BaseException]]


def check(engine: str, parts: Optional[int], part: Optional[int], workers: Optional[int]) -> None:
    """Raises ConfigError for arguments that do not fit an engine."""
    if parts is None:
        raise ConfigError(f"engine={engine!r}: give parts, the number of tasks; the bytes of the data set depend on it")
    if part is not None:
        raise ConfigError(f"part={part}: an engine writes all parts; leave it out")
    if workers:
        raise ConfigError(f"workers={workers}: the tasks of an engine have one process each; give more parts")
    checked(parts, None)


def write(engine: str, job: "Parted", inputs: Sequence[Any], parts: int, options: Dict[str, Any]) -> Dict[str, Any]:
    """Writes all parts on an engine, and returns what was published."""
    if isinstance(job, Job):
        job = job._replace(url=_checks.address(job.url))  # workers may have another working directory
    tasks = [_Task(p, parts, lo, inputs[lo:hi]) for p in range(parts) for lo, hi in [share(inputs, p, parts)]]
    done = []
    with contextlib.closing(_ENGINES[engine](job, tasks, options)) as results:
        for result, error in results:
            if error is not None:
                raise error
            assert result is not None
            done.append(result)
    # Each part that was complete looked for the others, and the last one found all.
    return joined(done)


def _run(job: Any, task: _Task) -> _Done:
    """Writes a part; on a worker of the engine."""
    try:
        return job.write(task.inputs, 0, task.first, task.part, task.parts), None
    except Exception as err:
        return None, portable(err, job.title)


def _need(engine: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as err:
        raise ConfigError(f"engine={engine!r}: {err}: pip install 'shardtool[{engine}]'") from err


def _lost(engine: str, why: object) -> ShardtoolError:
    """The error for a part that the engine gave up."""
    return ShardtoolError(
        f"{engine} could not complete a part, after its own retries: {why}. If a worker was killed because memory ran out, run fewer tasks"
        " on a machine. Repeat the call to continue"
    )


def _ray(job: Any, tasks: List[_Task], options: Dict[str, Any]) -> Generator[_Done, None, None]:
    ray = _need("ray", "ray")
    if not ray.is_initialized():
        ray.init()  # the cluster that RAY_ADDRESS names, or a new one on this machine
    try:
        run = ray.remote(_run).options(name=job.title, **options)
    except (TypeError, ValueError) as err:
        raise ConfigError(f"task_options: {err}") from err
    shared = ray.put(job)
    waiting = [run.remote(shared, task) for task in tasks]
    try:
        while waiting:
            (ready, *_), waiting = ray.wait(waiting)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as err:
                yield None, _lost("Ray", err)
    finally:
        for ref in waiting:
            ray.cancel(ref)


def _dask(job: Any, tasks: List[_Task], options: Dict[str, Any]) -> Generator[_Done, None, None]:
    distributed = _need("dask", "distributed")
    try:
        client = distributed.default_client()
    except ValueError as err:
        raise ConfigError("engine='dask': no client: make a distributed.Client of the cluster first") from err
    known = inspect.signature(client.submit).parameters
    for name in options:
        if name not in known:  # the client would pass it to the function
            raise ConfigError(f"task_options: Client.submit of Dask has no argument {name!r}")
    futures = [client.submit(_run, job, task, **{"pure": False, **options}) for task in tasks]
    try:
        for future in distributed.as_completed(futures):
            try:
                yield future.result()
            except (distributed.KilledWorker, distributed.CancelledError) as err:
                yield None, _lost("Dask", err)
    finally:
        client.cancel([f for f in futures if not f.done()])


def _spark(job: Any, tasks: List[_Task], options: Dict[str, Any]) -> Generator[_Done, None, None]:
    sql = _need("spark", "pyspark.sql")
    if options:
        raise ConfigError("task_options: Spark takes the resources of tasks from its configuration, spark.task.*")
    spark = sql.SparkSession.builder.appName(job.title).getOrCreate()
    if not hasattr(spark, "_jsc"):
        raise ConfigError("engine='spark': a session of Spark Connect runs no tasks of Python functions: use a classic session")
    # A part is published by its own task, so that a failure costs no part that was complete.
    try:
        done = spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda task: _run(job, task)).collect()
    except Exception as err:
        if type(err).__module__.split(".")[0] not in ("py4j", "pyspark"):
            raise
        yield None, _lost("Spark", str(err).partition("\n")[0])
        return
    yield from done


_ENGINES: Dict[str, Callable[[Any, List[_Task], Dict[str, Any]], Generator[_Done, None, None]]] = {
    "ray": _ray,
    "dask": _dask,
    "spark": _spark,
}
