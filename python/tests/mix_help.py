"""Data sets for mixes, and the batches that a mix has by the oracle, which shares no code
with the readers."""

from __future__ import annotations

import copy
import io
import json
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from conftest import run

from oracle import Mix, MixBatch, MixCheckpoint, MixSource, Order, Parameters, Table, parse_share, quantize

#: The samples of each source. Only those of "code" have the field "lang".
SIZES = {"books": 90, "code": 150, "math": 40, "web": 260}

#: A sample: source, epoch of the source, number.
Entry = Tuple[str, int, int]


def text_of(source: str, number: int) -> str:
    return f"{source} {number} " * (20 + number % 9)


def pack(base: Path, name: str, samples: int) -> Path:
    """Packs the data set of a source."""
    with tarfile.open(base / f"{name}.tar", "w") as tar:
        for i in range(samples):
            fields = {"txt": text_of(name, i).encode(), **({"lang": b"go"} if name == "code" else {})}
            for field, data in sorted(fields.items()):
                info = tarfile.TarInfo(f"s{i:04d}.{field}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    out = base / name
    run("pack", base / f"{name}.tar", out, "--quiet", "--block-size", "4KiB", "--shard-size", "16KiB")
    return out


def mix_of(base: Path, shares: Mapping[str, Any], *, epoch: Optional[int] = 500, **more: Any) -> Dict[str, Any]:
    """A mix whose sources fix their orders, so that a model needs no rules to choose them."""
    order = {"lanes": 4, "run_blocks": 1, "delay": 3, "head": 2}
    sources = {name: {"data": str(base / name), "weight": share, "order": dict(order)} for name, share in shares.items()}
    return {"sources": sources, **({} if epoch is None else {"epoch": epoch}), **more}


def yaml_of(mix: Mapping[str, Any], path: Path) -> Path:
    """Writes a mix file."""
    path.write_text(json.dumps(mix))
    return path


class Got(NamedTuple):
    """A batch of one rank."""

    samples: List[Entry]
    checkpoint: str


def got(batch: Any) -> Got:
    """What a rank received. The text of each sample must be that of its source and number."""
    for text, source, number in zip(batch["txt"], batch.sources, batch.numbers):
        assert text == text_of(source, number)
    return Got(list(zip(batch.sources, batch.epochs, batch.numbers)), batch.checkpoint)


class Model:
    """A job over a mix, computed by the oracle."""

    def __init__(self, base: Path, mix: Mapping[str, Any], seed: int, tail: str) -> None:
        self._base, self.seed, self.tail = base, seed, tail
        self.tables: Dict[str, Table] = {}
        self.mix = self.first(mix)
        self.position, self.steps, self.global_batch = 0, (0, 0), 0
        self.left_out: List[Tuple[int, int]] = []
        self.skipped: Dict[Tuple[int, int], int] = {}  # how many steps each is
        self.step = 0
        self._ordered()

    def first(self, mix: Mapping[str, Any]) -> Mix:
        """The mix at a first start."""
        names, sources = sorted(mix["sources"]), []
        for name in names:
            asked = mix["sources"][name]
            if name not in self.tables:
                self.tables[name] = Table.of(asked["data"])
            table = self.tables[name]
            parameters = Parameters(**asked["order"], affinity="epoch")
            more = {"max_epochs": asked["max_epochs"]} if "max_epochs" in asked else {}
            sources.append(MixSource(name, sum(table.blocks), parameters, table.digest, table.tables, **more))
        segments = [(0, quantize([parse_share(str(mix["sources"][name]["weight"])) for name in names]))]
        for segment in mix.get("segments", ()):
            shares = [parse_share(str(segment["weights"].get(name, 0))) for name in names]
            segments.append((segment["at"], quantize(shares)))
        made = Mix(sources, segments, mix.get("epoch", 1), self.seed, True, self.tail)
        return made if "epoch" in mix else made._replace(epoch_length=made.length("all"))

    def _ordered(self) -> None:
        self.mix.check()
        self.orders = [Order(self.tables[s.name], self.mix.parameters(i)) for i, s in enumerate(self.mix.sources)]

    def change(self, mix: Mapping[str, Any]) -> None:
        """Continues with another mix."""
        same = self.mix.change(self.position, self.mix)
        changed = self.mix.change(self.position, self.first(mix)._replace(epoch_length=self.mix.epoch_length))
        if changed._replace(segments=same.segments) != same or [w for _, w in changed.segments] != [w for _, w in same.segments]:
            self.mix = changed
            self._ordered()

    def size(self, global_batch: int) -> None:
        """Continues with another batch size."""
        if global_batch != self.global_batch:
            self.global_batch, self.steps = global_batch, (self.step, self.position)

    def skip(self, first: int, last: int) -> None:
        """Leaves out steps after the current one."""
        at, begins = copy.copy(self), []
        while at.step <= last + 1:
            begins.append(at.mix.beginning(at.position, at.global_batch))
            at.next()
        self.left_out.append((begins[first - self.step], begins[last + 1 - self.step]))
        self.skipped[self.left_out[-1]] = last + 1 - first

    def next(self) -> Optional[MixBatch]:
        """Returns the next global batch."""
        before = self.position
        batch = self.mix.batch(self.orders, before, self.global_batch, left_out=self.left_out)
        if batch is not None:
            self.position = batch.next_position
            self.step += 1
            self.step += sum(n for (low, high), n in self.skipped.items() if before <= low and high <= batch.position)
        return batch

    def entries(self, samples: Sequence[Tuple[int, int, int]]) -> List[Entry]:
        return [(self.mix.sources[s].name, epoch, number) for s, epoch, number in samples]

    def checkpoint(self) -> str:
        step, position = self.steps
        at = MixCheckpoint.at(
            self.mix, self.position, global_batch=self.global_batch, step=step, step_position=position, left_out=self.left_out
        )
        return at.text()
