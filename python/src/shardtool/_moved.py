"""Keyword arguments of version 0.1 that are members of an option group now."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any, Callable, Dict, TypeVar, cast

from .errors import ConfigError
from .options import GROUPS

F = TypeVar("F", bound=Callable[..., Any])

_GROUP_OF = {field.name: argument for argument, group in GROUPS.items() for field in dataclasses.fields(group)}


def accepts_moved(call: F) -> F:
    """Makes a function with the arguments ``order``, ``tuning`` or ``faults`` accept the keyword
    arguments that became their members, with a DeprecationWarning."""

    @functools.wraps(call)
    def wrapper(*args: Any, **given: Any) -> Any:
        return call(*args, **grouped(given))

    return cast(F, wrapper)


def grouped(given: Dict[str, Any], stacklevel: int = 3) -> Dict[str, Any]:
    """Returns keyword arguments with those that moved in their groups. Warns the caller if there
    are any."""
    kept = {name: value for name, value in given.items() if name not in _GROUP_OF}
    advice = []
    for argument, group in GROUPS.items():
        moved = {name: value for name, value in given.items() if _GROUP_OF.get(name) == argument}
        if not moved:
            continue
        base = given.get(argument, group())
        for name in moved:
            if getattr(base, name) != getattr(group(), name):
                raise ConfigError(f"{name} is given twice: leave out the keyword argument, which {argument} has")
        kept[argument] = dataclasses.replace(base, **moved)
        advice.append(f"{argument}=shardtool.{group.__name__}({', '.join(f'{name}=...' for name in moved)})")
    if advice:
        names = ", ".join(name for name in given if name in _GROUP_OF)
        warnings.warn(f"the keyword arguments {names} are deprecated: write {', '.join(advice)}", DeprecationWarning, stacklevel)
    return kept
