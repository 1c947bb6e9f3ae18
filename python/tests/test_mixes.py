"""Mixes through a Loader: several data sets as one stream."""

from __future__ import annotations

import ast
import collections
import decimal
import fractions
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import ROOT, cat, in_groups
from mix_help import SIZES, Model, mix_of, pack, text_of, yaml_of
from skips_help import go_through
from web import served

import shardtool
from oracle import sample_seed, source_key
from shardtool import CheckpointError, ConfigError, DecodeError, Faults, Loader, NotFoundError, Order, Tuning
from shardtool._read.states import merge_states

SHARES = {"books": "1/5", "code": 0.3, "web": decimal.Decimal("0.5")}
GIVEN: Dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 7, "fields": {"txt": "txt"}}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixes")
    for name, samples in SIZES.items():
        pack(out, name, samples)
    return out


def seen(batches: Any) -> List[Any]:
    return [(b.position, b.sources, b.epochs, b.numbers) for b in batches]


def test_file_and_dict(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a dict and a pickled Loader give the batches of ``cat``. Relative paths start where
    the Loader was made."""
    mix = mix_of(base, {"books": 1, "code": "0.5", "web": 3}, epoch=300)
    for name, source in mix["sources"].items():
        source["data"] = name
    file = yaml_of(mix, base / "mix.yaml")
    monkeypatch.chdir(base)
    lines = cat("mix.yaml", "--shuffle", "--seed=7", "--global-batch=16")
    want = [(line["source"], line["epoch"], line["number"]) for line in lines]
    assert len(want) == 300
    loaders: List[Loader[Any]] = [Loader(url, epochs=1, **GIVEN) for url in ("mix.yaml", file, mix)]
    loaders += [pickle.loads(pickle.dumps(loader)) for loader in loaders]
    monkeypatch.chdir(tmp_path)
    for loader in loaders:
        with loader:
            assert len(loader) == 19
            got = [entry for b in loader for entry in zip(b.sources, b.epochs, b.numbers)]
            assert got == want


def test_shares_are_exact(base: Path) -> None:
    """Fractions, decimals, floats and text of the same value are the same mix."""
    checkpoints = set()
    for shares in (SHARES, {"books": 0.2, "code": fractions.Fraction(3, 10), "web": "0.5"}, {"books": 2, "code": 3, "web": 5}):
        with Loader(mix_of(base, shares), **GIVEN) as loader:
            next(iter(loader))
            checkpoints.add(loader.state_dict()["checkpoint"])
    assert len(checkpoints) == 1
    with pytest.raises(ConfigError, match="the mix has nan"):
        Loader(mix_of(base, {"books": float("nan")}), **GIVEN)


def test_where_samples_are_from(base: Path) -> None:
    """``map`` receives source, epoch and seed of each sample. The seeds are those of
    the oracle, whatever ranks there are."""
    mix, seeds = mix_of(base, {"math": 1, "web": 1}, epoch=200), []

    def look(batch: shardtool.Batch) -> int:
        assert batch.source_names == ("math", "web")
        assert [batch.source_names[n] for n in batch.source_numbers] == batch.sources
        for text, source, epoch, number, seed in zip(batch["txt"], batch.sources, batch.epochs, batch.numbers, batch.seeds):
            assert source is not None and text == text_of(source, number)
            assert seed == sample_seed(source_key(7, source), epoch, number)
            seeds.append(seed)
        again = pickle.loads(pickle.dumps(batch))
        assert (again.sources, again.epochs, again.seeds) == (batch.sources, batch.epochs, batch.seeds)
        rebuilt = shardtool.Batch({name: batch[name] for name in batch})
        assert (rebuilt.sources, rebuilt.seeds) == (batch.sources, batch.seeds)
        return batch.size - batch.padding

    samples = 0
    for rank in range(2):
        with Loader(mix, epochs=1, map_batch=look, rank=rank, world_size=2, **GIVEN) as loader:
            samples += sum(loader)
    assert samples == 200
    assert len(set(seeds)) == 200  # "math" begins its third epoch: its samples have other seeds there


def test_seeds_of_one_data_set(base: Path) -> None:
    with Loader(base / "web", epochs=2, **GIVEN) as loader:
        for epoch in range(2):
            for batch in loader:
                assert set(batch.epochs) == {epoch} and set(batch.sources) == {None} and batch.source_names == ()
                assert batch.seeds == [sample_seed(7, epoch, number) for number in batch.numbers]


@pytest.mark.parametrize("tail", ["short", "wrap", "drop", "pad"])
@pytest.mark.parametrize("skip", [None, (3, 5), (8, 25), (2, 12)])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.filterwarnings("ignore:the iteration has no batches")
def test_length(base: Path, tail: str, skip: Any, ends: bool) -> None:
    """len() is exact before, during and after an epoch, and in the middle of a resumed one."""
    mix = mix_of(base, {"books": 2, "math": 1}, epoch=165)
    if ends:
        for source in mix["sources"].values():
            source["max_epochs"] = 3
    counts: List[int] = []
    states = []
    given = dict(in_groups(**GIVEN, tail=tail))
    with Loader(shardtool.Mix(mix, skip_steps=skip), **given) as loader:
        for _ in range(3):
            before, n, during = len(loader), 0, set()
            for _ in loader:
                n += 1
                during.add(len(loader))
                states.append((loader.state_dict(), len(counts)))
            assert {n} | during == {before}, (counts, n)
            counts.append(n)
    for state, epoch in states[:: len(states) // 5]:
        with Loader(mix, **given) as loader:
            loader.load_state_dict(state)
            if loader.epoch == epoch:
                assert len(loader) == counts[epoch]


def test_steps_after_a_cut_batch(base: Path) -> None:
    """The end of the stream cuts its last batch. The steps of a run that continues with one more
    source follow it."""
    mix = mix_of(base, {"math": 1}, epoch=990)
    mix["sources"]["math"]["max_epochs"] = 1
    given = in_groups(**GIVEN, tail="short")
    with Loader(mix, **given) as loader:
        steps = sum(1 for _ in loader)
        state = loader.state_dict()
        at = json.loads(state["checkpoint"])["position"]
    assert at % GIVEN["batch_size"]
    mix["sources"]["web"] = {"data": str(base / "web"), "weight": 1}
    with Loader(shardtool.Mix(mix, change_mix=True, skip_steps=(steps + 1, steps + 2)), **given) as loader:
        loader.load_state_dict(state)
        expected, positions = len(loader), []
        for batch in loader:
            positions.append(batch.position)
    assert positions[:2] == [at, at + 3 * GIVEN["batch_size"]]
    assert expected == steps + len(positions)


def test_fields_of_some_sources(base: Path) -> None:
    mix = mix_of(base, {"code": 1, "web": 1}, epoch=60)
    for fields in (None, {"lang": "bytes?"}):
        with Loader(mix, **{**GIVEN, "fields": fields}) as loader:
            batch = next(iter(loader))
            assert batch["lang"] == [b"go" if source == "code" else None for source in batch.sources]
            assert {*batch.sources} == {"code", "web"}
    with (
        Loader(mix, **{**GIVEN, "fields": ["lang"]}) as loader,
        pytest.raises(ConfigError, match=r'no field "lang".*question mark') as info,
    ):
        next(iter(loader))
    assert info.value.source == "web"
    with (
        Loader(mix, **{**GIVEN, "fields": {"txt": "int"}}, tuning=Tuning(out="bytes")) as loader,
        pytest.raises(DecodeError, match="txt") as failed,
    ):
        next(iter(loader))
    assert failed.value.source in ("code", "web") and failed.value.shard and failed.value.key


def test_several_stores(base: Path) -> None:
    """One source on a disk, one on a web server: the batches of both on the disk."""
    mix = mix_of(base, {"books": 1, "web": 1}, epoch=100)
    with Loader(mix, epochs=1, **GIVEN) as loader:
        want = [(seen([b]), b.checkpoint) for b in loader]
    with served(base, lambda: None) as url:
        mix["sources"]["web"]["data"] = f"{url}/web"
        with Loader(mix, epochs=1, **GIVEN) as loader:
            assert [(seen([b]), b.checkpoint) for b in loader] == want


def test_another_mix(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A state of another mix is refused, with the difference. With change_mix=True it continues;
    an earlier state still has what it had."""
    mix = mix_of(base, {"books": 1, "web": 1})
    with Loader(mix, **GIVEN) as loader:
        it = iter(loader)
        for _ in range(5):
            next(it)
        state, rest = loader.state_dict(), [seen([next(it)]) for _ in range(5)]
    others = {
        r'source "books": weight .*change_mix=True': mix_of(base, {"books": 3, "web": 1}),
        r'source "code": source is not in the mix in the checkpoint.*change_mix=True': mix_of(base, {"books": 1, "code": 1, "web": 1}),
        r'source "web": source is in the mix.*change_mix=True': mix_of(base, {"books": 1}),
        r'source "web": max_epochs .*change_mix=True': {
            **mix, "sources": {"books": mix["sources"]["books"], "web": {**mix["sources"]["web"], "max_epochs": 2}},
        },
        r"epoch_length is 500 .* start anew": {**mix, "epoch": 400},
        r'source "web": W is 3 .* start anew': {
            **mix, "sources": {"books": mix["sources"]["books"], "web": {**mix["sources"]["web"], "order": {"delay": 2}}},
        },
    }  # fmt: skip
    for message, other in others.items():
        with Loader(other, **GIVEN) as loader:
            loader.load_state_dict(state)
            with pytest.raises(CheckpointError, match=message) as info:
                next(iter(loader))
        assert "--" not in str(info.value) and ("start anew" in message) != ("change_mix" in str(info.value))
    with Loader(mix, **{**GIVEN, "seed": 8}) as loader, pytest.raises(CheckpointError, match="seed is 7 in the checkpoint, 8 here"):
        loader.load_state_dict(state)
        next(iter(loader))
    with Loader(shardtool.Mix(others[r'source "books": weight .*change_mix=True'], change_mix=True), **GIVEN) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader)).position == 80
        changed = loader.state_dict()
    assert "changed at 80: books weight" in caplog.text
    model = Model(base, mix, 7, "short")
    model.size(16)
    for _ in range(5):
        model.next()
    model.change(others[r'source "books": weight .*change_mix=True'])
    model.next()
    assert changed["checkpoint"] == model.checkpoint()
    with Loader(mix, **GIVEN) as loader:
        loader.load_state_dict(state)
        it = iter(loader)
        assert [seen([next(it)]) for _ in range(5)] == rest


