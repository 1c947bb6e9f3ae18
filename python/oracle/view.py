"""Views of a data set: section 9.15 of ORDER.md."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Sequence, Union

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
        phase = fraction(words(key, 5, 0, epoch, 0), total)
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


class Classed(NamedTuple):
    """A view that draws samples by class."""

    classes: Sequence[int]  #: Of each sample in storage order, from 1; 0: none.
    weights: Sequence[int]  #: g, of each class.
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
        total, sizes = sum(self.weights), self._sizes()
        demand(len(self.classes) == sum(blocks) and all(0 <= k <= len(self.weights) for k in self.classes), "the classes do not fit")
        demand(min(sizes, default=0) > 0 and min(self.weights) > 0, "the view has no class, or one without samples or weight")
        demand(total < 2**63 and 0 < self.draws < 2**63, "the weights or draws of the view are out of their limits")
        first = 0
        for n in blocks:
            own = self.classes[first : first + n]
            most = 0
            for k in sorted(set(own) - {0}):
                every, rest = divmod(-(-self.weights[k - 1] * self.draws // total), sizes[k - 1])
                s = rest * 2**64 // sizes[k - 1]
                most += own.count(k) * every - (-own.count(k) * s // 2**64)
            demand(most <= 2**20, "the view has too many draws in a block")
            first += n

    def _sizes(self) -> List[int]:
        sizes = [0] * len(self.weights)
        for k in self.classes:
            if k:
                sizes[k - 1] += 1
        return sizes

    def _quotas(self, key: int, epoch: int) -> List[int]:
        """Returns the draws of each class in an epoch."""
        total = sum(self.weights)
        phase = fraction(words(key, 5, 0, epoch, 0), total)
        quotas, before = [0] * len(self.weights), 0  # C
        for k in shuffle(range(len(self.weights)), words(key, 5, 3, epoch, 0)):
            after = before + self.weights[k]
            quotas[k] = (after * self.draws + phase) // total - (before * self.draws + phase) // total
            before = after
        return quotas

    def chosen(self, blocks: Sequence[int], key: int, epoch: int) -> "List[List[int]]":
        """Returns the draws of each block in an epoch, in storage order."""
        sizes, quotas = self._sizes(), self._quotas(key, epoch)
        starts = [max(fraction(words(key, 5, 4, epoch, k), 2**64), c) for k, c in enumerate(sizes)]
        taken = [0] * len(sizes)  # i
        firsts, first = [], 0
        for n in blocks:
            firsts.append(first)
            first += n
        out: List[List[int]] = [[] for _ in blocks]
        for b in shuffle(range(len(blocks)), words(key, 5, 1, epoch, 0)):
            line = shuffle(range(firsts[b], firsts[b] + blocks[b]), words(key, 5, 2, epoch, b))
            for k in set(self.classes[sample] - 1 for sample in line) - {-1}:
                own = [sample for sample in line if self.classes[sample] == k + 1]
                every, rest = divmod(quotas[k], sizes[k])
                s, i = rest * 2**64 // sizes[k], taken[k]
                taken[k] += len(own)
                more = (starts[k] + taken[k] * s) // 2**64 - (starts[k] + i * s) // 2**64
                out[b] += own * every + own[:more]
            out[b].sort()
        return out


def fraction(sequence: Iterator[int], n: int) -> int:
    """Returns x·n / 2^64, rounded down: x has the next two words, the low one first."""
    low, high = next(sequence), next(sequence)
    return (low + (high << 32)) * n >> 64


View = Union[Subset, Weighted, Classed]
