"""Checkpoints of Grain, read on any number of processes."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Dict, Iterator, List, Union

from .._read.states import merge_states
from ..errors import CheckpointError
from .shared import PART, Part, origin_of, part_of

#: The files that Grain writes.
_NAME = re.compile(r"process_(\d+)-of-(\d+)\.json")


def restore(directory: Union[str, os.PathLike[str]], iterator: Any) -> None:
    """Sets a Grain iterator to the place of a checkpoint, on any number of processes.

    Grain's handlers save a file for each process, and read them on as many processes only. This
    reads them on others: the place of ``shardtool.grain.IterDataset`` is the same on all. The
    pipeline must be the one that was saved, with as many workers of ``mp_prefetch``.

    Args:
        directory: Where the files ``process_0-of-2.json`` and so on are. It may be in a store that
            Grain writes to.
        iterator: An iterator of the pipeline.

    Raises:
        CheckpointError: Files are missing, or they are of different places.
    """
    try:
        from etils import epath  # of Grain
    except ModuleNotFoundError as err:
        raise ImportError("shardtool.grain.restore needs Grain, which is not installed: pip install grain") from err
    files = {m: path for path in epath.Path(directory).glob("process_*-of-*.json") if (m := _NAME.fullmatch(path.name))}
    counts = {int(m[2]) for m in files}
    if len(counts) != 1 or len(files) != min(counts):
        found = ", ".join(sorted(path.name for path in files.values())) or "none"
        raise CheckpointError(f"{os.fspath(directory)}: not a checkpoint of a Grain iterator, with a file for each process: found {found}")
    saved = [json.loads(files[m].read_text()) for m in sorted(files, key=lambda m: int(m[1]))]
    jax = sys.modules.get("jax")
    if jax is not None and len(saved) == jax.process_count() > 1:
        iterator.set_state(saved[jax.process_index()])  # as Grain does
        return
    state = _one(saved)
    _join(list(_places(state)))
    iterator.set_state(state)


def _join(places: List[Dict[str, Any]]) -> None:
    """Sets the workers that read one data set to the place that is after the batches of all, so
    that they can continue with batches of another size."""
    done = 0
    for i, place in enumerate(places):
        part = part_of(place)
        if part is None or i < done:
            continue
        workers = places[i - part.worker : i - part.worker + part.workers]
        done = i - part.worker + part.workers
        # The state of a worker that has delivered nothing is the one that all began with.
        parts = [part_of(p) or Part(k, part.workers, part.origin, 0, k) for k, p in enumerate(workers)]
        latest = max(parts, key=lambda part: part.number)
        if min(part.next for part in parts) < latest.number:
            continue  # some are ahead of others by more than a batch
        joined = dict(workers[parts.index(latest)])
        for to, part in zip(workers, parts):
            to.update({**joined, PART: part._replace(origin=origin_of(joined), number=0, next=part.next - latest.number)._asdict()})
    old = [place for place in places if isinstance(place.get(PART), list)]
    if len({place["checkpoint"] for place in old}) == 1:  # of the version whose workers had a part in the order
        for place in old:
            place.pop(PART)


def _is_place(state: Any) -> bool:
    return isinstance(state, dict) and {"version", "checkpoint", "ledger", "begin"} <= state.keys()


def _places(state: Any) -> Iterator[Dict[str, Any]]:
    """Returns the states of shardtool in the state of a pipeline."""
    if _is_place(state):
        yield state
    elif isinstance(state, (dict, list)):
        for inner in state.values() if isinstance(state, dict) else state:
            yield from _places(inner)


def _one(states: List[Any]) -> Any:
    """Returns the state that the processes of a job have in common."""
    first = states[0]
    if all(_is_place(state) for state in states):
        return {**first, **merge_states(states)}
    if isinstance(first, dict) and all(isinstance(state, dict) and state.keys() == first.keys() for state in states):
        return {name: _one([state[name] for state in states]) for name in first}
    if isinstance(first, list) and all(isinstance(state, list) and len(state) == len(first) for state in states):
        return [_one(list(inner)) for inner in zip(*states)]
    if any(state != first for state in states):
        raise CheckpointError(
            f"the processes were at different places of their pipelines, {first!r} and {next(s for s in states if s != first)!r}:"
            " save all after the same step, and use the same pipeline on all"
        )
    return first
