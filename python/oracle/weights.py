"""Weights of a mix, and the memory of its sources: section 9.13 of ORDER.md. Exact: no floating
point."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import List, NamedTuple, Sequence

from .limits import demand

QUANTUM = 2**32


def parse_share(text: str) -> Fraction:
    """Parses the share in a mix file: a decimal such as 0.6, or a fraction such as 1/3."""
    demand(len(text) <= 48 and re.fullmatch(r"[0-9]+(\.[0-9]+|/0*[1-9][0-9]*)?", text) is not None, f"weight {text[:60]!r}: not a share")
    return Fraction(text)


def quantize(shares: Sequence[Fraction]) -> List[int]:
    """Returns weights with the sum 2^32, by largest remainder."""
    total = sum(shares)
    demand(total > 0 and min(shares) >= 0, "all weights are 0, or one is negative")
    exact = [QUANTUM * share / total for share in shares]
    weights = [int(x) for x in exact]
    by_rest = sorted(range(len(shares)), key=lambda i: (weights[i] - exact[i], i))
    for i in by_rest[: QUANTUM - sum(weights)]:
        weights[i] += 1
    demand(all(w > 0 or share == 0 for w, share in zip(weights, shares)), "a positive weight becomes 0")
    return weights


def temperature_share(samples: int, p: int, q: int) -> int:
    """Returns the share that a temperature p/q gives a source: 10^9 times samples to the power of
    p/q, rounded down."""
    demand(0 <= p <= q and 1 <= q <= 16, f"temperature {p}/{q}: out of its limits")
    power, low, high = (10**9) ** q * samples**p, 0, 10**9 * samples + 1
    while high - low > 1:  # low^q <= power < high^q
        middle = (low + high) // 2
        low, high = (middle, high) if middle**q <= power else (low, middle)
    return low


def per_token(share: Fraction, tokens: int, samples: int) -> Fraction:
    """Turns a share of tokens into one of samples; tokens is the sum over all its samples."""
    demand(share == 0 or tokens > 0, "a share of tokens, but the source has no tokens")
    return share * samples / tokens if share else share


class Need(NamedTuple):
    """What a source needs of the shuffle memory."""

    decoded: int  #: Bytes of all its units, decoded.
    units: int
    share: Fraction  #: The largest one over the segments.
    least: int  #: Bytes of five of its runs.


def divide(memory: int, needs: Sequence[Need]) -> List[int]:
    """Divides the shuffle memory among the sources."""
    demand(sum(n.least for n in needs) <= memory, f"the shuffle memory is too small: {sum(n.least for n in needs)} bytes would do")
    wants = [Fraction(n.decoded, n.units) * n.share if n.units else Fraction(0) for n in needs]
    small: List[int] = []
    while True:
        rest = memory - sum(needs[s].least for s in small)
        total = sum(w for s, w in enumerate(wants) if s not in small)
        parts = [n.least if s in small else int(rest * wants[s] / total) if total else 0 for s, n in enumerate(needs)]
        more = [s for s, n in enumerate(needs) if parts[s] < n.least]
        if not more:
            return parts
        small += more
