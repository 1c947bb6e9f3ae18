"""Checkpoints of mixes: section 9.13 of ORDER.md."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from shardtool.errors import ConfigError

from .checkpoint import demand, printable, read_integer, read_object, read_string, read_u64_string, with_check
from .mix import MAX_POSITION, MAX_SEGMENTS, MAX_SOURCES, Mix, MixSource, source_key
from .parameters import AFFINITIES, MAX_BATCH, MAX_EPOCH, TAILS, Parameters
from .units import KINDS, MAX_SIZE, MAX_WINDOW, POLICIES, UnitParameters
from .words import U32, U64

FIELDS = ["name", "digest", "tables", "view", "key", "N", "V", "E", "W", "H", "affinity", "max_epochs", "epoch", "first", "base", "weight"]
UNIT_FIELDS = ["kind", "size", "long", "window", "by", "lengths"]


class MixCheckpoint(NamedTuple):
    """A place in a mix, and everything that it depends on. ``mix`` begins with the current
    segment."""

    mix: Mix
    position: int  #: Units delivered, over all ranks and epochs.
    global_batch: int = 0  #: The current one; 0 if unknown.
    step: int = 0  #: Of the last change of ``global_batch``,
    step_position: int = 0  #: and its position.
    left_out: Sequence[Tuple[int, int]] = ()  #: Ranges of positions.
    skip_hash: str = ""
    skipped: int = 0

    @classmethod
    def at(cls, mix: Mix, position: int, **more: Any) -> "MixCheckpoint":
        """Returns the checkpoint of a position of a mix."""
        given = mix.counts(position)
        stretch = None
        for stretch in mix.stretches():
            if position < stretch.end:
                break
        sources = []
        for i, (s, count) in enumerate(zip(mix.sources, given)):
            epoch, place = s.place(count) if s.samples else (s.epoch, count - s.first)
            sources.append(s._replace(epoch=epoch, first=count - place, base=stretch.base[i] if stretch else s.base))
        begin, segment = (stretch.begin, stretch.segment) if stretch else (mix.begin, 0)
        return cls(mix._replace(sources=sources, segments=mix.segments[segment:], begin=begin), position, **more)

    def text(self) -> str:
        """Returns the text that SPEC.md defines."""
        m = self.mix
        (at, weights), *pending = m.segments
        rows: List[List[Any]] = []
        for s, weight in zip(m.sources, weights):
            p = s.parameters
            row = [s.name, s.digest, s.tables, s.view, str(source_key(m.seed, s.name)), s.samples, p.lanes, p.run_blocks, p.delay, p.head]
            rows.append([*row, p.affinity, s.max_epochs, s.epoch, s.first, s.base, weight])
        values: Dict[str, Any] = {"version": 2, "algorithm": "interleave/1", "order": "lane-delay/1"}
        fields = FIELDS
        if any(s.unit for s in m.sources):
            values["units"], fields = "units/1", FIELDS + UNIT_FIELDS
            for row, s in zip(rows, m.sources):
                u = s.unit
                row.extend([u.kind, u.size, u.long, u.window, s.by, s.lengths] if u else ["", 0, "", 0, "", ""])
        values["seed"] = str(m.seed)
        values.update(position=self.position, shuffle=m.shuffle, tail=m.tail, epoch_length=m.epoch_length, global_batch=self.global_batch)
        values.update({"steps": [self.step, self.step_position], "at": at, "from": m.begin, "fields": fields, "sources": rows})
        values["segments"] = [segment_text(*segment) for segment in pending]
        if m.steered:
            values["steered"] = segment_text(at, weights)
        values.update(left_out=[list(r) for r in self.left_out], skip_hash=self.skip_hash, skipped=self.skipped)
        return with_check(values)


def segment_text(at: int, weights: Sequence[int]) -> List[int]:
    """Returns a segment as numbers: its position, and the sources of weight > 0 with it."""
    return [at, *(x for s, w in enumerate(weights) if w > 0 for x in (s, w))]


def read_list(value: Any, name: str) -> List[Any]:
    """Returns a member that must be an array."""
    demand(type(value) is list, f"{name} is missing or no array")
    return list(value)


def read_numbers(value: Any, name: str) -> List[int]:
    """Returns a member that must be an array of integers."""
    return [read_integer({name: x}, name, U64 - 1) for x in read_list(value, name)]


def read_source(values: Dict[str, Any], seed: int) -> MixSource:
    """Parses a source."""
    name = read_string(values, "name", "[a-z0-9._-]{1,32}")
    view = read_string(values, "view", "|[0-9a-f]{16}")
    demand(read_u64_string(values, "key") == source_key(seed, name), f"source {name}: key")
    v, e, w, h = (read_integer(values, letter, high) for letter, high in (("V", 2**24), ("E", U32 - 1), ("W", U32 - 1), ("H", U32 - 1)))
    affinity = read_string(values, "affinity", "|".join(AFFINITIES))
    parameters = Parameters(lanes=v, run_blocks=e, delay=w, head=h, affinity=affinity)
    digest, tables = read_string(values, "digest", printable(71)), read_string(values, "tables", printable(29))
    n, base = read_integer(values, "N", MAX_POSITION - 1), read_integer(values, "base", MAX_POSITION - 1)
    max_epochs, epoch = read_integer(values, "max_epochs", MAX_EPOCH), read_integer(values, "epoch", MAX_EPOCH)
    made = MixSource(name, n, parameters, digest, tables, max_epochs, epoch, read_integer(values, "first", U64 - 1), base, view)
    if "kind" not in values:
        return made
    kind, long = read_string(values, "kind", "|" + "|".join(KINDS)), read_string(values, "long", "|" + "|".join(POLICIES))
    size, window = read_integer(values, "size", MAX_SIZE), read_integer(values, "window", MAX_WINDOW)
    by, lengths = read_string(values, "by", printable(64)), read_string(values, "lengths", printable(32))
    demand(kind != "" or not (size or long or window or by or lengths), f"source {name}: parameters of units without a kind")
    return made._replace(unit=UnitParameters(kind, size, window, long), by=by, lengths=lengths) if kind else made


def read_segment(value: Any, sources: int) -> Tuple[int, List[int]]:
    """Parses a pending segment."""
    at, *pairs = read_numbers(value, "segments")
    numbers, weights = pairs[::2], pairs[1::2]
    demand(len(numbers) == len(weights) > 0 and numbers == sorted(set(numbers)), "segments: no pairs in ascending order of sources")
    demand(numbers[-1] < sources and min(weights) > 0, "segments: no such source, or a weight of 0")
    row = [0] * sources
    for s, w in zip(numbers, weights):
        row[s] = w
    return at, row


def read_mix_members(values: Dict[str, Any]) -> MixCheckpoint:
    """Parses the table of members."""
    seed = read_u64_string(values, "seed")
    fields = FIELDS + UNIT_FIELDS if "units" in values else FIELDS
    demand(values.get("fields") == fields, "fields")
    listed = read_list(values.get("sources"), "sources")
    demand(len(listed) <= MAX_SOURCES and all(type(row) is list and len(row) == len(fields) for row in listed), "sources")
    rows = [dict(zip(fields, row)) for row in listed]
    sources = [read_source(row, seed) for row in rows]
    weights = [read_integer(row, "weight", U64 - 1) for row in rows]
    pending = read_list(values.get("segments"), "segments")
    demand(len(pending) < MAX_SEGMENTS and (len(pending) + 1) * len(rows) <= 2**20, "too many segments")
    demand(all(type(row) is list and row for row in pending), "segments")
    segments = [(read_integer(values, "at", MAX_POSITION - 1), weights), *(read_segment(row, len(rows)) for row in pending)]
    shuffle: Any = values.get("shuffle")
    demand(isinstance(shuffle, bool), "shuffle is no bool")
    tail, begin = read_string(values, "tail", "|".join(TAILS)), read_integer(values, "from", MAX_POSITION - 1)
    mix = Mix(sources, segments, read_integer(values, "epoch_length", MAX_POSITION - 1), seed, shuffle, tail, begin, "steered" in values)
    demand(not mix.steered or read_numbers(values["steered"], "steered") == segment_text(*segments[0]), "steered")
    try:
        mix.check()
    except ConfigError as err:
        demand(False, str(err))
    steps = read_numbers(values.get("steps"), "steps")
    ranges = [read_numbers(r, "left_out") for r in read_list(values.get("left_out"), "left_out")]
    demand(len(steps) == 2 and steps[1] <= MAX_POSITION and len(ranges) <= 16 and all(len(r) == 2 for r in ranges), "steps or left_out")
    ends = [x for r in ranges for x in r]
    demand(ends == sorted(set(ends)) and all(x <= MAX_POSITION for x in ends), "left_out is not in ascending order and apart")
    position, global_batch = read_integer(values, "position", MAX_POSITION), read_integer(values, "global_batch", MAX_BATCH)
    skip_hash, skipped = read_string(values, "skip_hash", printable(128)), read_integer(values, "skipped", U64 - 1)
    made = MixCheckpoint(mix, position, global_batch, steps[0], steps[1], [(r[0], r[1]) for r in ranges], skip_hash, skipped)
    demand(mix.begin <= made.position and all(at >= made.position for at, _ in segments[1:]), "position")
    return made


def read_mix_checkpoint(text: str) -> MixCheckpoint:
    """Parses the checkpoint of a mix.

    Raises:
        CheckpointError: It is damaged, or of an unknown version.
    """
    values = read_object(text, 16 * 2**20, 2)
    for name, known in (("algorithm", "interleave/1"), ("order", "lane-delay/1")):
        demand(read_string(values, name, r"(?s:.*)") == known, f"unknown {name}")
    demand(values.get("units", "units/1") == "units/1", "unknown units")
    made = read_mix_members(values)
    written = json.loads(made.text())
    demand(set(values) == set(written), "members are missing or unknown")
    demand(read_string(values, "check", "[0-9a-f]{8}") == written["check"], "the check differs")
    return made
