"""Losses of the sources of a mix, by which callbacks of trainers set its weights."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from .._read import steering
from ..errors import ConfigError
from ..loader import Loader
from .prefetch import Prefetcher

#: Gets the number of the step and the mean loss of each source that had samples in it, and returns
#: the weights of the sources, or None to leave them as they are.
OnLoss = Callable[[int, Dict[str, float]], Optional[Mapping[str, Any]]]


class Losses:
    """Collects the losses of samples and, after a step, sets the weights that a function makes of
    the mean of each source. Callbacks of trainers inherit from it.

    Args:
        loader: A ``shardtool.Loader`` of a mix, or a Prefetcher around it.
        on_loss: Gets the number of the step and the mean losses, by the names of the sources that
            had samples in it, over all ranks: all get the same. It returns the weights from the
            next batch on, as ``set_weights`` takes them, or None to leave them as they are. What it
            remembers belongs into the checkpoint, as the model does.
    """

    def __init__(self, loader: "Union[Loader, Prefetcher]", on_loss: OnLoss) -> None:
        super().__init__()
        base = loader._target if isinstance(loader, Prefetcher) else loader
        if not isinstance(base, Loader):
            raise ConfigError(
                f"weights are set by losses in a shardtool.Loader, or a Prefetcher around it, not in {type(base).__name__}: the workers of"
                " a DataLoader have read ahead of the loop"
            )
        self._loader, self._base, self._on_loss = loader, base, on_loss
        self._added: "List[Tuple[List[Any], torch.Tensor]]" = []

    def add(self, sources: "Union[Sequence[Any], torch.Tensor]", losses: torch.Tensor) -> None:
        """Adds the losses of samples, one for each, and their sources: ``batch.sources``, or
        ``batch.source_numbers``. Call it in the step; it waits for no device."""
        said, losses = list(sources), losses.detach().flatten()
        if len(said) != len(losses):
            raise ConfigError(f"add: {len(said)} sources and {len(losses)} losses: give one loss for each sample")
        self._added.append((said, losses))

    def _after(self, step: int) -> bool:
        """Sets weights after a step. Returns whether it did."""
        added, self._added = self._added, []
        names = [source["name"] for source in self._base._facts().get("sources", ())]
        sums: Dict[str, Tuple[float, int]] = {}
        for sources, losses in added:
            for source, loss in zip(sources, losses.tolist()):
                name = source if isinstance(source, str) else names[int(source)]
                total, count = sums.get(name, (0.0, 0))
                sums[name] = total + loss, count + 1
        weights = self._on_loss(step, steering.means(self._base, sums))
        if weights is None:
            return False
        self._loader.set_weights(weights)
        return True
