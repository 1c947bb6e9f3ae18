"""shardtool for PyTorch: a data set for DataLoader and StatefulDataLoader, and a prefetcher that
copies batches to a GPU ahead of time.

A plain loop needs neither: ``shardtool.Loader`` delivers tensors by itself.
"""

from __future__ import annotations

import sys
import typing

from .. import guesses

try:
    from .dataset import Dataset
    from .named import NamedBatch, state_of
    from .prefetch import Prefetcher
except ModuleNotFoundError as err:
    if (err.name or "").partition(".")[0] != "torch":
        raise
    text = f"shardtool.torch is for torch's DataLoader, and torch cannot be imported ({err}): install it, or use shardtool.Loader"
    raise ModuleNotFoundError(text, name="torch") from err

__all__ = ["Dataset", "NamedBatch", "Prefetcher", "state_of"]


def __getattr__(name: str) -> typing.Any:
    raise guesses.absent(__name__, name, __all__, sys._getframe(1))
