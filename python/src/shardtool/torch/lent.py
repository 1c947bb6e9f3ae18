"""Batches that a worker of a DataLoader lends to the process of the loop: they stay where the
reader put them.

torch copies each tensor that a worker delivers into a file of its own, and sends all else through a
pipe. Instead, a worker sends where the memory of a batch is, and keeps it until the loop has
dropped all that refers to it. The loop says so by a byte of a table that both map.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import itertools
import mmap
import os
import threading
import weakref
from collections import deque
from multiprocessing import reduction
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from .._system import nameless
from .._wire.regions import Regions, Segment, file_of, map_file
from ..batch import Batch, Layout
from ..errors import ClosedError
from ..fields import Field
from .named import NamedBatch

#: The batches that a worker has lent at most. More of them are copied.
_MOST = 1024
#: Bytes up to which a tensor is sent in the message.
_SMALL = 16 << 10

_idents = itertools.count(1)


class Lender(Regions):
    """What the workers of one iterator have lent to this process."""

    def __init__(self, workers: int) -> None:
        self.ident = f"{os.getpid()}.{next(_idents)}"
        fd = nameless("shardtool-lent")
        os.ftruncate(fd, workers * _MOST)
        self._set_table(fd, workers * _MOST)
        self._segments: "Dict[Tuple[int, int], Tuple[Segment, Set[int]]]" = {}  # and the workers that may name them
        self._lock = threading.Lock()  # the thread that pins batches receives them too
        self._begin_regions()
        _lenders[self.ident] = self

    def __getstate__(self) -> Dict[str, Any]:
        return {"ident": self.ident, "file": reduction.DupFd(self.file), "size": len(self.table)}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.ident = state["ident"]
        self._set_table(state["file"].detach(), state["size"])

    def _set_table(self, fd: int, size: int) -> None:
        self.file, self.table = fd, mmap.mmap(fd, size)
        weakref.finalize(self, os.close, fd).atexit = False

    def borrow(self, message: "_Message") -> Any:
        """Returns the segment of a batch as a buffer."""
        with self._lock:
            self._settle_dropped()
            for gone in message.gone:
                workers = self._segments[gone][1]
                workers.remove(message.worker)
                if not workers:
                    del self._segments[gone]
            if message.file is not None:
                fd = message.file.detach()
                try:
                    if message.segment not in self._segments:
                        self._segments[message.segment] = map_file(fd, message.size), set()
                finally:
                    os.close(fd)
                self._segments[message.segment][1].add(message.worker)
            return self._buffer(self._segments[message.segment][0], (message.worker * _MOST + message.slot,))[0]

    def release(self, *place: int) -> None:
        """As Regions."""
        self.table[place[0]] = 1

    def close(self) -> None:
        """Drops the maps. Batches in use stay readable."""
        self._segments.clear()


#: Of the iterators in this process.
_lenders: "weakref.WeakValueDictionary[str, Lender]" = weakref.WeakValueDictionary()

os.register_at_fork(after_in_child=_lenders.clear)


class Later:
    """Stands for the list of a field of bytes or text, which the process of the loop makes."""


class _Message(NamedTuple):
    """What the process of the loop needs to find a batch."""

    lender: str
    worker: int
    segment: Tuple[int, int]
    size: int  # of the segment
    file: Optional[Any]  # of a segment that was not sent yet
    gone: List[Tuple[int, int]]  # segments that are not used any more
    slot: int
    place: Tuple[int, int, int]  # offset, length, samples
    columns: Tuple[Tuple[str, bool], ...]  # of the batch, and whether they are text
    values: List[Tuple[Any, Any]]


class Lending:
    """A worker's end."""

    def __init__(self, lender: Lender, worker: int) -> None:
        fcntl.lockf(lender.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, worker)  # the place of a worker of another iterator fails
        self._lender, self._worker = lender, worker
        self._first = worker * _MOST
        self._free: Deque[int] = deque(range(_MOST))
        self._lent: Dict[int, Any] = {}  # the buffers that the process of the loop uses, by slot
        self._told: Dict[Tuple[int, int], Any] = {}  # segments that it has: weak references to their maps
        #: Whether batches go to the DataLoader as they are.
        self.direct = False
        reduction.ForkingPickler.register(NamedBatch, self._reduced)

    def settle(self) -> None:
        """Takes back what the loop has dropped."""
        table, at, end = self._lender.table, self._first, self._first + _MOST
        while True:
            at = table.find(b"\1", at, end)
            if at < 0:
                return
            table[at] = 0
            slot = at - self._first
            del self._lent[slot]
            self._free.append(slot)

    def _reduced(self, batch: NamedBatch) -> Any:
        """Pickles a batch for the process of the loop."""
        of: Optional[Batch] = next((getattr(key, "batch", None) for key in batch), None)
        if of is not None and of._region is not None and of._buffer is not None and self.direct and self._free:
            values = [(key, _sent(of, key, value)) for key, value in batch.items()]
            if any(type(value) in (Later, _Within) for _, value in values):
                return _received, (self._message(of, values),)
        for key, value in batch.items():
            if type(value) is Later:
                assert of is not None
                batch[key] = of[key]
        return batch.__reduce_ex__(2)

    def _message(self, of: Batch, values: "List[Tuple[Any, Any]]") -> _Message:
        region, layout = of._region, of._layout
        assert region is not None and layout is not None
        segment: Tuple[int, int] = region.place[:2]  # type: ignore[assignment]
        gone = [one for one, mapped in self._told.items() if mapped() is None]
        for one in gone:
            del self._told[one]
        file = None
        if segment not in self._told:
            self._told[segment] = weakref.ref(region.mapped)
            file = reduction.DupFd(file_of(region.mapped))
        slot = self._free.popleft()
        self._lent[slot] = of._buffer
        columns = tuple((f.name, f.decode == "txt") for f in layout.fields)
        place = of._base, of._length, of.size
        return _Message(self._lender.ident, self._worker, segment, len(region.mapped), file, gone, slot, place, columns, values)


