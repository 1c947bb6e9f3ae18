"""What can be done about an error of the child, in terms of this package.

The child sends hints as data: an option that helps, perhaps with a value, or a command of the
program ``shardtool``, and what that does. Options that the functions of this package do not have
are left out.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

#: The group of options that a reader's option is in; others are arguments.
_GROUPS = {
    "affinity": "Order", "delay": "Order", "epoch": "Order", "global-batch": "Order", "head": "Order", "lanes": "Order",
    "run-blocks": "Order", "shuffle-memory": "Order", "whole-shards": "Order",
    "memory": "Tuning", "ring-memory": "Tuning", "workers": "Tuning", "change-mix": "Mix",
}  # fmt: skip
_READING = ("epochs", "rank", "seed", "shuffle", "tail", "where", "world-size")
_WRITING = (
    "block-size", "duplicate-keys", "large-blocks", "layout", "memory", "missing", "samples-per-shard", "shard-size",
    "unknown", "workers",
)  # fmt: skip


def reading(option: str, value: str) -> Optional[str]:
    """Returns how a Loader, Dataset or open spells an option with a value, None if it has none."""
    if option in _GROUPS:
        return f"{_GROUPS[option]}({_set(option, value)})"
    return _set(option, value) if option in _READING else None


def writing(option: str, value: str) -> Optional[str]:
    """Returns how a Writer or Layer spells an option with a value, None if it has none."""
    if option == "mode":
        return _set("on_exists", value)
    return _set(option, value) if option in _WRITING else None


def _set(option: str, value: str) -> str:
    shown = {"": "...", "true": "True"}.get(value, repr(value))
    return f"{option.replace('-', '_')}={shown}"


def text(hints: "List[Dict[str, Any]]", spell: Callable[[str, str], Optional[str]]) -> str:
    """Returns the hints as the end of a message: first those without a remark, in parentheses."""
    bare, does = [], []
    for hint in hints:
        words = f"`shardtool {' '.join(hint.get('command', ()))}`"
        if "option" in hint:
            spelled = spell(hint["option"], hint.get("value", ""))
            if spelled is None:
                continue
            words = spelled
        if hint.get("does"):
            does.append(f"{words} {hint['does']}")
        else:
            bare.append(words)
    return (f" ({', '.join(bare)})" if bare else "") + (f"; {', '.join(does)}" if does else "")