def test_replaced(base: Path, tmp_path: Path) -> None:
    """A data set that was packed again with other samples is another source: its epoch begins
    again."""
    for name in ("books", "web"):
        shutil.copytree(base / name, tmp_path / name)
    mix = mix_of(tmp_path, {"books": 1, "web": 1})
    with Loader(mix, **GIVEN) as loader:
        next(iter(loader))
        state = loader.state_dict()
    shutil.rmtree(tmp_path / "web")
    shutil.copytree(base / "math", tmp_path / "web")
    with Loader(mix, **{**GIVEN, "fields": []}) as loader, pytest.raises(CheckpointError, match=r'source "web": digest .*change_mix=True'):
        loader.load_state_dict(state)
        next(iter(loader))
    with Loader(shardtool.Mix(mix, change_mix=True), **{**GIVEN, "fields": []}) as loader:
        loader.load_state_dict(state)
        batch = next(iter(loader))
        assert {epoch for source, epoch in zip(batch.sources, batch.epochs) if source == "web"} == {1}


@pytest.mark.parametrize(
    ("mix", "error", "message"),
    [
        ({}, ConfigError, "mix: sources: give at least one source"),
        ({"sources": {"a": {"dat": "x"}}}, ConfigError, r"mix: sources\.a\.dat: no such member"),
        ({"sources": {"a": {"data": "x", "weight": -1}}}, ConfigError, r"mix: sources\.a\.weight"),
        ({"sources": {"A b": {"data": "x"}}}, ConfigError, "mix: sources"),
        ({"sources": {"a": {"data": "/nothing/here"}}}, NotFoundError, r"mix: source a: .*/nothing/here"),
        ("nothing.yaml", NotFoundError, r"nothing\.yaml"),
        ({"sources": {"a": object()}}, ConfigError, "the mix has <object"),
    ],
)
def test_refused(mix: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message), Loader(mix, **GIVEN) as loader:
        next(iter(loader))


