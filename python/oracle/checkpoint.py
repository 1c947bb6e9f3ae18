"""Checkpoints and the hash of skipped blocks: sections 9.10 and 9.11 of ORDER.md."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from shardtool.errors import CheckpointError, ConfigError

from .parameters import AFFINITIES, MAX_BATCH, MAX_EPOCH, TAILS, Parameters
from .words import U32, U64


def printable(longest: int) -> str:
    """Returns the pattern of printable ASCII without " \\ < > &."""
    return r"[ !#-%'-;=?-\[\]-~]" + f"{{0,{longest}}}"


PRINTABLE = printable(128)

_LETTERS = (("V", "lanes"), ("E", "run_blocks"), ("W", "delay"), ("H", "head"), ("T", "mix_block"))


def demand(condition: bool, reason: str) -> None:
    """Raises CheckpointError."""
    if not condition:
        raise CheckpointError(f"the checkpoint cannot be used: {reason}")


class UnitMark(NamedTuple):
    """What units are made of, in a checkpoint (9.16)."""

    kind: str
    size: int
    long: str
    window: int
    by: str  #: The attribute with the lengths.
    lengths: str  #: A hash of all lengths.

    def members(self) -> Dict[str, Any]:
        """Returns the members of the object ``units``."""
        return {"algorithm": "units/1", **self._asdict()}


class Checkpoint(NamedTuple):
    """A place in an order, and everything that the order depends on."""

    parameters: Parameters
    samples: int  #: Of the data set.
    epoch: int  #: The place: epoch,
    position: int  #: and samples of it before the place, over all ranks.
    global_batch: int = 0  #: Of the batch before the place; 0 if there was none.
    digest: str = ""  #: Of the data set.
    tables: str = ""  #: The name of the object that defines its generation.
    skip_hash: str = ""  #: ``skip_hash`` of the blocks skipped so far.
    skipped: int = 0  #: Samples skipped so far.
    units: Optional[UnitMark] = None  #: With units, ``position`` counts them.

    def text(self) -> str:
        """Returns the text that ORDER.md 9.10 defines, smaller than 1.5 KiB."""
        p, seed = self.parameters, str(self.parameters.seed)
        version = 1 if self.units is None else 3
        values: Dict[str, Any] = {
            "version": version,
            "algorithm": "lane-delay/1",
            "seed": seed,
            "epoch": self.epoch,
            "position": self.position,
        }
        values["shuffle"] = p.shuffle
        values.update((letter, getattr(p, name)) for letter, name in _LETTERS)
        values.update(affinity=p.affinity, tail=p.tail, global_batch=self.global_batch)
        values["sources"] = [{"digest": self.digest, "N": self.samples, "weight": 1, "key": seed}]
        if self.units is not None:
            values["units"] = self.units.members()
        values.update(tables=self.tables, skip_hash=self.skip_hash, skipped=self.skipped)
        return with_check(values)

    def check(self) -> None:
        """Raises CheckpointError if readers would refuse it."""
        read_checkpoint(self.text())


class Number(str):
    """Parses a JSON number from its digits."""


def no_duplicates(pairs: "List[Tuple[str, Any]]") -> Dict[str, Any]:
    """Parses a JSON object. Readers may refuse duplicate members (9.10)."""
    demand(len(dict(pairs)) == len(pairs), "a member is given twice")
    return dict(pairs)


def read_object(text: str, longest: int, *versions: int) -> Dict[str, Any]:
    """Parses the text of a checkpoint of one of some versions, at most ``longest`` bytes."""
    demand(len(text.encode("utf-8", "surrogatepass")) <= longest, f"longer than {longest:,} bytes")
    try:
        values = json.loads(text, object_pairs_hook=no_duplicates, parse_int=Number, parse_float=Number)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as err:
        raise CheckpointError(f"the checkpoint cannot be used: no JSON: {err}") from None
    demand(isinstance(values, dict), "no JSON object")
    demand(read_integer(values, "version", U64) in versions, "unknown version")  # before any other member
    return dict(values)


def with_check(values: Dict[str, Any]) -> str:
    """Returns the text of a checkpoint, its check last."""
    text = json.dumps(values, separators=(",", ":"))
    return f'{text[:-1]},"check":"{zlib.crc32(text.encode("ascii")):08x}"}}'


