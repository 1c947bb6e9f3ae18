"""The bodies of OPEN and START, from what a user asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict, Optional, Union

from .._checks import address, drop_none
from ..options import Faults, Order, Tuning
from ..read import mixes


def opening(
    url: Union[str, os.PathLike[str], Mapping[str, Any]],
    cache: Union[str, os.PathLike[str], None],
    tuning: Tuning,
    where: Optional[str] = None,
    keys: Union[str, os.PathLike[str], None] = None,
    change_mix: bool = False,
) -> Dict[str, Any]:
    """The body of OPEN."""
    return drop_none({
        "address": None if isinstance(url, Mapping) else address(url), **mixes.opening(url, change_mix),
        "where": where, "keys": None if keys is None else os.path.abspath(os.fsdecode(keys)),
        "memory": tuning.memory, "workers": tuning.workers,
        "cache": None if cache is None else address(cache), "cache_size": tuning.cache_size,
    })  # fmt: skip


def starting(given: Mapping[str, Any], order: Order, tuning: Tuning, faults: Faults) -> Dict[str, Any]:
    """The members of START that stay the same for the life of a loader."""
    limit = faults.max_skipped
    return drop_none({
        **{name: given[name] for name in ("batch_size", "shuffle", "seed", "tail")},
        **vars(order), "epoch": order.epoch or None, "epochs": given["epochs"] or 0,
        **{name: getattr(tuning, name) for name in ("prefetch", "requests", "depth", "memory", "workers")},
        "change_mix": given["change_mix"] or None, "skip_steps": given["skip_steps"],
        "ring": tuning.ring_memory, "autotune": None if tuning.autotune else False,
        "on_error": "fail" if limit == 0 else faults.on_error,
        "max_skipped_share" if isinstance(limit, float) else "max_skipped": limit or None,
    })  # fmt: skip
