"""Random words and what they decide: section 9.4 of ORDER.md."""

from __future__ import annotations

import itertools
from typing import Iterator, List, Sequence, Tuple, TypeVar

T = TypeVar("T")

U32, U64 = 2**32, 2**64


def philox(counter: Sequence[int], key: Sequence[int]) -> Tuple[int, int, int, int]:
    """Philox4x32-10."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p, s = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (s >> 32) ^ c1 ^ k0, s % U32, (p >> 32) ^ c3 ^ k1, p % U32
        k0, k1 = (k0 + 0x9E3779B9) % U32, (k1 + 0xBB67AE85) % U32
    return c0, c1, c2, c3


def words(key: int, dom: int, lane: int, epoch: int, obj: int) -> Iterator[int]:
    """WORDS: an endless sequence of u32."""
    for block in itertools.count():
        yield from philox((block, obj, epoch, dom * 2**24 + lane), (key % U32, key // U32))


def bounded(n: int, sequence: Iterator[int]) -> int:
    """BOUNDED: a number of 0..n-1."""
    while True:
        m = next(sequence) * n
        if m % U32 >= (U32 - n) % n:
            return m // U32


def shuffle(values: Sequence[T], sequence: Iterator[int]) -> List[T]:
    """SHUFFLE, returned as a new list."""
    a = list(values)
    for i in range(len(a) - 1, 0, -1):
        j = bounded(i + 1, sequence)
        a[i], a[j] = a[j], a[i]
    return a
