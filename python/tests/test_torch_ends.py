"""What is left of data sets and prefetchers when they are let go of, and at the end of the
process."""

from __future__ import annotations

import gc
from pathlib import Path

from conftest import children
from test_robust import script, until
from torch.utils.data import DataLoader
from torch_help import make

from shardtool import Loader
from shardtool.torch import Prefetcher

AT_EXIT = """
import os, sys, shardtool
from torch.utils.data import DataLoader
ds = shardtool.Dataset(sys.argv[1], 100, fields=["txt"])
iterator = iter(DataLoader(ds, batch_size=None, num_workers=1))
next(iterator)
os.keeps = ds  # a module that is taken apart after shardtool's own
"""


def test_silent_at_exit(small: Path) -> None:
    """A data set that is alive when Python takes its modules apart is no error."""
    process = script(AT_EXIT, small)
    out, err = process.communicate(timeout=300)
    assert (out, err, process.returncode) == ("", "", 0)


def test_child_ends_with_its_owner(small: Path) -> None:
    """The child ends when the last reference is dropped, without a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        ds = make(small)
        loader = DataLoader(ds, batch_size=None)
        batch = next(iter(loader))
        prefetcher = Prefetcher(Loader(small, 100), "cpu")
        another = next(iter(prefetcher))
        direct = make(small)
        for _ in direct:
            break
        assert len(children()) == 3
        del ds, loader, prefetcher, direct
        until(lambda: children() == [])  # the prefetcher's thread ends first
        assert batch["n"].shape == (100,) and len(another["txt"]) == 100
    finally:
        gc.enable()
