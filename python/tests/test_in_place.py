"""Plain tars that another program changes while they are read."""

import os
import time
from pathlib import Path
from typing import Callable

import pytest
from conftest import run

import shardtool


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Samples of 4 KB, which hold their number again and again."""
    source = tmp_path / "source"
    source.mkdir()
    for i in range(300):
        (source / f"{i:06d}.bin").write_bytes(b"%08d" % i * 512)
    run("pack", source, tmp_path / "plain", "--format", "tar", "--block-size", "64KiB")
    time.sleep(0.2)  # a file that changed just now is read
    return tmp_path / "plain"


def overwrite(path: Path) -> None:
    with open(path, "r+b") as f:
        f.write(bytes(os.path.getsize(path)))


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def mode(path: Path) -> None:
    path.chmod(0o600)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(7))
    other.replace(path)


@pytest.mark.parametrize("change", [overwrite, cut, mode, replace])
def test_change(plain: Path, change: Callable[[Path], None]) -> None:
    """A batch is right, or an error that names the block."""
    tuning = shardtool.Tuning(prefetch=1)
    loader = shardtool.Loader(plain, 10, shuffle=True, seed=1, fields={"bin": "bytes"}, tuning=tuning)
    batches = 0
    try:
        for batch in loader:
            for number, data in zip(batch.numbers, batch["bin"]):
                assert bytes(data) == b"%08d" % number * 512
            if (batches := batches + 1) == 3:
                change(plain / "data-000000.tar")
        assert batches == 30  # of a file that was read, or mapped and not changed
    except shardtool.CorruptError as e:
        assert change in (overwrite, cut), e
        assert "data-000000.tar" in str(e) and "block" in str(e)
    finally:
        loader.close()
