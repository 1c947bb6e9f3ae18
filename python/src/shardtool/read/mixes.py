"""Mixes: several data sets as one stream, given by the path of a mix file, or by a dict with the
same members."""

from __future__ import annotations

import decimal
import json
import numbers
import operator
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ..errors import ConfigError

#: Positions are below it: the end of a stream that has none.
NO_END = 2**63

#: Positions from the first on, before the second.
Range = Tuple[int, int]


def text_of(mix: Mapping[str, Any]) -> str:
    """The text of a mix file with the members of a dict."""
    try:
        return json.dumps(_plain(mix), ensure_ascii=False)
    except ValueError as err:  # a dict in itself, or a number that is none
        raise ConfigError(f"the mix cannot be written as JSON: {err}") from None


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it. Numbers that are no whole numbers become exact decimals or
    fractions in text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if hasattr(value, "__index__"):
        return operator.index(value)
    if isinstance(value, numbers.Rational):
        return f"{value.numerator}/{value.denominator}"
    exact = decimal.Decimal(repr(float(value))) if isinstance(value, numbers.Real) else value
    if isinstance(exact, decimal.Decimal) and exact.is_finite():
        return format(exact, "f")
    raise ConfigError(f"the mix has {value!r}: give text, numbers, lists and dicts")


def name_of(mix: Mapping[str, Any]) -> str:
    """Describes a mix by its sources."""
    sources = mix.get("sources")
    return f"mix of {', '.join(sorted(map(str, sources)))}" if isinstance(sources, Mapping) else "mix"


def opening(url: Union[str, os.PathLike[str], Mapping[str, Any]], change_mix: bool) -> Dict[str, Any]:
    """The members of OPEN that only mixes have. Relative paths in the mix start at the current
    directory, wherever the child process starts later."""
    if isinstance(url, Mapping):
        return {"mix": text_of(url), "directory": os.getcwd(), "change_mix": change_mix}
    if os.fsdecode(url).endswith((".yaml", ".yml", ".json")):
        return {"directory": os.getcwd(), "change_mix": change_mix}
    return {}


class Plan(NamedTuple):
    """The parts of a mix that its batches depend on."""

    epoch: int  #: Samples of an epoch.
    end: int  #: The position where the stream ends.
    tail: str
    size: int  #: Of a global batch.
    left_out: Sequence[Range] = ()

    def beginning(self, position: int) -> int:
        """Where the batch after a position begins (ORDER.md 9.13)."""
        while True:
            was = position
            for low, high in self.left_out:
                if low <= position < high:
                    position = high
            left = self.epoch - position % self.epoch
            if self.tail == "drop" and left < self.size:
                position += left
            if position == was:
                return position

    def batches(self, position: int) -> int:
        """The number of batches of the epoch of a position: those before it, and those from it
        on."""
        begin = position - position % self.epoch
        ends = min(begin + self.epoch, self.end)
        passed = sum(max(0, min(high, position) - max(low, begin)) for low, high in self.left_out)
        cut = self.tail in ("short", "pad")  # the end of a stream cuts batches
        count, at = (position - begin - passed + cut * (self.size - 1)) // self.size, self.beginning(position)
        while at < ends:
            stop = min([ends, *(low for low, _ in self.left_out if low > at)])
            more = self._steps(stop - at)
            if self.tail == "wrap":  # no sources are left to complete a batch at the end of the stream
                more = min(more, (self.end - at) // self.size)
            if more <= 0:
                break
            count += more
            at = self.beginning(min(at + more * self.size, stop))
        return count

    def place(self, steps: Tuple[int, int], step: int) -> int:
        """The position of a step, counted from the last change of the batch size: its step and
        position."""
        n, origin = step - steps[0], steps[1]
        if self.tail == "wrap":
            return origin + n * self.size
        each, left = self._steps(self.epoch), self.epoch - origin % self.epoch
        if n >= self._steps(left) and each > 0:
            n, origin = n - self._steps(left), origin + left
            origin, n = origin + n // each * self.epoch, n % each
        return origin + n * self.size

    def _steps(self, samples: int) -> int:
        return samples // self.size if self.tail == "drop" else -(-samples // self.size)

    def next(self, steps: Tuple[int, int], position: int) -> int:
        """The step after a batch that ended at a position, which the end of the stream may have
        cut."""
        step = self.step(steps, position)
        return step + (self.place(steps, step) < position)

    def step(self, steps: Tuple[int, int], position: int) -> int:
        """The step that a position lies in."""
        n, left = position - steps[1], self.epoch - steps[1] % self.epoch
        if self.tail == "wrap" or n < left:
            return steps[0] + n // self.size
        n -= left
        return steps[0] + self._steps(left) + n // self.epoch * self._steps(self.epoch) + n % self.epoch // self.size


def plan_of(said: Optional[Mapping[str, Any]], info: Mapping[str, Any], tail: str, size: int, skip: Optional[Tuple[int, int]]) -> Plan:
    """Makes the plan of a mix from the members of its checkpoint, if it has one, and those of INFO.
    The steps ``skip`` are those that the next start leaves out."""
    if said is None:
        plan, steps = Plan(int(info["epoch_length"]), int(info.get("end", NO_END)), tail, size), (0, 0)
    else:
        left_out = [(low, high) for low, high in said["left_out"]]
        plan = Plan(int(said["epoch_length"]), int(info.get("end", NO_END)), tail, size, left_out)
        steps, was, position = tuple(said["steps"]), int(said["global_batch"]), int(said["position"])
        if was:
            before = plan._replace(size=was)
            begun = before.next(steps, position)
            if was != size or begun != before.step(steps, position):
                steps = begun, position
    if skip is None or skip[1] < steps[0]:
        return plan
    return plan._replace(left_out=join(plan.left_out, (plan.place(steps, max(skip[0], steps[0])), plan.place(steps, skip[1] + 1))))


def join(ranges: Sequence[Range], more: Range) -> List[Range]:
    """Adds a range to others. Those that meet become one."""
    apart = [r for r in ranges if r[1] < more[0] or more[1] < r[0]]
    met = [r for r in ranges if r not in apart]
    return sorted([*apart, (min([more[0], *(r[0] for r in met)]), max([more[1], *(r[1] for r in met)]))])
