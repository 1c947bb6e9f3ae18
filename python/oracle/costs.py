"""Costs of samples, and batches that are split by them: section 9.17 of ORDER.md."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from .limits import demand

TOKEN = re.compile(r'[ \t\r\n]*(?:([0-9.]+)|([A-Za-z_\x80-\U0010ffff][A-Za-z0-9_.\x80-\U0010ffff]*)|"((?:[^"]|"")+)"|(.))')

#: An expression, as a function of the values of attributes.
Expression = Callable[[Mapping[str, int]], Fraction]


def tokens_of(text: str) -> List[Tuple[str, str]]:
    """Returns (kind, text) of the tokens, and ("", "") at the end."""
    found = []
    for number, name, quoted, symbol in TOKEN.findall(text.strip(" \t\r\n")):
        kind = "number" if number else "name" if name or quoted else "symbol"
        found.append((kind, number or name or quoted.replace('""', '"') or symbol))
    return [*found, ("", "")]


class Reader:
    """Reads an expression by its grammar."""

    def __init__(self, text: str) -> None:
        self.left = tokens_of(text)[::-1]

    def symbol(self, of: str) -> str:
        """Takes one of some symbols; empty if none of them is next."""
        kind, text = self.left[-1]
        if kind == "symbol" and text in of:
            self.left.pop()
            return text
        return ""

    def sum(self) -> Expression:
        """A sum of products."""
        out = self.product()
        while True:
            op = self.symbol("+-")
            if not op:
                return out
            out = joined(out, op, self.product())

    def product(self) -> Expression:
        """A product or quotient of terms with signs."""
        out = self.signed()
        while True:
            op = self.symbol("*/")
            if not op:
                return out
            out = joined(out, op, self.signed())

    def signed(self) -> Expression:
        """A term with signs, and its exponent."""
        op = self.symbol("+-")
        if op:
            of = self.signed()
            return (lambda values: -of(values)) if op == "-" else of
        base = self.term()
        if not self.symbol("^"):
            return base
        kind, text = self.left.pop()
        demand(kind == "number" and text.isdecimal() and int(text) <= 16, f"an exponent of {text!r}")
        return lambda values: base(values) ** int(text)

    def term(self) -> Expression:
        """A number, a name, or parentheses."""
        kind, text = self.left.pop()
        if kind == "number":
            demand(text.count(".") <= 1 and text != "." and len(text) <= 40, f"the number {text!r}")
            number = Fraction(text if text[-1] != "." else text[:-1])
            return lambda values: number
        if kind == "name":
            return lambda values: Fraction(values[text])
        demand((kind, text) == ("symbol", "("), f"{text!r} where a number, a name or a parenthesis is expected")
        out = self.sum()
        demand(self.symbol(")") != "", "a parenthesis that is not closed")
        return out


def joined(a: Expression, op: str, b: Expression) -> Expression:
    """Returns the expression of an operator between two others."""

    def both(values: Mapping[str, int]) -> Fraction:
        x, y = a(values), b(values)
        if op == "/":
            demand(y != 0, "a division by 0")
            return x / y
        return x + y if op == "+" else x - y if op == "-" else x * y

    return both


def cost_of(text: str, values: Mapping[str, int]) -> int:
    """9.17, Costs: the cost of a sample, in units of 2^-16."""
    reader = Reader(text)
    value = reader.sum()(values)
    demand(reader.left == [("", "")], f"{text!r} goes on after its end")
    demand(value >= 0, "a cost below 0")
    cost = (2 * value * 2**16 + 1) // 2
    demand(cost < 2**63, "a cost of 2^47 or more")
    return int(cost)


def split_by_cost(costs: Sequence[int], real: int, world_size: int, group: int, micro: int = 1) -> List[List[int]]:
    """9.17, The split and Micro-batches: the places of each rank in a global batch whose first
    ``real`` entries are no padding."""
    demand(group >= 1 and world_size % group == 0, f"groups of {group} of {world_size} ranks")
    demand(1 <= micro <= 4096, f"{micro} micro-batches")
    listed, ranks = len(costs), []

    def begins(part: int, parts: int) -> int:
        return part * listed // parts

    def deal(places: Sequence[int], room: Mapping[int, int]) -> Dict[int, List[int]]:
        """Deals places to parts that have room."""
        out: Dict[int, List[int]] = {part: [] for part in room}
        sums = dict.fromkeys(out, 0)
        for k in sorted(places, key=lambda k: (k >= real, -costs[k] if k < real else 0, k)):
            to = min((part for part in out if len(out[part]) < room[part]), key=lambda part: (sums[part], part))
            out[to].append(k)
            sums[to] += costs[k] if k < real else 0
        return {part: sorted(out[part]) for part in out}

    for first in range(0, world_size, group):
        room = {r: begins(r + 1, world_size) - begins(r, world_size) for r in range(first, first + group)}
        places = range(begins(first, world_size), begins(first + group, world_size))
        for rank, own in deal(places, room).items():
            whole = [k for k in own if k < real]
            ends = [begins(rank * micro + m, world_size * micro) - begins(rank, world_size) for m in range(micro + 1)]
            cut = [min(end, len(whole)) for end in ends]
            divided = deal(whole, {m: cut[m + 1] - cut[m] for m in range(micro)})
            ranks.append([k for m in range(micro) for k in divided[m]] + [k for k in own if k >= real])
    return ranks
