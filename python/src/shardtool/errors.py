"""The errors this package raises. All are a ShardtoolError.

Each has the attributes ``shard``, ``block``, ``offset``, ``key`` and ``field``: what is known of the place, else None. ``code`` is the exit
code that the command ``shardtool`` has for the same error. They can be pickled, and made from a message alone, so that they cross
the borders of processes.
"""

from __future__ import annotations

from typing import Any, Optional


class ShardtoolError(Exception):
    """Something failed; the message says where and what to do. Itself it stands for all that has no class of its own, such as a store
    that fails."""

    code: int = 1

    def __init__(
        self,
        message: str = "",
        *,
        shard: Optional[str] = None,
        block: Optional[int] = None,
        offset: Optional[int] = None,
        key: Optional[str] = None,
        field: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: Object name of the shard.
        self.shard = shard
        #: Number of the block in its shard.
        self.block = block
        #: Offset in the shard, in bytes.
        self.offset = offset
        #: Key of the sample.
        self.key = key
        #: Field of the sample.
        self.field = field

    def __str__(self) -> str:
        return self.message  # KeyError would quote it

    def __reduce__(self) -> Any:
        return (type(self), (self.message,), self.__dict__)


class ConfigError(ShardtoolError, ValueError):
    """What was asked for cannot be, or does not fit the data set."""

    code = 2


class BinaryError(ShardtoolError):
    """The program ``shardtool`` was not found, or is of another version than this package."""

    code = 2


class VersionError(BinaryError):
    """Package and program are of two releases, ``package`` and ``program``, or do not speak one protocol: install both of one."""

    def __init__(self, message: str = "", *, package: str = "", program: str = "", **place: Any) -> None:
        super().__init__(message, **place)
        #: Version of this package; empty in a source tree that is not installed.
        self.package = package
        #: Version of the program ``shardtool``.
        self.program = program


class DataError(ShardtoolError):
    """Something is wrong with the data."""


class CorruptError(DataError):
    """Damaged data, or data of a newer format. Nothing of it was delivered, and all batches before it are right."""

    code = 3


class SkippedError(CorruptError):
    """More samples were skipped than ``max_skipped`` allows."""


class DecodeError(DataError, ValueError):
    """A payload is not what ``fields`` declares it to be; ``key`` and ``field`` say which. What the child decodes, numbers and arrays, has
    ``shard`` and ``block`` too."""


class NotFoundError(ShardtoolError, LookupError):
    """There is no such data set, generation or sample."""

    code = 6


class KeyNotFoundError(NotFoundError, KeyError):
    """No sample has that key."""


class CheckpointError(ShardtoolError, ValueError):
    """The checkpoint does not fit the data set or the order asked for, or is damaged. The message names the first member that differs."""

    code = 7


class HeldError(ShardtoolError):
    """Batches that are still in use leave no room for another one. Let go of them, copy what you keep, or raise ``ring_memory``. The
    iteration can go on afterwards: ask for the next batch again."""


class ServerDiedError(ShardtoolError):
    """The child process ended, or gives no sign of life. What was delivered is right, and ``state_dict()`` still tells the place: iterating
    again goes on there with a new child."""


class ClosedError(ShardtoolError, ValueError):
    """The loader or data set was closed, or the iterator belongs to another process."""


_KINDS = {
    "config": ConfigError,
    "corrupt": CorruptError,
    "skipped": SkippedError,
    "decode": DecodeError,
    "not_found": NotFoundError,
    "checkpoint": CheckpointError,
    "held": HeldError,
    "protocol": BinaryError,
}


def from_body(body: "dict[str, Any]", code: int) -> ShardtoolError:
    """The error that an ERROR frame tells of."""
    kind = _KINDS.get(str(body.get("kind")), ShardtoolError)
    err = kind(
        str(body.get("message", "the child failed and does not say why")),
        shard=body.get("shard"),
        block=body.get("block"),
        offset=body.get("offset"),
        key=body.get("key"),
        field=body.get("field"),
    )
    err.code = code
    return err
