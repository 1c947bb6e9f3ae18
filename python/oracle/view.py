"""Views of a data set: section 9.15 of ORDER.md."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Union

from .limits import demand
from .words import U32, shuffle, words


class Subset(NamedTuple):
    """A view of chosen samples, each once in an epoch."""

    numbers: Sequence[int]  #: Of the chosen samples in storage order, ascending.

    @property
    def fixed(self) -> bool:
        """Whether all epochs have the same samples."""
        return True

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return len(self.numbers)

    def check(self, blocks: Sequence[int]) -> None:
        """Raises ConfigError if it is not a view of a table with these blocks."""
        n = self.numbers
        demand(len(n) > 0, "the view has no samples")
        demand(n[0] >= 0 and n[-1] < sum(blocks) and all(a < b for a, b in zip(n, n[1:])), "the samples of the view do not fit")

    def chosen(self, blocks: Sequence[int], key: int, epoch: int) -> "List[List[int]]":
        """Returns the samples of each block in an epoch."""
        out, at, end = [], 0, 0
        for n in blocks:
            end += n
            begin = at
            while at < len(self.numbers) and self.numbers[at] < end:
                at += 1
            out.append(list(self.numbers[begin:at]))
        return out


class Weighted(NamedTuple):
    """A view that draws samples by weight."""

    weights: Sequence[int]  #: u, of each sample in storage order.
    draws: int  #: n, of an epoch.

    @property
    def fixed(self) -> bool:
        """Whether all epochs have the same samples."""
        return False

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return self.draws

    def check(self, blocks: Sequence[int]) -> None:
        """Raises ConfigError if it is not a view of a table with these blocks."""
        u, total = self.weights, sum(self.weights)
        demand(len(u) == sum(blocks) and all(0 <= x < U32 for x in u), "the weights of the view do not fit")
        demand(0 < total < 2**63 and 0 < self.draws < 2**63, "the weights or draws of the view are out of their limits")
        first = 0
        for n in blocks:
            demand(-(-sum(u[first : first + n]) * self.draws // total) <= 2**20, "the view has too many draws in a block")
            first += n

    def chosen(self, blocks: Sequence[int], key: int, epoch: int) -> "List[List[int]]":
        """Returns the draws of each block in an epoch, in storage order."""
        total = sum(self.weights)
        low, high = (x for _, x in zip(range(2), words(key, 5, 0, epoch, 0)))
        phase = (low + (high << 32)) * total >> 64
        firsts, first = [], 0
        for n in blocks:
            firsts.append(first)
            first += n
        out: List[List[int]] = [[] for _ in blocks]
        taken = 0  # C
        for b in shuffle(range(len(blocks)), words(key, 5, 1, epoch, 0)):
            for sample in shuffle(range(firsts[b], firsts[b] + blocks[b]), words(key, 5, 2, epoch, b)):
                # The k of C·n ≤ k·T + φ < (C+u)·n.
                begin = max(0, -((phase - taken * self.draws) // total))
                taken += self.weights[sample]
                end = max(0, -((phase - taken * self.draws) // total))
                out[b] += [sample] * (end - begin)
            out[b].sort()
        return out


View = Union[Subset, Weighted]
