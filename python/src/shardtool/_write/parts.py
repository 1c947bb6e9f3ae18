"""Which parts of a data set a process writes, and which inputs a part has."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._system import processors
from ..errors import ConfigError

#: The most parts of a data set, as package writer has it.
_MOST = 1_000_000

#: Environment variables in which schedulers give a task its number. The command has the same list.
_TASKS = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")

#: Environment variables with the number of a task and of all tasks of torchrun, and of a step of
#: Slurm, which torchrun's processes may be in.
_STEPS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))


def checked(parts: int, part: Optional[int]) -> None:
    """Raises ConfigError for numbers that cannot be."""
    if not 1 <= parts <= _MOST:
        raise ConfigError(f"parts={parts}: give a number from 1 to {_MOST}")
    if part is not None and not 0 <= part < parts:
        raise ConfigError(f"part={part}, parts={parts}: parts count from 0 to one less than their number")


def share(inputs: Sequence[Any], part: int, parts: int) -> Tuple[int, int]:
    """The first inputs of a part and of the next one. Parts are contiguous, and their sizes
    differ by at most one."""
    n = len(inputs)
    return part * n // parts, (part + 1) * n // parts


def mine(parts: int, part: Optional[int], env: Mapping[str, str] = os.environ) -> Sequence[int]:
    """The parts that this process writes: ``part``, or the one of its task in a Slurm array or an
    Indexed Job of Kubernetes, or every n-th one where torchrun or
    srun started n tasks, or all."""
    checked(parts, part)
    if part is not None:
        return [part]
    found = {name: number for name in _TASKS if (number := _number(env, name)) is not None}
    task, tasks = _step(env)
    if len(set(found.values())) > 1:
        text = " and ".join(f"{name} is {number}" for name, number in found.items())
        raise ConfigError(f"{text}: give part, the number of this process's part")
    if not found:
        if tasks > parts:
            raise ConfigError(f"parts={parts}: {tasks} tasks were started; give as many parts, or more")
        return range(task, parts, tasks)
    name, number = next(iter(found.items()))
    if tasks > 1:
        raise ConfigError(
            f"{name} is {number} for each of the {tasks} tasks that were started: start one, or give part, the number of this process's"
            " part"
        )
    if not 0 <= number < parts:
        raise ConfigError(f"{name} is {number}: parts count from 0, so that parts={parts} takes the numbers 0-{parts - 1}")
    return [number]


def _step(env: Mapping[str, str]) -> Tuple[int, int]:
    """The number of this task and the number of tasks that torchrun or srun started. The script of
    a batch job is not in such a step, although SLURM_PROCID and SLURM_NTASKS are set in it."""
    for number, count in _STEPS:
        task, tasks = _number(env, number), _number(env, count)
        if task is None or tasks is None:
            continue
        if not 0 <= task < tasks:
            raise ConfigError(f"{number} is {task} and {count} is {tasks}: give part, the number of this process's part")
        return task, tasks
    return 0, 1


def tasks(parts: Optional[int], part: Optional[int], env: Mapping[str, str] = os.environ) -> List[Tuple[int, int]]:
    """The parts that this process writes, and their number, where the number does not change the
    bytes: without one, there are as many as torchrun or srun started tasks."""
    if parts is not None:
        return [(p, parts) for p in mine(parts, part, env)]
    if part is not None:
        raise ConfigError(f"part={part}: give parts too, the same number for all of them")
    step = _step(env)
    found = [name for name in _TASKS if env.get(name)]
    if step[1] == 1 and found:
        raise ConfigError(f"{found[0]} is set: give parts, the number of tasks; or parts=1, where this task does all of the work")
    return [step]


def _number(env: Mapping[str, str], name: str) -> Optional[int]:
    text = env.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, no number: give part, the number of this process's part") from None


def joined(results: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The result of several parts: what the last of them published, if one did, with the samples
    that all of them wrote and found, and what failed."""
    last = next((r for r in reversed(results) if r["published"]), results[-1])
    if "failed" in last:
        last = {**last, "failed": [f for r in results for f in r["failed"]]}
    return {**last, "written": sum(r["written"] for r in results), "resumed": sum(r["resumed"] for r in results)}


def cores() -> int:
    """The cores that this process may use, with the limit of its container."""
    n = processors()
    try:
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()
        return n if quota == "max" else max(1, min(n, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # another version of cgroups
        return n
