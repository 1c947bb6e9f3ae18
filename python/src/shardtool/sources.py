"""What is read: a data set or a part of it, or a mix of several."""

from __future__ import annotations

import dataclasses
import decimal
import json
import numbers
import operator
import os
from collections.abc import Mapping as AnyMapping
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import guesses
from ._checks import address, at_home, drop_none, set_typed
from ._read.mixes import NO_END
from .errors import ConfigError, NotFoundError, redact

__all__ = ["Mix", "Source"]

Address = Union[str, os.PathLike[str]]

#: How the names of mix files end.
_MIX_FILES = (".yaml", ".yml", ".json")


@guesses.answered(guesses.SOURCES, "Source('out/', where='score >= 3')")
@dataclasses.dataclass(frozen=True)
class Source:
    """A data set, or a part of it: ``Loader(Source("s3://bucket/train", view="clean"), 64)``.

    ``Loader("s3://bucket/train", 64)`` is all of it.
    """

    url: Address
    """Where the data set is: ``out/``, ``s3://bucket/prefix`` or ``https://host/prefix``.
    ``@0123456789abcdef`` at its end selects a generation."""

    view: Optional[str] = None
    """The name of a view that was made by ``shardtool select``. The url may have it too:
    ``url#name``."""

    where: Optional[str] = None
    """An expression over attributes, such as ``"score >= 3 and lang in (de, fr)"``; only samples
    for which it holds are read."""

    keys: Optional[Address] = None
    """A file with one key in each line; only samples with these keys are read."""

    layers: Optional[Sequence[Address]] = None
    """Layers whose fields the samples have too: their names, as in ``["captions"]``, or addresses.
    ``@0123456789abcdef`` at the end of one selects a generation."""

    def __post_init__(self) -> None:
        set_typed(self)
        object.__setattr__(self, "layers", layers_of(self.layers))
        if os.fsdecode(self.url).endswith(_MIX_FILES):
            raise ConfigError(f"Source({os.fsdecode(self.url)!r}): it is a mix file: give its name alone, or a Mix")

    def _shown(self) -> str:
        return os.fsdecode(self.url) + (f"#{self.view}" if self.view else "")

    def _opening(self) -> Dict[str, Any]:
        """Returns the members of OPEN. Refuses a path at which there is nothing; stores are asked
        when the child opens them."""
        place = address(self._shown())
        _exists(self._shown(), "data set in")
        keys = None if self.keys is None else os.path.abspath(os.fsdecode(self.keys))
        return drop_none({"address": place, "where": self.where, "keys": keys, "layers": opened(self.layers)})


@guesses.answered(guesses.MIXING, """Mix({"sources": {"web": {"data": "web/", "weight": 3}, "code": {"data": "code/", "weight": 1}}})""")
@dataclasses.dataclass(frozen=True)
class Mix:
    """Several data sets as one stream (docs/mixing.md), and how a job continues with it.

    ``Loader("mix.yaml", 64)`` reads a mix as its states have it; ``Loader(Mix("mix.yaml",
    change_mix=True), 64)`` continues a state of another mix.
    """

    sources: Union[Address, Mapping[str, Any]]
    """The path of a mix file, ``mix.yaml``, or a dict with the same members, ``{"sources": {"web":
    {"data": "out/", "weight": 3}}}``."""

    change_mix: bool = False
    """True: continue a state with another mix than its own. The log "shardtool" has what changes.
    Without it, a state of another mix raises CheckpointError."""

    skip_steps: Optional[Tuple[int, int]] = None
    """The first and the last of the steps to leave out, both included. Steps are batches of this
    size, counted from 0. All others stay the same."""

    def __post_init__(self) -> None:
        mix: Any = self.sources
        refuse_others(mix)
        named = mix.get("sources") if isinstance(mix, AnyMapping) else None
        if isinstance(named, (list, tuple)):
            refuse_others(named)
        set_typed(self)
        skip = self.skip_steps
        if skip is not None and not 0 <= skip[0] <= skip[1] < NO_END:
            raise ConfigError(f"skip_steps={skip!r}: give the first and the last step to leave out, counted from 0")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            read = name in ("set_weights", "state_dict", "load_state_dict", "batch_size")
            raise AttributeError(f"a Mix has no {name!r}" + (": a loader has: shardtool.Loader(mix, 64)" if read else ""))

        def __iter__(self) -> Any:
            raise TypeError("a Mix says what to read: `for batch in shardtool.Loader(mix, 64)` reads it")

        def __len__(self) -> int:
            raise TypeError("a Mix says what to read: len(shardtool.Loader(mix, 64)) is the number of batches of an epoch")

        def __bool__(self) -> bool:
            return True  # bool() would call len()

    def _shown(self) -> str:
        if not isinstance(self.sources, AnyMapping):
            return os.fsdecode(self.sources)
        names = self.sources.get("sources")
        return f"mix of {', '.join(sorted(map(str, names)))}" if isinstance(names, AnyMapping) else "mix"

    def _opening(self) -> Dict[str, Any]:
        """Returns the members of OPEN. Relative paths in a dict start at the current directory,
        wherever the child process starts later."""
        more = {"directory": os.getcwd(), "change_mix": self.change_mix}
        if isinstance(self.sources, AnyMapping):
            return {"mix": json.dumps(_plain(self.sources), ensure_ascii=False), **more}
        place = address(self.sources)
        _exists(self._shown(), "mix file")
        return {"address": place, **more}


