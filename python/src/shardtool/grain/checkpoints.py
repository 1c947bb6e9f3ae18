"""Checkpoints of Grain, read on any number of processes."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Dict, Iterator, List, Union

from ..errors import CheckpointError
from ..read.states import merge_states

#: The member of a state that says of which worker it is: its number, the numbers of workers and
#: ranks.
PART = "part"

#: The files that Grain writes.
_NAME = re.compile(r"process_(\d+)-of-(\d+)\.json")


def restore(directory: Union[str, os.PathLike[str]], iterator: Any) -> None:
    """Sets a Grain iterator to the place of a checkpoint, on any number of processes.

    Grain's handlers save a file for each process, and read them on as many processes only. This
    reads them on others: the place of ``shardtool.grain.IterDataset`` is the same on all. The
    pipeline must be the one that was saved, with as many workers of ``mp_prefetch``; with n of
    them, the checkpoint must have been saved after a multiple of n elements.

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
    places = list(_places(state))
    if len({place["checkpoint"] for place in places}) == 1:
        for place in places:
            place.pop(PART, None)  # all workers are at one place, so others may continue there
    iterator.set_state(state)


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
