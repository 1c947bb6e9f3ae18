"""shardtool: training data in compressed shards, shuffled, split over ranks, resumable at the exact
sample.

::

    import shardtool

    fields = {"jpg": "bytes", "cls": "int"}
    loader = shardtool.Loader("out/", batch_size=64, shuffle=True, seed=7, fields=fields)
    for batch in loader:
        train(batch["jpg"], batch["cls"])

The program ``shardtool`` does the work in a child process. The package needs only Python; numpy and
torch are used on request.
"""

from typing import TYPE_CHECKING, Any

from .batch import Batch
from .errors import (
    BinaryError,
    CheckpointError,
    ClosedError,
    ConfigError,
    CorruptError,
    DataError,
    DecodeError,
    EncodeError,
    ExistsError,
    HeldError,
    KeyNotFoundError,
    NotFoundError,
    ServerDiedError,
    ShardtoolError,
    SkippedError,
    VersionError,
)
from .images import Image
from .layer import Layer
from .loader import Loader
from .options import Faults, Order, Tuning
from .read.states import merge_states
from .read.units import Bucket, Pack
from .samples import Sample, Samples, open
from .sources import Mix, Source
from .stats import SourceStats, Stalls, Stats
from .wire.program import package_version
from .write.annotate import annotate
from .write.optimize import optimize
from .writer import Writer

if TYPE_CHECKING:
    from .torch import Dataset as Dataset  # not in __all__, which must not need torch

__all__ = [
    "Batch",
    "BinaryError",
    "Bucket",
    "CheckpointError",
    "ClosedError",
    "ConfigError",
    "CorruptError",
    "DataError",
    "DecodeError",
    "EncodeError",
    "ExistsError",
    "Faults",
    "HeldError",
    "Image",
    "KeyNotFoundError",
    "Layer",
    "Loader",
    "Mix",
    "NotFoundError",
    "Order",
    "Pack",
    "Sample",
    "Samples",
    "ServerDiedError",
    "ShardtoolError",
    "SkippedError",
    "Source",
    "SourceStats",
    "Stalls",
    "Stats",
    "Tuning",
    "VersionError",
    "Writer",
    "annotate",
    "merge_states",
    "open",
    "optimize",
]


def __getattr__(name: str) -> Any:
    if name == "Dataset":  # torch is imported on first use
        try:
            from .torch import Dataset
        except ImportError as err:
            raise AttributeError(
                f"shardtool.Dataset is for torch's DataLoader, and torch cannot be imported ({err}): install it, or use shardtool.Loader"
            ) from err
        return Dataset
    if name == "__version__":
        return package_version() or "0+unknown"  # a source tree in PYTHONPATH
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