def test_only_for_mixes(base: Path) -> None:
    for given in ({"change_mix": True}, {"skip_steps": (0, 1)}):
        with Loader(shardtool.Mix(base / "web", **given), **GIVEN) as loader, pytest.raises(ConfigError, match="are for mixes"):
            next(iter(loader))
    mix = mix_of(base, {"web": 1})
    with Loader(mix, order=Order(lanes=2), **GIVEN) as loader, pytest.raises(ConfigError, match="lanes: a mix has it for each source"):
        next(iter(loader))
    with shardtool.open(yaml_of(mix, base / "open.json")) as samples, pytest.raises(ConfigError, match="no samples by number"):
        len(samples)
    for skip in ((3, 1), (-1, 2), 3, (1, 2, 3)):
        with pytest.raises(ConfigError, match="skip_steps"):
            Loader(shardtool.Mix(mix, skip_steps=skip), **GIVEN)  # type: ignore[arg-type]


def test_epochs(base: Path) -> None:
    """set_epoch, break and a first epoch work as for one data set."""
    mix = mix_of(base, {"books": 1, "web": 1}, epoch=100)
    with Loader(mix, tail="short", **GIVEN) as loader:
        epochs = [seen(loader) for _ in range(4)]
        assert loader.epoch == 4 and [len(e) for e in epochs] == [7] * 4 and epochs[2][0][0] == 200
        loader.set_epoch(1)
        assert (loader.epoch, len(loader)) == (1, 7)
        assert seen(loader) == epochs[1]
        loader.set_epoch(3)
        next(iter(loader))
        state = loader.state_dict()
        loader.set_epoch(0)
        for batch in loader:
            assert seen([batch]) == epochs[0][:1]
            break
        assert seen(loader) == epochs[1]
        loader.load_state_dict(state)
        assert loader.epoch == 3 and seen(loader) == epochs[3][1:]
    with Loader(mix, tail="short", epochs=1, order=Order(epoch=2), **GIVEN) as loader:
        assert (loader.epoch, len(loader)) == (2, 7) and seen(loader) == epochs[2]


