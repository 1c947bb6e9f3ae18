"""Plain tars that another program changes while they are read."""

import mmap
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest
from conftest import run

import shardtool

SHM = Path("/dev/shm")  # a tmpfs, which sets no time when a page is written through a mapping


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Path]:
    """Samples of 4 KB, which hold their number again and again."""
    if not SHM.is_dir():
        pytest.skip("there is no tmpfs at /dev/shm")
    source = tmp_path / "source"
    source.mkdir()
    for i in range(300):
        (source / f"{i:06d}.bin").write_bytes(b"%08d" % i * 512)
    folder = Path(tempfile.mkdtemp(prefix="shardtool-test-", dir=SHM))
    run("pack", source, folder / "plain", "--format", "tar", "--block-size", "64KiB")
    time.sleep(0.1)  # a shard that has been there for a while
    yield folder / "plain"
    shutil.rmtree(folder)


def overwrite(path: Path) -> None:
    with open(path, "r+b") as f:
        f.write(bytes(os.path.getsize(path)))


def through_mapping(path: Path) -> None:
    """Puts the bytes of its first half in place of the second half."""
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as mapped:
        before = bytes(mapped)  # reads each page before it is written
        half = len(before) // 2
        mapped[half:] = before[: len(before) - half]


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(7))
    other.replace(path)


@pytest.mark.parametrize("change", [overwrite, through_mapping, cut, replace])
def test_change(plain: Path, change: Callable[[Path], None]) -> None:
    """A batch is right, or an error that names the block."""
    loader = shardtool.Loader(plain, 10, shuffle=True, seed=1, fields={"bin": "bytes"}, epochs=2, tuning=shardtool.Tuning(prefetch=1))
    batches = 0
    try:
        for epoch in range(2):
            loader.set_epoch(epoch)
            for batch in loader:
                for number, data in zip(batch.numbers, batch["bin"]):
                    assert bytes(data) == b"%08d" % number * 512
                if (batches := batches + 1) == 3:
                    change(plain / "data-000000.tar")
        assert batches == 60  # of a file that was not read again
    except shardtool.ShardtoolError as e:
        assert change is not replace and isinstance(e, shardtool.CorruptError) == (change is not cut), e
        assert "data-000000.tar" in str(e) and "block" in str(e)
    finally:
        loader.close()
