"""Random access by number and key."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
from pathlib import Path

import pytest
from conftest import RAW, SAMPLES, payload

import shardtool


def test_access(small: Path) -> None:
    with shardtool.open(small, fields=RAW) as ds:
        assert len(ds) == SAMPLES == ds.info["samples"]
        assert [f["name"] for f in ds.info["fields"]] == sorted(payload(0))
        for i in (0, 1, 500, 999):
            assert {k: v for k, v in ds[i].items() if v is not None} == payload(i)
            assert (ds[i].key, ds[i].number) == (f"s{i:04d}", i)
        assert ds[-1].number == 999
        assert ds["s0123"].number == 123
        assert [s.number for s in ds[10:30:7]] == [10, 17, 24]
        assert [s.number for s in ds[[5, 5, -2]]] == [5, 5, 998]
        assert [s.number for s in ds.__getitems__(list(range(300)))] == list(range(300))
        assert [s.number for s in ds] == list(range(SAMPLES))
        assert "s0001" in ds and "nothing" not in ds and 5 not in ds
        for bad in (1000, -1001, [1, 5000]):
            with pytest.raises(IndexError):
                ds[bad]
        with pytest.raises(KeyError, match="nearest") as info:
            ds["s0123x"]
        assert isinstance(info.value, shardtool.NotFoundError) and info.value.code == 6
        with pytest.raises(TypeError):
            ds[1.5]  # type: ignore[call-overload]
        assert ds[3].number == 3  # after all that
        text = repr(ds[3])
        assert text.startswith("<shardtool.Sample 3 's0003': {") and " bytes>" in text and len(text) < 500


def test_decoded(small: Path) -> None:
    with shardtool.open(
        small, fields={"json": "json", "cls": "int", "tokens": ("uint8", (64,)), "extra": "txt?"}, tuning=shardtool.Tuning(out="numpy")
    ) as ds:
        s = ds[7]
        assert s["json"] == {"number": 7, "even": False} and s["cls"] == 7 and s["extra"] is None
        assert s["tokens"].tobytes() == payload(7)["tokens"]
        s["tokens"][0] = 1  # ours
        again = pickle.loads(pickle.dumps(s))
        assert again.key == "s0007" and again.number == 7
    with shardtool.open(small, fields=["extra"]) as ds, pytest.raises(shardtool.DecodeError, match="s0001"):
        ds[1]


def test_numbers_need_no_library(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of a sample is one of Python: only arrays need the library of ``format``."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with shardtool.open(small, fields={"cls": "int"}) as ds:
        assert ds[7] == {"cls": 7}
    with pytest.raises(shardtool.ConfigError, match="torch, which is not installed"):
        shardtool.open(small, fields={"x.npy": "npy"}, format="torch")


def test_damage(damaged: Path) -> None:
    """A damaged block fails by itself; all others can be read, by the same child."""
    with shardtool.open(damaged, fields=RAW) as ds:
        bad = 0
        for i in range(SAMPLES):
            try:
                assert {k: v for k, v in ds[i].items() if v is not None} == payload(i)
            except shardtool.CorruptError as err:
                bad += 1
                assert err.shard is not None
        assert 0 < bad < 200
        with pytest.raises(shardtool.CorruptError):
            list(ds)
        assert ds[0].number == 0


def test_pickled(small: Path) -> None:
    ds = shardtool.open(small, fields=RAW)
    copy = pickle.loads(pickle.dumps(ds))
    assert ds[1] == copy[1]
    ds.close()
    with pytest.raises(shardtool.ClosedError):
        ds[1]
    assert json.loads(copy[2]["json"])["number"] == 2
    copy.close()
    copy.close()


def test_large_sample(tmp_path: Path) -> None:
    """A sample may be larger than the memory: it is read in pieces. A batch with it is not."""
    with shardtool.Writer(tmp_path) as w:
        for i in range(3):
            w.write({"large": bytes([i]) * (40 << 20), "small": str(i), "none": b""} if i == 1 else {"small": str(i)})
    tuning = shardtool.Tuning(memory="16MiB")
    with shardtool.open(tmp_path, tuning=tuning) as ds:
        got = ds[1]
        assert got["large"] == bytes([1]) * (40 << 20) and got["small"] == "1" and got["none"] == b""
        assert [s["small"] for s in ds[[0, 1, 1, 2]]] == ["0", "1", "1", "2"]
    with shardtool.open(tmp_path, fields={"small": "txt"}, tuning=tuning) as ds:
        assert ds["000000001"]["small"] == "1"
    for why, small in (("memory budget", tuning), ("ring_memory", shardtool.Tuning(ring_memory="16MiB"))):
        with pytest.raises(shardtool.ShardtoolError, match=why + r".*raise it.*Tuning\((ring_)?memory=\.\.\.\)"):
            list(shardtool.Loader(tmp_path, 3, epochs=1, tuning=small))
