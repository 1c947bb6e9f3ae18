"""Addresses are printed without passwords and signatures."""

from __future__ import annotations

import pickle
import traceback
from typing import Any, Callable, Dict

import pytest

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
