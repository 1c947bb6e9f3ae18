"""Copies of batches in memory of this process: each byte is copied once, into memory that is
reused."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from typing import Any, Dict, List, Optional, Tuple

from ..wire import protocol as proto

#: Payloads of a column as bytes objects; None where a sample has none.
Values = List[Optional[bytes]]

#: Buffers below this size are left to malloc.
_SMALL = 256 << 10


class _Ref(weakref.ref):  # type: ignore[type-arg]
    """Reports when nothing refers to a buffer any more."""

    __slots__ = ("memory",)
    memory: "Tuple[mmap.mmap, Any, int]"


class Pool:
    """Memory for copies. A buffer returns to the pool when nothing refers to it any more. Its pages
    are then mapped already; mapping new ones costs as much as the copy. The pool keeps at most two
    unused buffers. One thread takes buffers; any thread may drop them."""

    def __init__(self) -> None:
        self._free: "List[Tuple[mmap.mmap, Any, int]]" = []
        self._live: "Dict[int, _Ref]" = {}

    def take(self, size: int) -> Any:
        """Returns a writable buffer of at least ``size`` bytes, with any content."""
        if size < _SMALL:
            return bytearray(size)
        memory = self._find(size)
        anchor = memory[1].from_buffer(memory[0])
        free, live = self._free, self._live

        def gone(ref: Any) -> None:
            live.pop(id(ref), None)
            if len(free) < 2:
                free.append(ref.memory)

        ref = _Ref(anchor, gone)
        ref.memory = memory
        live[id(ref)] = ref
        return anchor

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


def move(into: Any, at: int, mapped: mmap.mmap, start: int, size: int) -> None:
    """Copies bytes of a segment. A large copy lets other threads run."""
    if size < _SMALL:
        with memoryview(mapped) as source, memoryview(into).cast("B") as target:
            target[at : at + size] = source[start : start + size]
        return
    pieces = ctypes.c_char.from_buffer(into, at), ctypes.c_char.from_buffer(mapped, start)  # they keep the memory alive
    ctypes.memmove(ctypes.addressof(pieces[0]), ctypes.addressof(pieces[1]), size)


class Owner:
    """Copies batches out of the shared memory. Fields that are delivered as bytes become bytes
    objects at once, without another copy."""

    def __init__(self, whole: bool, direct: "List[int]") -> None:
        self._pool = Pool()
        self._direct = [] if whole else direct
        self._heap = 0

    def copy(self, mapped: mmap.mmap, base: int, length: int, size: int) -> "Tuple[Any, int, Dict[int, Values], Dict[int, int]]":
        """Copies a batch of ``size`` samples. Returns the buffer, the number of bytes used in it,
        the columns that are not in it, and for each other column how far its data moved towards the
        end."""
        if not self._direct:
            buffer = self._pool.take(length)
            move(buffer, 0, mapped, base, length)
            return buffer, length, {}, {}
        facts = proto.header.unpack_from(mapped, base)
        rows = [proto.row.unpack_from(mapped, base + facts[16] + proto.ROW * i) for i in range(facts[8])]
        # Tables and keys come first.
        head = total = min(row[4] for row in rows)
        own: "Dict[int, Values]" = {}
        shifts: Dict[int, int] = {}
        for i, row in enumerate(rows):
            if i in self._direct:
                self._keep(row[5])
                own[i] = values(mapped, base, row, size)
            else:
                total += -total % 64
                shifts[i] = total - row[4]
                total += row[5]
        buffer = self._pool.take(total)
        move(buffer, 0, mapped, base, head)
        for i, shift in shifts.items():
            move(buffer, rows[i][4] + shift, mapped, base + rows[i][4], rows[i][5])
        return buffer, total, own, shifts

    def _keep(self, size: int) -> None:
        """Makes malloc keep the memory of a batch's payloads, as glibc does after a block of that
        size was freed. Otherwise it returns the memory to the system and takes it again for every
        batch."""
        if size > self._heap:
            self._heap = size + size // 4
            bytes(min(self._heap, 31 << 20))


def values(mapped: mmap.mmap, base: int, row: "Tuple[int, ...]", size: int) -> Values:
    """Copies the payloads of a column of bytes."""
    with memoryview(mapped) as whole:
        flat = whole[base + row[6] : base + row[6] + 16 * size].cast("q").tolist()
    if row[1] & proto.ABSENT:
        return [None if n < 0 else mapped[base + at : base + at + n] for at, n in zip(flat[::2], flat[1::2])]
    starts = [base + at for at in flat[::2]]  # payloads are contiguous
    ends = starts[1:]
    ends.append(base + row[4] + row[5])
    return [mapped[start:end] for start, end in zip(starts, ends)]
