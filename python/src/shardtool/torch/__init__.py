"""shardtool for PyTorch: a data set for DataLoader and StatefulDataLoader, and a prefetcher that
copies batches to a GPU ahead of time.

A plain loop needs neither: ``shardtool.Loader`` delivers tensors by itself.
"""

from __future__ import annotations

from .dataset import Dataset
from .named import NamedBatch, state_of
from .prefetch import Prefetcher

__all__ = ["Dataset", "NamedBatch", "Prefetcher", "state_of"]
