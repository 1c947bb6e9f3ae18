"""Which program is started, and the errors if it is the wrong one."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Optional

import pytest

import shardtool
from shardtool import Loader


def test_child_says_why(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the child wrote last is in the error."""
    fake = tmp_path / "shardtool"
    fake.write_text(
        f"#!/bin/sh\necho ignored; for i in 1 2 3; do echo line $i >&2; done; exec {os.environ['SHARDTOOL_BINARY']} cat --none\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("SHARDTOOL_BINARY", str(fake))
    with Loader(small, 1) as loader, pytest.raises(shardtool.BinaryError, match=r"(?s)exit code 2.*line 3.*unknown flag"):
        iter(loader)


FAKE = """#!{python}
import socket, struct, sys, time
sock = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
body = b"{version}"
sock.sendall(struct.pack("<HHI8sI", 1, 0, len(body), b"{magic}", {protocol}).ljust(64, b"\\0") + body)
sock.recv(1)
"""


@pytest.mark.parametrize(
    ("magic", "protocol", "words"),
    [("SHRDSRV1", 1, "9.9.9 and speaks protocol 1; this Python package speaks 2"), ("SHRDSRVX", 2, "is not the program shardtool")],
)
def test_version_mismatch(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: str, protocol: int, words: str) -> None:
    fake = tmp_path / "shardtool"
    fake.write_text(FAKE.format(python=sys.executable, version="9.9.9", magic=magic, protocol=protocol))
    fake.chmod(0o755)
    monkeypatch.setenv("SHARDTOOL_BINARY", str(fake))
    with Loader(small, 1) as loader, pytest.raises(shardtool.BinaryError, match=words) as info:
        iter(loader)
    if protocol == 1:
        assert isinstance(info.value, shardtool.VersionError) and info.value.program == "9.9.9"


@pytest.mark.parametrize(
    ("program", "package", "refused", "warned"),
    [
        ("9.9.9", "9.9.9", False, False),
        ("9.9.9", "9.9.8", True, False),
        ("9.9.9", "9.9.9.dev0+g12", True, False),
        ("9.9.9", "9.9.9+g12", False, True),
        ("9.9.9", None, False, False),
        ("9.9.9-dev0+g12.dirty", "9.9.9.dev0+g12.dirty", False, False),
        ("9.9.9-dev0+g12", "9.9.9.dev0+g13", False, True),
        ("9.9.9-dev0+g12", "9.9.9", True, False),
        ("9.9.9-dev0+g12", "9.9.8.dev0+g12", True, False),
    ],
)
def test_release_mismatch(
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str,
    package: Optional[str],
    refused: bool,
    warned: bool,
) -> None:
    """The protocol is the same, the release is not: data may be read otherwise. Two builds of one
    release may be meant."""
    fake = tmp_path / "shardtool"
    fake.write_text(FAKE.format(python=sys.executable, version=program, magic="SHRDSRV1", protocol=2))
    fake.chmod(0o755)
    monkeypatch.setenv("SHARDTOOL_BINARY", str(fake))
    if package is not None:
        monkeypatch.setattr("importlib.metadata.version", lambda _: package)
    for _ in range(2):  # warns once
        with Loader(small, 1) as loader, pytest.raises(shardtool.ShardtoolError) as info:
            iter(loader)  # which ends at OPEN if not before
        assert isinstance(info.value, shardtool.VersionError) == refused
        if refused:
            assert (info.value.package, info.value.program) == (package, program)  # type: ignore[attr-defined]
            assert f"is shardtool {program}, chosen by SHARDTOOL_BINARY, this Python package is {package}: install" in str(info.value)
            again = pickle.loads(pickle.dumps(info.value))
            assert vars(again) == vars(info.value)
    assert caplog.text.count(f"is build {program} of shardtool") == int(warned)


def test_binary(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which program is started, and the errors if it cannot be."""
    from shardtool._wire import program

    for path, words in [(tmp_path, "no program"), (tmp_path / "none", "no program"), ("/bin/true", "one version")]:
        monkeypatch.setenv("SHARDTOOL_BINARY", str(path))
        with Loader(small, 1) as loader, pytest.raises(shardtool.BinaryError, match=words):
            iter(loader)
    (tmp_path / "shardtool").write_text("#!/none\n")
    (tmp_path / "shardtool").chmod(0o755)
    monkeypatch.setenv("SHARDTOOL_BINARY", str(tmp_path / "shardtool"))
    with Loader(small, 1) as loader, pytest.raises(shardtool.BinaryError, match="does not start"):
        iter(loader)
    monkeypatch.delenv("SHARDTOOL_BINARY")
    monkeypatch.setattr(program, "__file__", str(tmp_path / "package" / "wire" / "program.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.find() == str(tmp_path / "shardtool")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(shardtool.BinaryError, match="make build"):
        program.find()
    (tmp_path / "package" / "bin").mkdir(parents=True)
    (tmp_path / "shardtool").rename(tmp_path / "package" / "bin" / "shardtool")
    assert program.find() == str(tmp_path / "package" / "bin" / "shardtool")
