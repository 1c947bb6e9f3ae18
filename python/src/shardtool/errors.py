"""The errors of this package. All are ShardtoolErrors.

Each has the attributes ``shard``, ``block``, ``offset``, ``key``, ``field`` and ``source``, None if
unknown.
``code`` is the exit code of the command ``shardtool`` for the same error. Errors can be pickled,
and made from only a message, so they can cross processes.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Optional

from . import hints

_URL = re.compile(r"""([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s"'<>/?#]*)([^\s"'<>?]*)(?:\?([^\s"'<>]*))?""")
_GENERATION = re.compile(r"@[0-9a-f]{16}$")


def redact(text: str) -> str:
    """Returns a text, such as an address or a message, without the users, passwords and queries of
    the URLs in it: a query may hold a signature. The rule is the one of ``objstore.Redact``."""
    return _URL.sub(_shown, text)


def _shown(url: "re.Match[str]") -> str:
    scheme, host, path, query = url.groups()
    at = host.rfind("@")
    if at >= 0 and not _GENERATION.search(host):
        host = host[at + 1 :]
    if query is None:
        return f"{scheme}{host}{path}"
    # The view or the generation after the query stays, and so does the punctuation of the sentence.
    bare = query.rstrip(".,:;)]")
    after = query[len(bare) :]
    generation = _GENERATION.search(bare)
    if "#" in bare:
        after = bare[bare.index("#") :] + after
    elif generation:
        after = generation.group() + after
    return f"{scheme}{host}{path}{after}"


class ShardtoolError(Exception):
    """The base class, and the class of errors that have no other, such as a failing store. The
    message describes the place and a remedy."""

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
        source: Optional[str] = None,
    ) -> None:
        self.message = redact(message)
        super().__init__(self.message)
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
        #: Name of the source of a mix.
        self.source = source

    def more(self, text: str) -> None:
        """Adds to the message, in parentheses, what only a caller knows, such as the place."""
        self.message += f" ({text})"

    def __str__(self) -> str:
        return self.message  # KeyError's would quote it

    def __reduce__(self) -> Any:
        return (type(self), (self.message,), self.__dict__)


class ConfigError(ShardtoolError, ValueError):
    """An argument is invalid, or does not fit the data set."""

    code = 2


class BinaryError(ShardtoolError):
    """The program ``shardtool`` was not found, or does not fit this package."""

    code = 2


class VersionError(BinaryError):
    """The versions of ``package`` and ``program`` differ. Install both of one version."""

    def __init__(self, message: str = "", *, package: str = "", program: str = "", **place: Any) -> None:
        super().__init__(message, **place)
        #: Version of this package; empty in a source tree that is not installed.
        self.package = package
        #: Version of the program ``shardtool``.
        self.program = program


class DataError(ShardtoolError):
    """The data is wrong."""


class CorruptError(DataError):
    """The data is damaged, or of a newer format. No damaged data was delivered, and all batches
    before the error are correct."""

    code = 3


class SkippedError(CorruptError):
    """Ranks skipped more samples than ``max_skipped`` allows."""


class DecodeError(DataError, ValueError):
    """A payload does not match ``fields``; ``key`` and ``field`` identify it. What the child
    decodes, numbers and arrays, has ``shard`` and ``block`` too."""


class EncodeError(DataError, ValueError):
    """A value cannot be stored: ``key`` and ``field`` identify it, the message says why and what to
    do. Or a sample cannot, such as one whose key another sample has."""


class ExistsError(ShardtoolError, FileExistsError):
    """There is a data set, and ``on_exists`` does not allow it."""


class NotFoundError(ShardtoolError, LookupError):
    """The data set, generation or sample does not exist."""

    code = 6


class KeyNotFoundError(NotFoundError, KeyError):
    """No sample has the key."""


class CheckpointError(ShardtoolError, ValueError):
    """The checkpoint is damaged, or does not fit the data set or the order. The message names the
    first member that differs."""

    code = 7


class HeldError(ShardtoolError):
    """Is not raised any more: a loop may keep batches. Programs that catch it need not change."""


class ServerDiedError(ShardtoolError):
    """The child process ended, or stopped responding. The batches delivered are correct; iterating
    again continues after them, with a new child."""


class ClosedError(ShardtoolError, ValueError):
    """The loader or data set was closed, or the iterator belongs to another process."""


_KINDS = {
    "config": ConfigError,
    "corrupt": CorruptError,
    "skipped": SkippedError,
    "decode": DecodeError,
    "not_found": NotFoundError,
    "checkpoint": CheckpointError,
    "sample": EncodeError,
    "exists": ExistsError,
    "protocol": BinaryError,
    # Of the process that reads for its peers.
    "closed": ClosedError,
    "died": ServerDiedError,
}


def from_body(body: "dict[str, Any]", code: int, spell: "Callable[[str, str], Optional[str]]") -> ShardtoolError:
    """Returns the error that the child describes. ``spell`` spells the options in its hints, as
    ``hints.reading`` does."""
    kind = _KINDS.get(str(body.get("kind")), ShardtoolError)
    err = kind(
        str(body.get("message", "the child failed and does not say why")) + hints.text(body.get("hints", []), spell),
        shard=body.get("shard"),
        block=body.get("block"),
        offset=body.get("offset"),
        key=body.get("key"),
        field=body.get("field"),
        source=body.get("source"),
    )
    err.code = code
    return err