def read_integer(values: Dict[str, Any], name: str, high: int) -> int:
    """Returns a member that must be an integer."""
    v = values.get(name)
    demand(isinstance(v, Number) and re.fullmatch("0|[1-9][0-9]{0,19}", v) is not None, f"{name} is missing or no integer")
    demand(int(str(v)) <= high, f"{name} is out of its limits")
    return int(str(v))


def read_string(values: Dict[str, Any], name: str, pattern: str) -> str:
    """Returns a member that must be a string that matches a pattern."""
    v = values.get(name)
    demand(type(v) is str and re.fullmatch(pattern, v) is not None, f"{name} is missing, no string or out of its limits")
    return str(v)


def read_u64_string(values: Dict[str, Any], name: str) -> int:
    """Returns a member that must be a string with a 64-bit number."""
    v = int(read_string(values, name, "0|[1-9][0-9]{0,19}"))
    demand(v < U64, f"{name} is out of its limits")
    return v


def read_members(values: Dict[str, Any]) -> Checkpoint:
    """9.10, the table of members."""
    sources = values.get("sources")
    demand(type(sources) is list and len(sources) == 1, "not one source")
    source: Any = values["sources"][0]
    demand(isinstance(source, dict) and read_integer(source, "weight", 1) == 1, "no source of weight 1")
    numbers = {name: read_integer(values, letter, U32) for letter, name in _LETTERS}
    p = Parameters(
        read_u64_string(values, "seed"), values.get("shuffle"),  # type: ignore[arg-type]
        affinity=read_string(values, "affinity", "|".join(AFFINITIES)), tail=read_string(values, "tail", "|".join(TAILS)), **numbers,
    )  # fmt: skip
    try:
        p.check()
    except ConfigError as err:
        demand(False, str(err))
    demand(read_u64_string(source, "key") == p.seed, "key is not the seed")
    return Checkpoint(
        p, read_integer(source, "N", 2**63 - 1), read_integer(values, "epoch", MAX_EPOCH), read_integer(values, "position", U64),
        read_integer(values, "global_batch", MAX_BATCH), read_string(source, "digest", PRINTABLE),
        read_string(values, "tables", PRINTABLE), read_string(values, "skip_hash", PRINTABLE), read_integer(values, "skipped", U64 - 1),
    )  # fmt: skip


def read_units(values: Dict[str, Any]) -> UnitMark:
    """9.16, the members of ``units``."""
    said: Any = values.get("units")
    demand(isinstance(said, dict) and said.get("algorithm") == "units/1", "no units, or of an unknown algorithm")
    mark = UnitMark(
        read_string(said, "kind", "pack|bucket"),
        read_integer(said, "size", 2**31 - 1),
        read_string(said, "long", "error|split|truncate|drop"),
        read_integer(said, "window", 2**20),
        read_string(said, "by", PRINTABLE),
        read_string(said, "lengths", printable(32)),
    )
    demand(set(said) == set(mark.members()) and mark.size > 0 and mark.window > 0, "members of units are missing, unknown or 0")
    return mark


def read_checkpoint(text: str) -> Checkpoint:
    """Parses a checkpoint: the text of ``shardtool cat --checkpoint-out``, or the member
    "checkpoint" of ``Loader.state_dict()``.

    Raises:
        CheckpointError: It is damaged, or of an unknown version.
    """
    values = read_object(text, 16384, 1, 3)
    demand(read_string(values, "algorithm", r"(?s:.*)") == "lane-delay/1", "unknown algorithm")
    made = read_members(values)
    most = max(made.samples, 1)
    if values["version"] == "3":
        made, most = made._replace(units=read_units(values)), 2**63
    demand(made.position < most and (made.epoch < MAX_EPOCH or made.position == 0), "the position is out of its limits")
    written = json.loads(made.text())
    source, known = values["sources"][0], written["sources"][0]
    demand(set(values) == set(written) and set(source) == set(known), "members are missing or unknown")
    demand(read_string(values, "check", "[0-9a-f]{8}") == written["check"], "the check differs")
    return made


def skip_hash(blocks: "Iterable[Tuple[Any, ...]]") -> str:
    """Returns the hash of skipped blocks (9.11), given as pairs of a shard's name and a block's
    number in it, of a mix with the source before them; empty for none. The source of a data set
    read alone may be given as empty text."""
    listed = sorted({(*(name.encode("utf-8") for name in names if name), block) for *names, block in blocks})
    if not listed:
        return ""
    return hashlib.sha256(b"".join(b"\0".join((*names, b"%d\n" % block)) for *names, block in listed)).hexdigest()[:32]
