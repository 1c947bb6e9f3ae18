"""Memory of this process that is reused: for images that are decoded, and for batches that are
copied because other processes map theirs too."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any, List, Tuple

from .._wire.ends import Ends

#: Buffers below this size are left to malloc.
_SMALL = 256 << 10


class Pool:
    """Memory for batches. When one is taken, buffers that nothing refers to any more are used
    again, or their memory goes back. Their pages are mapped already; mapping new ones costs as much
    as the copy. The pool keeps at most two unused buffers. One thread takes buffers; any may drop
    them."""

    def __init__(self) -> None:
        self._free: "List[Tuple[mmap.mmap, Any, int]]" = []
        self._live: "Ends[Tuple[mmap.mmap, Any, int]]" = Ends()

    def take(self, size: int) -> Any:
        """Returns a writable buffer of at least ``size`` bytes, with any content."""
        if size < _SMALL:
            return bytearray(size)
        self._settle()
        memory = self._find(size)
        anchor = memory[1].from_buffer(memory[0])
        self._live.watch(anchor, memory)
        return anchor

    def _settle(self) -> None:
        """Takes back the buffers that were dropped."""
        for memory in self._live.ended():
            if len(self._free) < 2:
                self._free.append(memory)

    def _find(self, size: int) -> "Tuple[mmap.mmap, Any, int]":
        for i, memory in enumerate(self._free):
            if size <= memory[2] <= 2 * size:
                return self._free.pop(i)
        if self._free:
            self._free.pop(0)  # the size of batches has changed
        unit = 1 << (size.bit_length() - 4)  # also fits batches of nearly the same size
        size = (size + unit - 1) // unit * unit
        mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # the kernel may lack huge pages
                mapped.madvise(mmap.MADV_HUGEPAGE)
        return mapped, ctypes.c_char * size, size


def move(into: Any, mapped: mmap.mmap, start: int, size: int) -> None:
    """Copies bytes of a segment. Other threads run meanwhile."""
    pieces = ctypes.c_char.from_buffer(into), ctypes.c_char.from_buffer(mapped, start)  # they keep the memory alive
    ctypes.memmove(ctypes.addressof(pieces[0]), ctypes.addressof(pieces[1]), size)
