"""Ranks that balance costs must have the same costs: otherwise a sample reaches two, or none.

They compare them in the store of torch.distributed where it runs: the first rank that begins at a
place leaves a note there, and the others read it. Nobody waits for another rank.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from typing import Any, Dict

from .._wire.process import logger
from ..errors import ConfigError
from .skipped import why_not
from .states import with_ledger

_begun: "Counter[str]" = Counter()  # how often runs began at a place, in this process


def compare(said: Dict[str, Any], cost: Any) -> None:
    """Raises ConfigError if another rank began with other costs at the place where a run begins.
    ``said`` is STARTED, ``cost`` the expression."""
    if "cost_hash" not in said or said["world_size"] == 1:
        return
    dist: Any = sys.modules.get("torch.distributed")
    if why_not(dist, None):
        return
    at = f"{said['world_size']} {with_ledger(said['checkpoint'], {})}"
    place = hashlib.sha256(at.encode()).hexdigest()[:32]
    _begun[place] += 1
    mine = f"{said['cost_hash']} {said.get('cost_group', 0)} {cost}"
    try:
        store = dist.distributed_c10d._get_default_store()
        first = store.compare_set(f"shardtool/cost/{place}/{_begun[place]}", "", mine)
    except (AttributeError, NotImplementedError, RuntimeError) as err:
        logger.debug("costs are not compared with those of other ranks: %s", err)
        return
    theirs = first.decode() if isinstance(first, bytes) else first
    if theirs == mine:
        return
    raise ConfigError(
        f"cost: this rank has {_shown(mine)}, another one {_shown(theirs)}: give all ranks the same cost, cost_group, data set and layers"
    )


def _shown(note: str) -> str:
    """Returns a note as text: the expression, the group, and the beginning of the hash."""
    hash, group, cost = note.split(" ", 2)
    ranks = "all ranks" if group == "0" else f"groups of {group} ranks"
    return f"{cost!r} over {ranks} (costs {hash[:12]})"
