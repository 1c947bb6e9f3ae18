"""Data sets in the pipelines of Grain, the input library of JAX programs, MaxText and torchtitan.

::

    import shardtool.grain

    ds = shardtool.grain.IterDataset("s3://bucket/train", 64, shuffle=True, fields=["x", "y"])
    for batch in ds.map(augment):
        train(batch["x"], batch["y"])

``IterDataset`` has the order of ``shardtool.Loader`` and its exact place. ``Source`` is for random
access, with Grain's own shuffle. ``restore`` continues a checkpoint on another number of processes.
Grain is imported when ``IterDataset`` or ``restore`` is used.
"""

import sys
from typing import TYPE_CHECKING, Any

from .. import guesses
from .checkpoints import restore
from .source import Source

if TYPE_CHECKING:
    from .dataset import IterDataset as IterDataset

__all__ = ["IterDataset", "Source", "restore"]


def __getattr__(name: str) -> Any:
    if name == "IterDataset":
        try:
            from .dataset import IterDataset
        except ModuleNotFoundError as err:
            if (err.name or "").partition(".")[0] != "grain":
                raise
            raise ImportError("shardtool.grain.IterDataset needs Grain, which is not installed: pip install grain") from err
        return IterDataset
    answer = "grain.MapDataset.source(shardtool.grain.Source(url)) has samples, shardtool.grain.IterDataset(url, batch_size) batches"
    raise guesses.absent(__name__, name, __all__, sys._getframe(1), answer)
