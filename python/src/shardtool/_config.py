"""What a user asks for, checked as far as that needs no data set, and turned into requests."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from typing import Any, Dict, List, Optional, Tuple, Union

from .errors import ConfigError
from .fields import Field

#: Bytes, or text such as "64MiB" or "1GB".
Size = Union[int, str]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def address(url: "Union[str, os.PathLike[str]]") -> str:
    """Where a data set is, for a child that is started later: the working directory may be another then."""
    text = os.fsdecode(url)
    return text if "://" in text or not text else os.path.abspath(text)


def opening(
    url: "Union[str, os.PathLike[str]]",
    memory: Optional[Size],
    workers: Optional[int],
    cache: "Union[str, os.PathLike[str], None]",
    cache_size: Optional[Size],
) -> Dict[str, Any]:
    """The body of OPEN."""
    return drop_none(
        {
            "address": address(url),
            "memory": size_of("memory", memory),
            "workers": workers,
            "cache": None if cache is None else address(cache),
            "cache_size": size_of("cache_size", cache_size),
        }
    )


def size_of(name: str, given: Optional[Size]) -> Optional[int]:
    """A size in bytes."""
    if given is None or isinstance(given, int):
        return given
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(given))
    if match is None or match[2].lower() not in _UNITS:
        raise ConfigError(f"{name}={given!r}: write bytes, or a size such as '64MiB' or '1GB'")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def check_out(out: str, fields: Optional[List[Field]]) -> str:
    """Refuses a kind of output that is not there; only where arrays will be made."""
    if out not in ("torch", "numpy", "bytes"):
        raise ConfigError(f"out={out!r}: write torch, numpy or bytes")
    arrays = any(f.needs_array for f in fields or ())
    if arrays and out != "bytes" and out not in sys.modules and importlib.util.find_spec(out) is None:
        raise ConfigError(
            f"arrays are to be of {out}, out={out!r}, which is not installed: install it, or write out='numpy' or out='bytes'"
        )
    return out


def ranks(rank: Optional[int], world_size: Optional[int]) -> "Tuple[Optional[int], Optional[int]]":
    """Rank and world size: as given, else those of torch.distributed if it is initialised. None and None leaves them to the child, which
    asks the environment: torchrun, Open MPI, Slurm, Kubernetes, as `shardtool cat --rank-from-env`."""
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
    """Only what was given."""
    return {k: v for k, v in given.items() if v is not None}


def skip_limit(on_error: str, max_skipped: "Union[int, float, None]") -> Dict[str, Any]:
    """on_error and max_skipped as START has them. A limit of 0 is to fail."""
    if on_error not in ("fail", "skip"):
        raise ConfigError(f"on_error={on_error!r}: write fail or skip")
    if max_skipped is None:
        return {"on_error": on_error}
    if max_skipped < 0 or (isinstance(max_skipped, float) and max_skipped > 1):
        raise ConfigError(f"max_skipped={max_skipped!r}: write a number of samples, or a share such as 0.001")
    if not max_skipped:
        return {"on_error": "fail"}
    return {"on_error": on_error, ("max_skipped_share" if isinstance(max_skipped, float) else "max_skipped"): max_skipped}
