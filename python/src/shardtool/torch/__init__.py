"""shardtool for PyTorch: a data set for DataLoader and StatefulDataLoader, and a prefetcher that copies batches to a GPU ahead of time.

``shardtool.Loader`` by itself gives tensors to a plain loop and needs nothing of this.
"""

from __future__ import annotations

from ._named import NamedBatch, state_of
from .dataset import Dataset
from .prefetch import Prefetcher

__all__ = ["Dataset", "NamedBatch", "Prefetcher", "state_of"]