class _Within:
    """A tensor in the memory of the batch."""

    def __init__(self, tensor: torch.Tensor, offset: int) -> None:
        self.offset, self.dtype = offset, tensor.dtype
        self.shape: Tuple[int, ...] = tuple(tensor.shape)
        self.stride: Tuple[int, ...] = tensor.stride()

    def span(self) -> int:
        """Returns how many numbers lie between its first and its last one, both included."""
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride))

    def made(self, buffer: Any) -> torch.Tensor:
        """Returns the tensor."""
        flat = torch.frombuffer(buffer, dtype=self.dtype, count=self.span(), offset=self.offset)
        return flat.as_strided(self.shape, self.stride)


class _Copied:
    """A small tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        self.data, self.dtype, self.shape = bytearray(ctypes.string_at(tensor.data_ptr(), size)), tensor.dtype, tuple(tensor.shape)

    def made(self, buffer: Any) -> torch.Tensor:
        """Returns the tensor."""
        return torch.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)


def _sent(of: Batch, key: str, value: Any) -> Any:
    """Returns what is sent for a value."""
    if type(value) is list and value:
        cached = of._cache.get(key)
        layout = of._layout
        assert layout is not None
        # The elements cannot be changed, so that the same ones mean the same values.
        if (
            type(cached) is list and len(cached) == len(value) and all(map(_same, cached, value)) and key in layout.index
            and key not in layout.lists and layout.fields[layout.index[key]].decode in ("bytes", "txt") and of._keep is None
        ):  # fmt: skip
            return Later()
        return value
    plain = type(value) is torch.Tensor and value.device.type == "cpu" and value.layout == torch.strided
    if not plain or value.requires_grad or value.is_complex() or value.is_quantized or value.numel() == 0:
        return value
    within = _Within(value, value.data_ptr() - ctypes.addressof(of._buffer))
    if of._base <= within.offset and within.offset + within.span() * value.element_size() <= of._base + of._length:
        return within
    if value.numel() * value.element_size() <= _SMALL and value.is_contiguous():
        return _Copied(value)
    return value


def _same(one: object, other: object) -> bool:
    return one is other


@functools.lru_cache(8)
def _layout(columns: "Sequence[Tuple[str, bool]]") -> Layout:
    bytes(31 << 20)  # malloc keeps the memory of payloads from now on: see Batch; a DataLoader holds several batches
    return Layout([Field(name, "txt" if text else None) for name, text in columns], "torch")


def _received(message: _Message) -> NamedBatch:
    """Returns the batch, in the process of the loop."""
    lender = _lenders.get(message.lender)
    if lender is None:
        raise ClosedError("this batch is for the process that iterates the DataLoader, and its iterator has ended")
    buffer = lender.borrow(message)
    base, length, size = message.place
    batch: Batch = Batch._of(_layout(message.columns), buffer, base, length, size, 0, None)
    out = NamedBatch()
    for key, sent in message.values:
        if type(sent) is Later:
            out[key] = batch[str(key)]
        elif isinstance(sent, (_Within, _Copied)):
            out[key] = sent.made(buffer)
        else:
            out[key] = sent
    return out
