"""Advice that helps: what an error says to do ends the complaint."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

import shardtool
from shardtool import ConfigError, Loader, NotFoundError, Order
from shardtool.fields import check_out, parse


def test_arrays_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of arrays that is advised is one that can be had."""
    missing = {"torch"}
    find: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    monkeypatch.setattr("shardtool._checks.sys.modules", {})
    fields = parse({"x.npy": "npy"})

    def advice(out: str) -> Optional[str]:
        try:
            check_out(out, fields)
        except ConfigError as err:
            return err.message.rpartition("format=")[2].strip("')")
        return None

    assert advice("torch") == "numpy" and advice("numpy") is None
    missing.add("numpy")
    assert advice("torch") == advice("numpy") == "bytes" and advice("bytes") is None


def test_numbers_out_of_range(small: Path) -> None:
    """They are refused by the names and in the terms of Python."""
    with pytest.raises(ConfigError, match=r"seed=\d+: give 0 to 18446744073709551615"):
        Loader(small, 10, seed=2**70)
    for name in ("lanes", "delay", "epoch", "global_batch"):
        with Loader(small, order=Order(**{"global_batch": 10, name: 2**70})) as loader, pytest.raises(ConfigError, match=name) as info:
            next(iter(loader))
        assert "Go" not in info.value.message and "unmarshal" not in info.value.message


def test_layers_that_are_not_there(small: Path) -> None:
    for read in (lambda: next(iter(Loader(small, 10, layers=["nope"]))), lambda: shardtool.open(small, layers=["nope"])[0]):
        with pytest.raises(NotFoundError, match=r"layer nope: .*layer ls") as info:
            read()
        assert "shardtool pack" not in info.value.message


#: What advice in words stands for.
WORDS: Dict[str, Any] = {
    "a function": len, "a list of names": ["txt"], "a dict of names and types": {"txt": "txt"}, "True or False": False,
    "a dict of names and encodings": {"a": "txt"}, "a shardtool.Tuning": shardtool.Tuning(), "a shardtool.Faults": shardtool.Faults(),
    "a shardtool.Order": Order(), "a shardtool.Pack": shardtool.Pack(64, fields=["n"]), "a shardtool.Bucket": shardtool.Bucket(64, by="n"),
}  # fmt: skip


def advised(text: str) -> Iterator[Any]:
    """Yields the values that an error says to give: an example, literals of Python, numbers of a
    range, and what words stand for."""
    if found := re.search(r", as in \w+=(.+?)(?:; |, an |$)", text):
        yield eval(found[1], {name: getattr(shardtool, name) for name in ("Faults", "Order", "Pack", "Tuning")})
        text = text[: found.start()]
    yield from (value for words, value in WORDS.items() if words in text)
    if found := re.search(r"the least is (\d+)|give (\d+) to \d+", text):
        yield int(found[1] or found[2])
    at = 0
    while found := re.compile(r"['(\[{]|None|\b\d").search(text, at):
        for end in range(len(text), found.start(), -1):
            try:
                value = ast.literal_eval(text[found.start() : end])
            except (SyntaxError, ValueError):
                continue
            if not isinstance(value, tuple) or all(isinstance(part, (int, str)) for part in value):
                yield value
            break
        else:
            end = found.end()
        at = end
    if found := re.search(r"write one of ([\w, ]+)", text):
        yield from (word for word in found[1].split(", ") if word and word not in ("image", "auto", "float", "int", "cls"))


def _loader(name: str) -> Callable[[Path, Path, Any], Any]:
    return lambda data, out, value: Loader(data, **{"batch_size": 8, name: value}).close()


def _tuning(name: str) -> Callable[[Path, Path, Any], Any]:
    return lambda data, out, value: Loader(data, 8, tuning=shardtool.Tuning(**{name: value})).close()


def _writer(name: str) -> Callable[[Path, Path, Any], Any]:
    return lambda data, out, value: shardtool.Writer(out, **{name: value}).abort()


@pytest.mark.parametrize(
    ("call", "mistake"),
    [
        *((_loader(name), value) for name, value in (
            ("tail", "x"), ("format", "jax"), ("fields", 3), ("layers", "captions"), ("seed", -1), ("seed", 2**64), ("batch_size", 0),
            ("order", 3), ("units", 3), ("map_batch", 3), ("epochs", -1), ("shuffle", 3), ("tuning", 3), ("faults", 3),
        )),
        *((_tuning(name), value) for name, value in (
            ("memory", "much"), ("memory", -1), ("ring_memory", "x"), ("prefetch", -1), ("workers", -1), ("requests", 0), ("host", 1),
        )),
        *((_writer(name), value) for name, value in (
            ("attrs", 3), ("level", 99), ("fields", 3), ("shard_size", "x"), ("samples_per_shard", -1), ("on_exists", "x"), ("layout", "x"),
            ("duplicate_keys", "x"), ("memory", "x"),
        )),
        (lambda data, out, value: Loader(data, 8, fields={"txt": value}).close(), "nope"),
        (lambda data, out, value: shardtool.Writer(out, fields={"a": value}).abort(), "bmp"),
        (lambda data, out, value: shardtool.Faults(max_skipped=value), "x"),
        (lambda data, out, value: shardtool.Pack(64, fields=value), "x"),
        (lambda data, out, value: shardtool.Image(size=value), (0, 0)),
    ],
)  # fmt: skip
def test_advice(small: Path, tmp_path: Path, call: Callable[[Path, Path, Any], Any], mistake: Any) -> None:
    """Every value that an error says to give ends its complaint."""

    def complaint(value: Any) -> str:
        try:
            call(small, tmp_path / "out", value)
        except (shardtool.ShardtoolError, TypeError, ValueError) as err:
            return str(err)
        return ""

    text = complaint(mistake)
    assert text, "no error"
    begin = text.partition("=")[0] + "="
    values: List[Any] = [value for value in advised(text.partition(": ")[2]) if value != mistake]
    assert values, text
    for value in values:
        again = complaint(value)
        assert not again.startswith(begin) or "not installed" in again, (text, value, again)
