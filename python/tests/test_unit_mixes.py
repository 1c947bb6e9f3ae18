"""Mixes of packed sequences and of micro-batches: Loader(mix, units=...), over chains of starts
with other ranks, weights and kills, against the oracle."""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any, Counter, Dict, List, Mapping, Optional, Tuple

import pytest
from conftest import run

import shardtool
from oracle import Mix, MixSource, Order, UnitParameters, Units, parse_share, quantize
from oracle.parameters import Parameters, Table
from shardtool import Bucket, CheckpointError, ConfigError, Loader, Pack

np = pytest.importorskip("numpy")

SIZES = {"books": 60, "code": 110, "web": 150}
BASE = {name: 10_000_000 * i for i, name in enumerate(SIZES)}
L, WINDOW = 64, 24

#: A piece of a document: source, epoch of the source, document, offset and length.
Piece = Tuple[str, int, int, int, int]


def length_of(source: str, i: int) -> int:
    return 1 + int(random.Random(f"{source} {i}").expovariate(1 / 30))


@pytest.fixture(scope="module")
def base(tmp_path_factory: Any) -> Path:
    """The data sets. A token tells its source, document and place."""
    folder: Path = tmp_path_factory.mktemp("unitmix")
    for name, size in SIZES.items():
        with open(folder / f"{name}.jsonl", "w") as f:
            for i in range(size):
                ids = [BASE[name] + i * 10_000 + k for k in range(length_of(name, i))]
                f.write(json.dumps({"id": f"{name}{i:04}", "input_ids": ids, "tokens": len(ids)}) + "\n")
        run("pack", folder / f"{name}.jsonl", folder / name, "--key", "id", "--attr", "tokens=tokens", "--block-size", "4KiB", "--quiet")
    return folder


def mix_of(base: Path, shares: Mapping[str, Any], **more: Any) -> Dict[str, Any]:
    order = {"lanes": 4, "run_blocks": 1, "delay": 3, "head": 2}
    sources = {name: {"data": str(base / name), "weight": share, "order": order} for name, share in shares.items()}
    return {"sources": sources, "epoch": 100, **more}


