"""The arithmetic of a mix: where its batches begin, and how many an epoch has."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

#: Positions are below it: the end of a stream that has none.
NO_END = 2**63

#: Positions from the first on, before the second.
Range = Tuple[int, int]


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
    """Makes the plan of a mix from its checkpoint, if it has one, and from INFO.
    The next start leaves out the steps ``skip``."""
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
    """Adds a range to others. Ranges that meet become one."""
    apart = [r for r in ranges if r[1] < more[0] or more[1] < r[0]]
    met = [r for r in ranges if r not in apart]
    return sorted([*apart, (min([more[0], *(r[0] for r in met)]), max([more[1], *(r[1] for r in met)]))])
