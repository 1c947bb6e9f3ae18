"""Notices the end of objects without losing an interrupt."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Deque, Dict, Generic, Iterator, List, TypeVar

T = TypeVar("T")


class _Ref(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("what",)
    what: Any


class Ends(Generic[T]):
    """What belongs to objects, until nothing refers to them any more.

    The callback of a weak reference runs wherever an object ends. Code in Python there could take
    an interrupt, which Python then only reports: Ctrl-C would be lost. So the callback is one in C
    that queues the reference, and the owner asks for what has ended. Any thread may drop objects.
    """

    def __init__(self) -> None:
        self._refs: Dict[int, _Ref] = {}
        self._ended: Deque[_Ref] = deque()

    def watch(self, thing: Any, what: T) -> None:
        """Begins to watch an object."""
        ref = _Ref(thing, self._ended.append)
        ref.what = what
        self._refs[id(ref)] = ref

    def ended(self) -> Iterator[T]:
        """Takes what belonged to the objects that have ended. Several threads may do so."""
        while True:
            try:
                ref = self._ended.popleft()
            except IndexError:
                return
            self._refs.pop(id(ref), None)
            yield ref.what

    def living(self) -> List[T]:
        """Returns what belongs to the objects whose end was not taken."""
        return [ref.what for ref in list(self._refs.values())]

    def __len__(self) -> int:
        return len(self._refs)
