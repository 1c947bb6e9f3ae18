"""Checks of what a user asks for, as far as they need no data set."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import numbers
import operator
import os
import re
import sys
import typing
from collections.abc import Mapping
from typing import Any, Dict, Literal, Optional, Sequence, Tuple, Union

from .errors import ConfigError, redact

#: Bytes, or text such as "64MiB" or "1GB".
Size = Union[int, str]

#: What arrays are delivered as.
Output = Literal["torch", "numpy", "bytes", "arrow"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def installed(module: str) -> bool:
    """Whether the module can be imported, without importing it."""
    return module in sys.modules or importlib.util.find_spec(module) is not None


# Types

#: Values of arguments that are often given in the form of another loader.
_EXAMPLES = {
    "cache": "cache='/nvme/cache'",
    "cost": "cost='tokens', an attribute of the index",
    "epochs": "epochs=3; each loop is one epoch, and epochs=0 lets batches run over their ends",
    "faults": "faults=Faults(on_error='skip')",
    "keys": "keys='keys.txt', a file with one key in each line",
    "order": "order=Order(shuffle_memory='2GiB')",
    "shuffle": "shuffle=True; order=Order(shuffle_memory='2GiB') gives the memory to shuffle in",
    "tuning": "tuning=Tuning(workers=8)",
    "units": "units=Pack(8192, fields=['input_ids'])",
    "where": "where='score >= 3', an expression over attributes",
}


class _Misfit(Exception):
    """A value is not of the type."""


_hints = functools.lru_cache(maxsize=None)(typing.get_type_hints)


def typed(owner: Any, given: Dict[str, Any]) -> Dict[str, Any]:
    """Returns values as the annotations of a class or function declare them: an integer of numpy
    becomes an int, for example. Raises ConfigError for a value of another type."""
    hints, out = _hints(owner), dict(given)
    for name, value in given.items():
        try:
            out[name] = _fit(value, hints[name])
        except _Misfit:
            like = f", as in {_EXAMPLES[name]}" if name in _EXAMPLES else ""
            write = _as_group(value, hints[name]) or f"give {_describe(hints[name])}{like}"
            raise ConfigError(f"{name}={cut(repr(value))}: {write}") from None
    return out


def cut(text: str) -> str:
    """Text for an error, such as a list with a million keys."""
    return text if len(text) <= 200 else text[:200] + "…"


def set_typed(group: Any, sizes: Sequence[str] = ()) -> None:
    """Checks the members of a frozen dataclass. Members that are sizes become bytes."""
    for name, value in typed(type(group), vars(group)).items():
        object.__setattr__(group, name, size_of(name, value) if name in sizes else value)


def at_least(name: str, value: Optional[float], least: int) -> None:
    """Raises ConfigError for a number below its minimum."""
    if value is not None and not value >= least:  # NaN included
        raise ConfigError(f"{name}={value!r}: the least is {least}")


def within(name: str, value: Optional[int], least: int, most: int) -> None:
    """Raises ConfigError for a number out of its range."""
    if value is not None and not least <= value <= most:
        raise ConfigError(f"{name}={value!r}: give {least} to {most}")


def _fit(value: Any, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is Union:
        for member in typing.get_args(hint):
            try:
                return _fit(value, member)
            except _Misfit:
                pass
        raise _Misfit
    if hint is int and not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            raise _Misfit from None
    if hint is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if origin is tuple:
        return _fit_tuple(value, typing.get_args(hint))
    if origin is Literal:
        fits = isinstance(value, str) and value in typing.get_args(hint)
    elif hint is Any:
        fits = True
    else:
        fits = isinstance(value, origin or hint) and hint not in (int, float)
    if not fits:
        raise _Misfit
    return value


def _fit_tuple(value: Any, hints: Tuple[Any, ...]) -> Tuple[Any, ...]:
    if not isinstance(value, (tuple, list)) or len(value) != len(hints):
        raise _Misfit
    return tuple(map(_fit, value, hints))


_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", type(None): "None"}


def _describe(hint: Any) -> str:
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is Union:
        return " or ".join(map(_describe, members))
    if origin is Literal:
        return " or ".join(map(repr, members))
    if origin is os.PathLike:
        return "a path"
    if origin is Mapping:
        return "a mix as a dict"
    if origin is tuple:
        return "a pair of whole numbers"
    return _WORDS.get(hint) or (f"a shardtool.{hint.__name__}" if isinstance(hint, type) else "a function")


def _as_group(value: Any, hint: Any) -> str:
    """What to write in place of a dict of options."""
    if not (dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping)):
        return ""
    return f"write {hint.__name__}({', '.join(f'{name}={option!r}' for name, option in value.items())})"


# Values


def address(url: Union[str, os.PathLike[str]]) -> str:
    """The address of a data set for the child process, which may start in another working
    directory."""
    text = at_home(os.fsdecode(url))
    if found := re.match(r"(s3|gs|az|azure|abfss?|hf|https?):/?(?!/)", text):
        write = redact(f"{found[1]}://{text[found.end() :]}")
        raise ConfigError(f"{redact(text)}: an address has two slashes: write {write}, or ./ before the name of a folder")
    return text if "://" in text or text[:6].lower() == "file:/" or not text else os.path.abspath(text)


def at_home(text: str) -> str:
    """A path, where ~/NAME is in the home folder of the user, unless a folder is called ~."""
    if (text != "~" and not text.startswith("~" + os.sep)) or os.path.lexists("~"):
        return text
    return os.path.expanduser(text)


def size_of(name: str, given: Optional[Size]) -> Optional[int]:
    """A size in bytes."""
    if given is None or (isinstance(given, int) and given >= 0):
        return given
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(given))
    if match is None or match[2].lower() not in _UNITS:
        raise ConfigError(f"{name}={given!r}: give bytes, or a size such as '64MiB' or '1GB'")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def ranks(rank: Optional[int], world_size: Optional[int]) -> Tuple[Optional[int], Optional[int]]:
    """Rank and world size: as given, else from torch.distributed if it is initialised, else
    None and None: then the child takes them from the environment (torchrun, Open MPI, Slurm,
    Kubernetes)."""
    if (rank is None) != (world_size is None):
        raise ConfigError("rank and world_size: give both or neither")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank={rank}, world_size={world_size}: ranks are from 0 to one less than the world size")
        return rank, world_size
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return None, None


def drop_none(given: Dict[str, Any]) -> Dict[str, Any]:
    """The members that are not None."""
    return {k: v for k, v in given.items() if v is not None}


def check_max_skipped(limit: Union[int, float, None]) -> None:
    """Raises ConfigError for a limit that is neither a number of samples nor a share."""
    if limit is not None and not 0 <= limit <= (1 if isinstance(limit, float) else limit):
        raise ConfigError(f"max_skipped={limit!r}: give a number of samples, or a share such as 0.001")
