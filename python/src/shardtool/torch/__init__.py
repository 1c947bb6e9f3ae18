"""shardtool for PyTorch: a data set for DataLoader and StatefulDataLoader, and a prefetcher that
copies batches to a GPU ahead of time.

A plain loop needs neither: ``shardtool.Loader`` delivers tensors by itself.
"""

from __future__ import annotations

from ._named import NamedBatch, state_of
from .dataset import Dataset
from .prefetch import Prefetcher

__all__ = ["Dataset", "NamedBatch", "Prefetcher", "state_of"]
