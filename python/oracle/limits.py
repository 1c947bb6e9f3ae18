"""What the specification requires to be refused."""

from __future__ import annotations

from shardtool.errors import ConfigError


def demand(condition: bool, reason: str) -> None:
    """Raises ConfigError for what the specification requires to be refused."""
    if not condition:
        raise ConfigError(reason)