def layers_of(layers: Optional[Sequence[Address]]) -> Optional[Tuple[str, ...]]:
    """Returns the names and addresses of layers as text."""
    if layers is None:
        return None
    if isinstance(layers, (str, bytes)) or not all(isinstance(layer, (str, os.PathLike)) for layer in layers):
        raise ConfigError(f"layers={layers!r}: give a list of names or addresses, as in ['captions']")
    return tuple(os.fsdecode(layer) for layer in layers)


def opened(layers: Optional[Sequence[Address]]) -> Optional[List[str]]:
    """Returns layers for the child. A name stays; a path starts at the current directory."""
    if layers is None:
        return None
    return [address(layer) if os.sep in os.fsdecode(layer) else os.fsdecode(layer) for layer in layers]


def given(url: Union[Address, Mapping[str, Any], Source, Mix]) -> Union[Source, Mix]:
    """Returns what a user gave in place of the url."""
    if isinstance(url, (Source, Mix)):
        return url
    if isinstance(url, AnyMapping) or os.fsdecode(url).endswith(_MIX_FILES):
        return Mix(url)
    return Source(url)


def refuse_others(given: object) -> None:
    """Raises ConfigError for several data sets in another form than a mix, with the mix to write
    instead: a list of addresses, also with weights, or a dict of them or of the sources."""
    if isinstance(given, AnyMapping):
        if not given or {"sources", "segments"} & set(given):
            return
        pairs = [_pair(name, value) for name, value in given.items()]
    elif isinstance(given, (list, tuple)) and given:
        pairs = [_pair(None, value) for value in given]
    else:
        return
    if None in pairs:
        return
    shown = [f'"{name}": {{"data": {json.dumps(url)}, "weight": {weight}}}' for name, (url, weight) in zip("abc", filter(None, pairs))]
    mix = f'{{"sources": {{{", ".join(shown)}{", ..." if len(pairs) > len(shown) else ""}}}}}'
    raise ConfigError(f"a mix names each data set and gives its share: {redact(mix)} (docs/mixing.md)")


def _pair(name: object, value: object) -> Optional[Tuple[str, Any]]:
    """The address and the weight of a source in another form than a mix has, such as ("out/", 0.7),
    {"out/": 0.7} or {"web": {"data": "out/"}}; None if it is none."""
    weight: Any = 1
    if isinstance(value, AnyMapping):
        weight, value = value.get("weight", 1), value.get("data")
    elif isinstance(value, (list, tuple)) and len(value) == 2:
        value, weight = value
    elif isinstance(name, (str, os.PathLike)) and isinstance(value, (int, float)):
        value, weight = name, value
    return (os.fsdecode(value), weight) if isinstance(value, (str, os.PathLike)) and isinstance(weight, (int, float)) else None


def _exists(url: str, what: str) -> None:
    url = at_home(url)
    base = url.rpartition("#")[0] or url  # DATASET#VIEW, DATASET@GENERATION: a name may have these characters
    if "://" not in url and url[:6].lower() != "file:/" and not any(map(os.path.exists, (url, base, base.rpartition("@")[0] or base))):
        if any(mark in url for mark in "*{"):
            raise NotFoundError(f"no {what} {url}: a data set is a folder, which names its shards: give {os.path.dirname(url) or '.'}")
        raise NotFoundError(f"no {what} {url}: there is no such file or folder: check the path")


def _plain(value: Any) -> Any:
    """Returns a value for JSON. Numbers that are not whole become exact decimals or fractions in
    text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if hasattr(value, "__index__"):
        return operator.index(value)
    if isinstance(value, numbers.Rational):
        return f"{value.numerator}/{value.denominator}"
    exact = decimal.Decimal(repr(float(value))) if isinstance(value, numbers.Real) else value
    if isinstance(exact, decimal.Decimal) and exact.is_finite():
        return format(exact, "f")
    raise ConfigError(f"the mix has {value!r}: give text, numbers, lists and dicts")
