"""Memory of another process that this one maps: which parts of it this process still refers to."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import threading
import time
import weakref
from typing import Any, Dict, List, Optional, Tuple

from .ends import Ends

_MAP_FIXED = 0x10

_numbers = itertools.count(1)

#: A mapped file, and the type of a buffer over all of it.
Segment = Tuple[mmap.mmap, Any]


class Region:
    """A region that this process, or one that it forked, may refer to."""

    __slots__ = ("given", "mapped", "number", "owner", "pins", "place")

    def __init__(self, owner: "Regions", mapped: mmap.mmap, place: Tuple[int, ...]) -> None:
        self.owner, self.number = owner._me, owner.number
        self.mapped, self.place = mapped, place
        self.pins = 0  # forked processes that may refer to it
        #: Whether another process has it now, which releases it.
        self.given = False


class Regions:
    """The regions of one other process that this one has. A region is released when nothing refers
    to its buffer any more: no memoryview, array or tensor. Any thread may drop buffers.

    A forked process may refer to the regions that were in use then. They stay as they are until it
    has ended.
    """

    def _begin_regions(self) -> None:
        #: Tells it from others of this process.
        self.number = next(_numbers)
        self._me = weakref.ref(self)
        self._live: Ends[Region] = Ends()
        self._owed: Dict[Tuple[int, ...], Region] = {}  # regions that only forked processes may refer to
        self._forks: List[_Fork] = []
        self._look = 0.0  # when to look next whether they have ended
        _all.add(self)

    def release(self, *place: int) -> None:
        """Gives a region back."""
        raise NotImplementedError

    def _buffer(self, segment: Segment, place: Tuple[int, ...]) -> "Tuple[Any, Region]":
        """Returns the segment as a buffer, and the region that is released with it."""
        mapped, kind = segment
        # numpy skips chains of its own arrays, so the weak reference is to the lowest object.
        anchor = kind.from_buffer(mapped)
        region = Region(self, mapped, place)
        self._live.watch(anchor, region)
        return anchor, region

    def _settle_dropped(self) -> None:
        """Releases the regions that nothing refers to any more."""
        for region in self._live.ended():
            if region.given:
                continue
            if region.pins:
                self._owed[region.place] = region
                self._settle(region)
            else:
                self.release(*region.place)
        if self._owed and time.monotonic() > self._look:
            self._unpin()

    def _settle(self, region: Region) -> None:
        if region.pins == 0 and self._owed.pop(region.place, None) is not None:
            self.release(*region.place)

    def _pin(self) -> Optional[int]:
        """Keeps the regions in use as they are, for a process that is about to be forked. Returns a
        descriptor to close in this process after that."""
        self._settle_dropped()
        self._unpin()
        regions = self._live.living()
        if not regions:
            return None
        try:
            ended, theirs = os.pipe()
        except OSError:  # too many files are open: they stay until this process drops all of them
            ended, theirs = -1, None
        for region in regions:
            region.pins += 1
        self._forks.append(_Fork(ended, regions))
        return theirs

    def _unpin(self) -> None:
        """Releases regions that forked processes which have ended referred to."""
        self._look = time.monotonic() + 1
        for fork in list(self._forks):
            if fork.over():
                self._forks.remove(fork)
                for region in fork.regions:
                    region.pins -= 1
                    self._settle(region)


class _Fork:
    """The regions that a forked process may refer to. It and all that it forks have the other end
    of a pipe, which ends with them."""

    def __init__(self, ended: int, regions: List[Region]) -> None:
        self.regions, self._ended = regions, ended
        if ended >= 0:
            os.set_blocking(ended, False)
            weakref.finalize(self, os.close, ended).atexit = False

    def over(self) -> bool:
        """Whether they have ended."""
        try:
            return self._ended >= 0 and not os.read(self._ended, 1)
        except BlockingIOError:
            return False


#: The maps of this process, and their files.
_maps: "weakref.WeakKeyDictionary[mmap.mmap, int]" = weakref.WeakKeyDictionary()


def map_file(fd: int, length: int) -> Segment:
    """Maps a file, shared, for reading and writing."""
    mapped = mmap.mmap(fd, length)
    _maps[mapped] = fd = os.dup(fd)
    weakref.finalize(mapped, os.close, fd).atexit = False
    return mapped, ctypes.c_char * length


def file_of(mapped: mmap.mmap) -> int:
    """Returns the file of a map."""
    return _maps[mapped]


_all: "weakref.WeakSet[Regions]" = weakref.WeakSet()

#: The ends of pipes of processes that are about to be forked, by thread.
_forking: Dict[int, List[int]] = {}


def _before_fork() -> None:
    found = [regions._pin() for regions in list(_all)]
    _forking[threading.get_ident()] = [theirs for theirs in found if theirs is not None]


def _after_fork_in_parent() -> None:
    for theirs in _forking.pop(threading.get_ident(), ()):
        os.close(theirs)


def _after_fork_in_child() -> None:
    """Makes the maps of this process its own: what it writes stays here."""
    _forking.clear()
    _all.clear()
    maps = list(_maps.items())
    if not maps:
        return
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    for mapped, fd in maps:
        at = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc.mmap(at, len(mapped), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED, fd, 0)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