def pieces(batch: Any) -> List[List[Piece]]:
    """The pieces of each sequence, from the arrays of a batch."""
    out, k = [], 0
    for ids, document in zip(batch["input_ids"], batch["document"]):
        row = []
        for d in range(int(document.max()) + 1):
            piece = ids[document == d]
            first = int(piece[0]) - BASE[batch.sources[k]]
            assert (np.diff(piece) == 1).all() and first // 10_000 == batch.numbers[k]
            row.append((batch.sources[k], batch.epochs[k], first // 10_000, first % 10_000, len(piece)))
            k += 1
        assert len({(source, epoch) for source, epoch, *_ in row}) == 1
        out.append(row)
    assert k == len(batch.numbers)
    return out


def model(base: Path, shares: Mapping[str, Any], kind: str, size: int, seed: int) -> Mix:
    """The mix of a loader, computed in Python."""
    unit = UnitParameters(kind, size, WINDOW, "split")
    sources = []
    for name in sorted(shares):
        parameters = Parameters(lanes=4, run_blocks=1, delay=3, head=2)
        sources.append(MixSource(name, 1, parameters, unit=unit, by="tokens"))
    mix = Mix(sources, [(0, quantize([parse_share(str(shares[name])) for name in sorted(shares)]))], 100, seed)
    for i, source in enumerate(sources):
        lengths = [length_of(source.name, k) for k in range(SIZES[source.name])]
        line = Units(Order(Table.of(str(base / source.name)), mix.parameters(i)), lengths, unit)
        packed = b"".join(n.to_bytes(4, "little") for n in lengths)
        sources[i] = source._replace(line=line, samples=line.count(0), lengths=hashlib.sha256(packed).hexdigest()[:32])
    mix.check()
    return mix


def test_against_the_model(base: Path) -> None:
    """Every sequence of every rank is that of the independent implementation; so are the length and
    the checkpoint's counts."""
    shares = {"books": "0.2", "code": "0.3", "web": "0.5"}
    mix = model(base, shares, "pack", L, 7)
    pack = Pack(L, ["input_ids"], long="split", window=WINDOW, plans="none")
    position = 0
    with Loader(mix_of(base, shares), 7, shuffle=True, seed=7, tail="wrap", units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        assert len(loader) == 15
        for _, batch in zip(range(30), loader):
            want = mix.batch([], position, 7)
            assert want is not None and batch.position == position
            expected = [[(mix.sources[s].name, epoch, *item) for item in unit] for s, epoch, unit in want.samples]
            assert pieces(batch) == expected
            position = want.next_position
            assert 0.5 < batch["fill"] <= 1
        said = json.loads(loader.state_dict()["checkpoint"])
    rows = [dict(zip(said["fields"], row)) for row in said["sources"]]
    assert [(row["N"], row["lengths"], row["size"]) for row in rows] == [(s.samples, s.lengths, L) for s in mix.sources]
    places = [s.place(count) for s, count in zip(mix.sources, mix.counts(position))]
    assert [row["epoch"] for row in rows] == [epoch for epoch, _ in places]


class Job:
    """A run that is stopped and continued: what it was delivered, by source and epoch."""

    def __init__(self) -> None:
        self.seen: Dict[Tuple[str, int], Counter[Tuple[int, int]]] = collections.defaultdict(collections.Counter)
        self.state: Optional[Dict[str, Any]] = None

    def deliver(self, batches: List[Any]) -> None:
        """Counts the tokens of a step of all ranks."""
        for batch in batches:
            for row in pieces(batch):
                for source, epoch, document, offset, length in row:
                    self.seen[source, epoch].update((document, offset + k) for k in range(length))

    def check(self) -> int:
        """No token came twice, and every epoch of a source before its last one is whole."""
        for (source, epoch), tokens in self.seen.items():
            assert set(tokens.values()) == {1}, (source, epoch)
            if (source, epoch + 1) in self.seen:
                assert set(tokens) == {(i, k) for i in range(SIZES[source]) for k in range(length_of(source, i))}, (source, epoch)
        return sum(map(len, self.seen.values()))


def test_chains(base: Path) -> None:
    """Starts with any number of ranks, kills without a goodbye, and weights that change: no token
    is lost or repeated, counted by source, document and offset."""
    pack = Pack(L, ["input_ids"], long="split", window=WINDOW, plans=base / "plans")
    for seed in range(3):
        rnd, job = random.Random(seed), Job()
        shares = {name: rnd.randint(1, 9) for name in SIZES}
        for start in range(5):
            changed = start > 0 and rnd.random() < 0.6
            if changed:
                shares = {name: rnd.randint(1, 9) for name in SIZES}
            world, size = rnd.randint(1, 3), rnd.randint(1, 6)
            given: Dict[str, Any] = {
                "shuffle": True,
                "seed": seed,
                "tail": "wrap",
                "units": pack,
                "tuning": shardtool.Tuning(out="numpy"),
                "world_size": world,
            }
            loaders = [Loader(shardtool.Mix(mix_of(base, shares), change_mix=changed), size, rank=rank, **given) for rank in range(world)]
            try:
                for loader in loaders:
                    if job.state is not None:
                        loader.load_state_dict(job.state)
                steps = [itertools.chain.from_iterable(itertools.repeat(loader)) for loader in loaders]
                for _ in range(rnd.randint(1, 12)):
                    job.deliver([next(step) for step in steps])
                    job.state = rnd.choice(loaders).state_dict()
                for step in steps[: rnd.randint(0, world)]:
                    next(step)  # after the last state: lost with the kill, and delivered again
                for loader in loaders:
                    assert loader._session.client is not None
                    loader._session.client.process.kill()
            finally:
                for loader in loaders:
                    loader.close()
        assert job.check() > 5000
        assert any(epoch > 0 for _, epoch in job.seen)


def test_buckets(base: Path) -> None:
    """Micro-batches are of one source each, and within the budget."""
    bucket = Bucket(400, by="tokens", long="drop", window=WINDOW, plans="none")
    given: Dict[str, Any] = {
        "shuffle": True,
        "epochs": 1,
        "units": bucket,
        "fields": ["input_ids.npy"],
        "tuning": shardtool.Tuning(out="numpy"),
    }
    with Loader(mix_of(base, {"books": 1, "web": 2}), 3, **given) as loader:
        units = 0
        for batch in loader:
            starts = list(batch["unit_start"])
            for begin, end in zip(starts, starts[1:]):
                longest = max(batch["length"][begin:end])
                assert longest * (end - begin) <= 400 and len(set(batch.sources[begin:end])) == 1
                units += 1
        assert units == 100 and len(loader) == 34


def test_refusals(base: Path, tmp_path: Path) -> None:
    """What does not fit names the source, in terms of Python."""
    rows = tmp_path / "none.jsonl"
    rows.write_text(json.dumps({"id": "a", "input_ids": [1, 2]}) + "\n")
    run("pack", rows, tmp_path / "none", "--key", "id", "--quiet")
    rows.write_text(json.dumps({"id": "a", "labels": [1, 2], "tokens": 2}) + "\n")
    run("pack", rows, tmp_path / "other", "--key", "id", "--attr", "tokens=tokens", "--quiet")
    pack = Pack(L, ["input_ids"], long="split", plans="none")

    def first(mix: Dict[str, Any], given: Pack, **more: Any) -> Any:
        with Loader(mix, 2, shuffle=True, units=given, tuning=shardtool.Tuning(out="numpy"), **more) as loader:
            return next(iter(loader))

    web = {"data": str(base / "web"), "weight": 1}
    with pytest.raises(ConfigError, match=r'sources\.bare: .*no integer attribute "tokens"'):
        first({"sources": {"web": web, "bare": {"data": str(tmp_path / "none"), "weight": 1}}}, pack)
    with pytest.raises(ConfigError, match=r'"other": missing fields: .*"input_ids\.npy".*sequences need their fields in all sources'):
        first({"sources": {"web": web, "other": {"data": str(tmp_path / "other"), "weight": 1}}}, pack)
    with pytest.raises(ConfigError, match=r"sources\.web: .*samples are longer than the length of 8"):
        first({"sources": {"web": web}}, Pack(8, ["input_ids"], plans="none"))
    with Loader({"sources": {"web": web}}, 2, shuffle=True, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        next(iter(loader))
        state = loader.state_dict()
    longer = Pack(2 * L, ["input_ids"], long="split", plans="none")
    with Loader({"sources": {"web": web}}, 2, shuffle=True, units=longer, tuning=shardtool.Tuning(out="numpy")) as loader:
        loader.load_state_dict(state)
        with pytest.raises(CheckpointError, match=r"units is pack of 64, long split in the checkpoint, pack of 128.*change_mix=True"):
            next(iter(loader))
