"""Samples as the child of a writer takes them: runs of samples with the same fields."""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

from ..samples import Sample
from .columns import key_bytes
from .encode import Encoder, Misfit, Slot, Slots, fail

#: The length of a key that is left out, and the layout of a mark.
ABSENT = 0xFFFFFFFF

#: Bytes that a shard has for each member besides its payload, approximately.
MEMBER = 1 << 10


class Kind(NamedTuple):
    """What the samples of a run have. It can be sent to another process."""

    fields: Tuple[Tuple[str, str], ...]  #: names and types, in ascending order of names
    attrs: Tuple[Tuple[str, str], ...]  #: names and kinds


class Run(NamedTuple):
    """Samples of one kind."""

    kind: Kind
    samples: int
    data: bytes


class _Plan:
    """How samples with one set of names are encoded."""

    __slots__ = ("attrs", "fields", "head", "keyed", "kind")

    def __init__(self, slots: List[Slot], attrs: List[Tuple[str, str]], keyed: bool) -> None:
        self.fields: List[Tuple[str, Dict[type, Encoder], Slot]] = [(s.name, s.by_class, s) for s in slots]
        self.attrs = attrs
        self.keyed = keyed
        self.kind = Kind((), ())  # known after the first sample
        self.head: Callable[..., bytes] = struct.Struct(f"<{1 + len(slots) + len(attrs)}I").pack


class Rows:
    """Encodes samples. Keys of samples without one begin with ``prefix``."""

    def __init__(self, slots: Slots, prefix: str = "") -> None:
        self.slots, self._prefix = slots, prefix
        self._plans: Dict[Tuple[str, ...], _Plan] = {}
        self._runs: List[Tuple[_Plan, int, int]] = []  # complete runs: samples, and the end of their parts
        self._plan: Any = None  # of the run that grows
        self._count = 0
        self._parts: List[bytes] = []
        #: Bytes of what take returns, approximately, in a shard.
        self.size = 0
        #: Samples so far, including samples written in other ways.
        self.samples = 0
        #: In the key of a sample without one, the number of the first sample.
        self.first = 0
        self._declared = slots  # of apart
        self._known: Dict[Tuple[Any, ...], Tuple[Slots, Dict[Tuple[str, ...], _Plan]]] = {}
        self._begins = False

    def add(self, sample: Mapping[str, Any]) -> None:
        """Adds a sample. After an error it can be used, and lacks the sample."""
        if self._begins:
            return self._add_first(sample)
        if sample.__class__ is Sample:
            sample = {"__key__": sample.key, **sample}
        names = tuple(sample)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._planned(sample, names)
        data: List[bytes] = []
        name = ""
        try:
            for name, known, slot in plan.fields:
                value = sample[name]
                encode = known.get(value.__class__)
                if encode is None:
                    if value is None:
                        return self.add({n: v for n, v in sample.items() if v is not None})
                    encode = slot.encoder(value)
                data.append(encode(value))
            name = "__key__"
            key = key_bytes(sample["__key__"]) if plan.keyed else b""
            for name, field in plan.attrs:
                data.append(self.slots.attr(name, sample[field])[1])
        except Misfit as err:
            raise fail(self._key(sample), name, err) from None
        try:
            head = plan.head(len(key) if plan.keyed else ABSENT, *map(len, data))
        except struct.error:
            raise fail(self._key(sample), name, "a field of 4 GiB or more: divide it") from None
        if plan is not self._plan:
            self._turn(plan)
        # All of a sample or nothing: Ctrl-C comes between calls, and none is between these lines.
        self._parts += (head, key, *data) if key else (head, *data)
        self._count += 1
        self.samples += 1
        self.size += MEMBER * len(data) + sum(map(len, data))

    def apart(self) -> None:
        """Begins samples whose types do not depend on those before. ``samples`` counts them."""
        self._begins, self.samples = True, 0

    def begin(self) -> None:
        """Begins samples apart that no dict begins."""
        if self._begins:
            self._begins, self.slots, self._plans = False, self._declared.copy(), {}

    def _add_first(self, sample: Mapping[str, Any]) -> None:
        """Adds the first sample after apart. The classes of its values determine types, which are
        known if another first sample had the same classes."""
        self._begins = False
        classes = (tuple(sample), *map(type, sample.values()))
        known = self._known.get(classes)
        if known is not None:
            self.slots, self._plans = known[0].copy(), known[1].copy()
            return self.add(sample)
        self.slots, self._plans = self._declared.copy(), {}
        self.add(sample)
        if type(None) not in classes and len(self._known) < 10_000:
            self._known[classes] = self.slots.copy(), self._plans.copy()

    def take(self) -> List[Run]:
        """Returns what was added since the last call."""
        return [Run(kind, samples, b"".join(parts)) for kind, samples, parts in self.take_parts()]

    def take_parts(self) -> List[Tuple[Kind, int, List[bytes]]]:
        """Returns what was added since the last call, not joined."""
        self._turn(None)
        out, begin = [], 0
        for plan, samples, end in self._runs:
            out.append((plan.kind, samples, self._parts[begin:end]))
            begin = end
        self._runs, self._parts, self.size = [], [], 0
        return out

    def _turn(self, plan: Any) -> None:
        """Ends the run and begins another."""
        if self._count:
            self._runs.append((self._plan, self._count, len(self._parts)))
        self._plan, self._count = plan, 0
        if plan is not None and not plan.kind.fields:
            kinds = self.slots.attr_kinds
            plan.kind = Kind(tuple((s.name, s.kind) for _, _, s in plan.fields), tuple((a, kinds[a]) for a, _ in plan.attrs))

    def _planned(self, sample: Any, names: Tuple[str, ...]) -> _Plan:
        if not [n for n in names if n != "__key__"]:
            raise fail(self._key(sample), "", "the sample has no fields: give at least one")
        try:
            slots = [self.slots.slot(n) for n in names if n != "__key__"]
        except Misfit as err:
            raise fail(self._key(sample), "", err) from None
        slots.sort(key=lambda s: s.name.encode("utf-8", "surrogatepass"))
        there = set(names)
        plan = _Plan(slots, [(a, f) for a, f in self.slots.attrs if f in there], "__key__" in there)
        if len(self._plans) < 10_000:  # samples of very many kinds
            self._plans[names] = plan
        return plan

    def _key(self, sample: Mapping[str, Any]) -> str:
        return str(sample.get("__key__", self.numbered(self.samples)))

    def numbered(self, number: int) -> str:
        """The key of a sample without one."""
        return f"{self._prefix}{self.first + number:09d}"
