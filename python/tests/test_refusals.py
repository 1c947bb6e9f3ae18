"""Advice that helps: what an error says to do ends the complaint."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Optional

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
