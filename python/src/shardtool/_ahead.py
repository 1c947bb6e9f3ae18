"""Decoding ahead of the loop."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, List, Optional, Sequence, Tuple

from ._run import Run, Taken
from .batch import Batch
from .fields import Field
from .images import Pending

#: Batches that are decoded, or being decoded, before the loop gets them.
_BATCHES = 3


class Ahead:
    """A run whose images threads decode before the loop asks for them. It has what a loader uses of
    a run. Batches are delivered in order, and an error of the run after the batches before it."""

    def __init__(self, run: Run, fields: Sequence[Field]) -> None:
        self.run = run
        self._fields = [(f.name, f.image._begun()) for f in fields if f.image is not None]
        self._queue: Deque[Tuple[Any, List[Tuple[str, Pending]]]] = deque()  # a batch or an error, and its images
        self._ledger: Optional[str] = None
        self._over = False

    client = property(lambda self: self.run.client)
    ident = property(lambda self: self.run.ident)
    started = property(lambda self: self.run.started)
    account = property(lambda self: self.run.account)

    def take(self, ledger: Optional[str]) -> Optional[Taken]:
        """As Run.take."""
        if not self._queue:
            self._push(self.run.take(self._ledger if self._ledger is not None else ledger))
        while len(self._queue) < _BATCHES and not self._over:
            try:
                taken = self.run.poll(self._ledger)
            except Exception as err:
                self._queue.append((err, []))
                self._over = True
                break
            if taken is False:
                break
            self._push(taken)
        taken, images = self._queue.popleft()
        if isinstance(taken, Exception):
            raise taken
        for name, pending in images:
            # The loop gets a batch with an image that cannot be decoded: the error is that of the
            # field, when it is used.
            if pending.error() is None:
                taken[0]._cache[name] = as_out(pending.result(), taken[0])
        return taken  # type: ignore[no-any-return]

    def _push(self, taken: Any) -> None:
        images = []
        if taken is None:
            self._over = True
        else:
            batch, _, self._ledger, _, _ = taken
            images = [(name, decoder.begin(batch.payloads(name), batch.seeds)) for name, decoder in self._fields]
        self._queue.append((taken, images))


def as_out(array: Any, batch: Batch) -> Any:
    """An array as the batch's others are. What a GPU decoded is a tensor already."""
    out = batch._layout.out if batch._layout is not None else "numpy"
    if out == "torch":
        import torch

        return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)
    return memoryview(array) if out == "bytes" else array