def test_page(base: Path, tmp_path: Path) -> None:
    """Every program of docs/mixing.md, unchanged, in order, but for those of frameworks: see
    test_torch_losses."""
    (tmp_path / "out").symlink_to(base)
    text = re.sub(r"<!-- tested: .*?```python.*?```", "", (ROOT / "docs" / "mixing.md").read_text("utf-8"), flags=re.S)
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 2
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "193" and "math source: not in the mix -> in the mix" in done.stderr
    weights = ast.literal_eval(done.stdout.splitlines()[1])  # that the last program set
    assert sum(weights.values()) == pytest.approx(1, abs=0.02) and min(weights.values()) >= 0.03 and len(set(weights.values())) > 1


def test_stats(base: Path) -> None:
    """Samples and bytes by source, over all iterations of a Loader."""
    mix = mix_of(base, {"books": 1, "code": 2, "web": 3}, epoch=120)
    counted: "collections.Counter[str]" = collections.Counter()
    with Loader(mix, **GIVEN) as loader:
        for _ in range(3):
            before = loader.stats()
            for batch in loader:
                counted.update(source for source in batch.sources if source)
                if batch.position > 130:
                    break
            now = loader.stats()
            assert {name: n.samples for name, n in now.sources.items()} == counted
            assert sum(n.samples for n in (now - before).sources.values()) == now.samples - before.samples
        assert sum(n.bytes for n in now.sources.values()) == now.bytes > 0
        assert json.loads(json.dumps(now.as_dict()))["sources"]["web"] == now.sources["web"]._asdict()
        assert (before + before).sources["web"].samples == 2 * before.sources["web"].samples
    with Loader(base / "web", **GIVEN) as loader:
        next(iter(loader))
        assert loader.stats().sources == {}


def test_metrics(base: Path) -> None:
    """The metrics of a child count by source."""
    mix = mix_of(base, {"books": 1, "web": 3}, epoch=64)
    with Loader(mix, epochs=1, tuning=Tuning(metrics=":0"), **GIVEN) as loader:
        list(loader)
        assert loader.metrics_url is not None
        with urllib.request.urlopen(loader.metrics_url, timeout=300) as answer:
            page = answer.read().decode()
        for name, n in loader.stats().sources.items():
            assert f'shardtool_stream_source_samples_total{{rank="0",source="{name}"}} {n.samples}\n' in page


def test_skipped_blocks_of_ranks(base: Path, tmp_path: Path) -> None:
    """The states of three ranks after a step, merged, are the state of one rank that has all
    samples. Two sources have shards of the same names."""
    for name in ("books", "web"):
        shutil.copytree(base / name, tmp_path / name)
        for shard in sorted((tmp_path / name).glob("*.tar.zst"))[:2]:
            data = bytearray(shard.read_bytes())
            data[len(data) // 3] ^= 0xFF
            shard.chmod(0o644)
            shard.write_bytes(data)
    mix = mix_of(tmp_path, {"books": 1, "web": 2}, epoch=300)

    def states(rank: int, world_size: int, start: Any = None) -> List[Dict[str, Any]]:
        faults = Faults(on_error="skip", max_skipped=0.9, skip_group=False)
        given = {**GIVEN, "batch_size": None, "order": Order(global_batch=24), "faults": faults, "fields": []}
        with Loader(mix, epochs=1, tail="short", rank=rank, world_size=world_size, **given) as loader:
            if start is not None:
                loader.load_state_dict(start)
            out, problem = go_through(loader)
            assert problem == ""
        return out

    one, ranks = states(0, 1), [states(rank, 3) for rank in range(3)]
    assert any(a != b for a, b in zip(*ranks[:2]))
    for want, *apart in zip(one, *ranks):
        assert merge_states(apart) == merge_states(apart[::-1]) == want
    ledger = [json.loads(line) for line in one[-1]["ledger"].splitlines()]
    assert {line["source"] for line in ledger} == {"books", "web"}
    assert len({(line["shard"], line["block"]) for line in ledger}) < len(ledger)
    assert states(0, 1, [rank[4] for rank in ranks])[-1] == one[-1]
    with pytest.raises(CheckpointError, match="position is"):
        merge_states([one[3], one[4]])
