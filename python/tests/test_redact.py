"""Addresses are printed without passwords and signatures."""

from __future__ import annotations

import json
import pickle
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from conftest import children
from s3 import served

import shardtool
from shardtool import Loader, Writer
from shardtool.errors import ConfigError, ShardtoolError, redact

URL = "http://user:marked-password@127.0.0.1:9/data?X-Amz-Signature=marked-signature&sig=marked-sas"

TEXTS: Dict[str, str] = {
    "out/what?.tar": "out/what?.tar",
    "https://user:se@cret@host/a@b": "https://host/a@b",
    "https://host?sig=secret": "https://host",
    "s3://bucket@0123456789abcdef": "s3://bucket@0123456789abcdef",
    "s3://b/x?p=secret#view": "s3://b/x#view",
    "s3://b/x?p=s@0123456789abcdef": "s3://b/x@0123456789abcdef",
    "get https://u:secret@h/a?b=s: no": "get https://h/a: no",
}


@pytest.mark.parametrize("text", TEXTS)
def test_redact(text: str) -> None:
    assert redact(text) == TEXTS[text]


@pytest.mark.parametrize("make", [lambda: Loader(URL, 1), lambda: Writer(URL), lambda: shardtool.open(URL)])
def test_repr(make: Callable[[], Any]) -> None:
    shown = repr(make())
    assert "http://127.0.0.1:9/data" in shown
    assert "marked" not in shown


def test_errors() -> None:
    """No error shows a secret, whoever made its message, nor does its copy in another process."""
    with pytest.raises(ConfigError) as info:
        Loader([URL], 1)  # type: ignore[arg-type]
    assert "http://127.0.0.1:9/data" in str(info.value)
    for error in (info.value, pickle.loads(pickle.dumps(info.value)), ShardtoolError(f"cannot read {URL}: refused")):
        assert "marked" not in "".join(traceback.format_exception_only(type(error), error)) + repr(error)


def test_child(capfd: pytest.CaptureFixture[str]) -> None:
    """What the child process reports about an address that it cannot open."""
    with pytest.raises(ShardtoolError) as info:
        len(shardtool.open(URL.replace("http:", "ftp:")))
    assert "marked" not in str(info.value)
    assert "marked" not in capfd.readouterr().err


def test_planted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """The query of an address, which may be a signature, is in no argument of a child, and in
    nothing that is said, logged, saved or published."""
    caplog.set_level("DEBUG")
    arguments: List[bytes] = []

    def look() -> None:
        arguments.extend(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children())

    def twice(batch: Any) -> Any:
        look()
        return {"z": [2 * int(k) for k in batch.sample_keys]}

    with served(monkeypatch) as store:
        base, layer, made = store.url("base"), store.url("layer"), store.url("made")
        told: List[Any] = []
        with shardtool.Writer(base) as w:
            for i in range(10):
                w.write({"__key__": str(i), "x": i})
            look()
        with shardtool.Layer(base, layer) as more:
            for i in range(10):
                more.write({"__key__": str(i), "y": i})
            look()
        told += [w, w.result, more, more.result]
        told.append(shardtool.annotate(base, made, twice, batch_size=3, layers=[layer]))
        told.append(shardtool.optimize(lambda i: {"x": i}, range(5), store.url("other"), workers=0))
        state = None
        for _ in range(2):
            with shardtool.Loader(base, 4, layers=[layer, made], shuffle=False, rank=0, world_size=1) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                batch = next(iter(loader))
                look()
                assert batch["y"][0] == (0 if state is None else 4) and batch["z"][0] == 2 * batch["y"][0]
                state = loader.state_dict()
                told += [loader, loader.info, json.dumps(state), batch]
        with pytest.raises(shardtool.ShardtoolError) as missing:
            next(iter(shardtool.Loader(base, 4, layers=[store.url("none")])))
        with pytest.raises(shardtool.ExistsError) as exists:
            shardtool.Writer(base).resume_from
        told += [missing.value, exists.value, *(data for data, _ in store.objects.values())]
    assert arguments and state is not None and state["layers"]
    for text in [*map(repr, [*arguments, *told]), *map(str, told), caplog.text, *capfd.readouterr()]:
        assert "endpoint" not in text and "path_style" not in text, text
