"""Packed sequences and micro-batches: Loader(units=Pack(...)) and units=Bucket(...) against a plain
reference, oracle.Units."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from conftest import cat, run

import shardtool
from oracle import Order, Units, choose_units
from oracle.parameters import Table
from shardtool import Bucket, CheckpointError, ConfigError, DecodeError, Loader, Pack
from shardtool._read.states import merge_states

np = pytest.importorskip("numpy")

SAMPLES, L = 400, 96


def tokens_of(i: int) -> List[int]:
    """The tokens of sample i: no two of the data set are alike."""
    n = 1 + int(random.Random(i).expovariate(1 / 50))
    return [i * 1000 + k for k in range(n)]


def write(path: Path, wrong: "Dict[int, int] | None" = None) -> Path:
    rows = path.with_suffix(".jsonl")
    with open(rows, "w") as f:
        for i in range(SAMPLES):
            ids = tokens_of(i)
            n = len(ids) + (wrong or {}).get(i, 0)
            f.write(json.dumps({"id": f"d{i:04}", "input_ids": ids, "labels": [t % 77 for t in ids], "tokens": n}) + "\n")
    run("pack", rows, path, "--key", "id", "--attr", "tokens=tokens", "--block-size", "8KiB", "--quiet")
    return path


@pytest.fixture(scope="module")
def docs(tmp_path_factory: Any) -> str:
    return str(write(tmp_path_factory.mktemp("units") / "docs"))


def reference(url: str, kind: str, size: int, long: str, **given: Any) -> Units:
    """The units of a loader, computed in Python."""
    parameters, units = choose_units(Table.of(url), kind, size, long=long, **given)
    return Units(Order(Table.of(url), parameters), [len(tokens_of(i)) for i in range(SAMPLES)], units)


def rows_of(batch: Any) -> List[List[Tuple[int, int, int]]]:
    """The items of each sequence as (sample, offset, length), from the arrays of a batch alone."""
    out = []
    for ids, document in zip(batch["input_ids"], batch["document"]):
        items = []
        for d in range(int(document.max()) + 1):
            piece = ids[document == d]
            items.append((int(piece[0]) // 1000, int(piece[0]) % 1000, len(piece)))
        out.append(items)
    return out


def test_sequences(docs: str, tmp_path: Path) -> None:
    """Every array of every batch is that of the reference, value by value."""
    units = reference(docs, "pack", L, "split", shuffle=True, seed=3, epochs=2)
    pack = Pack(L, ["input_ids", "labels"], long="split", pad_id=7, plans=tmp_path)
    with Loader(docs, 6, shuffle=True, seed=3, epochs=2, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        for epoch in range(2):
            count = units.count(epoch)
            assert len(loader) == -(-count // 6)
            position = steps = 0
            for batch in loader:
                want = units.batch(epoch, position, 6)
                assert want is not None
                assert (batch.epoch, batch.position, batch.global_size) == (epoch, position, len(want.units))
                check_arrays(batch, [[tuple(item) for item in unit] for unit in want.units])
                position, steps = want.next_position, steps + 1
                assert len(loader) == -(-count // 6)
            assert steps == len(range(0, count, 6)) and position == 0
    assert sorted(p.name.split("-")[0] for p in tmp_path.iterdir()) == ["lengths", "plan", "plan"]


def check_arrays(batch: Any, want: "List[List[Tuple[int, int, int]]]") -> None:
    ids = np.full((len(want), L), 7, np.int64)
    labels, positions, document = np.full_like(ids, -100), np.zeros_like(ids), np.full_like(ids, -1)
    limits = [0]
    for row, items in enumerate(want):
        at = 0
        for d, (sample, offset, length) in enumerate(items):
            piece = np.array(tokens_of(sample)[offset : offset + length])
            ids[row, at : at + length], labels[row, at : at + length] = piece, piece % 77
            positions[row, at : at + length], document[row, at : at + length] = range(length), d
            at += length
            limits.append(row * L + at)
        if at < L:
            limits.append((row + 1) * L)
    for name, array in {"input_ids": ids, "labels": labels, "position_ids": positions, "document": document, "cu_seqlens": limits}.items():
        assert np.array_equal(batch[name], array), name
    assert batch["cu_seqlens"].dtype == batch["position_ids"].dtype == batch["document"].dtype == np.int32
    assert batch["max_seqlen"] == max(np.diff(limits))
    assert batch["fill"] == pytest.approx((document >= 0).mean())
    assert list(batch) == ["input_ids", "labels", "position_ids", "document", "cu_seqlens", "max_seqlen", "fill"]
    assert batch.numbers == [sample for items in want for sample, _, _ in items]
    assert batch.sample_keys == [f"d{n:04}" for n in batch.numbers]


def test_any_ranks_and_resume(docs: str) -> None:
    """Chains of starts at any step, with other ranks and batches, deliver every token once."""
    rng = random.Random(5)
    for _ in range(4):
        state, seen, epoch = None, [], 0
        while epoch == 0:
            world, size = rng.choice([1, 2, 3]), rng.choice([1, 2, 5])
            steps = rng.randrange(1, 6)
            states = []
            for rank in range(world):
                pack = Pack(L, ["input_ids"], long="split", plans="none")
                with Loader(
                    docs,
                    size,
                    shuffle=True,
                    epochs=1,
                    tail="short",
                    units=pack,
                    tuning=shardtool.Tuning(out="numpy"),
                    rank=rank,
                    world_size=world,
                ) as loader:
                    if state is not None:
                        loader.load_state_dict(state)
                    for step, batch in enumerate(loader):
                        seen += [int(t) for ids, d in zip(batch["input_ids"], batch["document"]) for t in ids[d >= 0]]
                        if step + 1 == steps:
                            break
                    states.append(loader.state_dict())
            assert all(s == states[0] for s in states)
            state = merge_states(states)
            epoch = json.loads(state["checkpoint"])["epoch"]
        assert sorted(seen) == sorted(t for i in range(SAMPLES) for t in tokens_of(i))


def test_resume_at_any_sequence(docs: str) -> None:
    pack = Pack(L, ["input_ids"], long="split")
    with Loader(docs, 3, shuffle=True, epochs=1, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        whole = [(rows_of(batch), batch.state_dict()) for batch in loader]
    for step in (0, 1, len(whole) // 2, len(whole) - 2):
        with Loader(docs, 3, shuffle=True, epochs=1, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
            loader.load_state_dict(whole[step][1])
            assert [rows_of(batch) for batch in loader] == [rows for rows, _ in whole[step + 1 :]]


def test_order_agrees(docs: str) -> None:
    """`order` and `cat --json` print the units that a loader delivers."""
    flags = ["--shuffle", "--pack", L, "--long", "split", "--global-batch", 4, "--plans", "none"]
    lines = [json.loads(line) for line in run("order", docs, *flags, "--keys").stdout.splitlines()]
    assert lines == cat(docs, *flags)
    with Loader(
        docs, 4, shuffle=True, epochs=1, units=Pack(L, ["input_ids"], long="split"), tuning=shardtool.Tuning(out="numpy")
    ) as loader:
        rows = [row for batch in loader for row in rows_of(batch)]
    assert rows == [[(i["number"], i["offset"], i["length"]) for i in line["items"]] for line in lines]


@pytest.mark.parametrize("tail", ["short", "drop", "wrap", "pad"])
def test_length_and_tails(docs: str, tail: Any) -> None:
    """len() is exact under every tail: before the loop, in it, and for another epoch."""
    pack = Pack(L, ["input_ids"], long="split")
    with Loader(docs, 7, shuffle=True, epochs=3, tail=tail, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        for epoch in range(3):
            said, steps = len(loader), 0
            for batch in loader:
                steps += 1
                assert len(loader) == said and batch.epoch == epoch
                assert batch["input_ids"].shape == (7 if tail != "short" or steps < said else len(batch["input_ids"]), L)
            assert steps == said
    with Loader(docs, 7, shuffle=True, epochs=3, tail=tail, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        next(iter(loader))
        state = loader.state_dict()
        loader.set_epoch(2)
        said = len(loader)
        assert dict(loader.state_dict(), begin=None) == state
        assert sum(1 for _ in loader) == said


def test_padding_rows(docs: str) -> None:
    """With tail="pad" the sequences that fill the last batch repeat the others of it."""
    with Loader(
        docs, 64, epochs=1, tail="pad", units=Pack(L, ["input_ids", "labels"], long="split"), tuning=shardtool.Tuning(out="numpy")
    ) as loader:
        last = list(loader)[-1]
    real = 64 - last.padding
    assert 0 < real < 64 and (last["document"][:, 0] == 0).all()
    for name in ("input_ids", "labels", "document", "position_ids"):
        assert (last[name] == last[name][np.arange(64) % real]).all()


def test_attention(docs: str) -> None:
    """Attention by ``document`` as a mask, and by ``cu_seqlens``, is that of each item alone."""
    rng = np.random.default_rng(1)
    table = rng.standard_normal((100, 3, 8))  # query, key and value of a token

    def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = np.where(mask, q @ k.T, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ v

    with Loader(
        docs, 4, shuffle=True, epochs=1, units=Pack(L, ["input_ids"], long="split"), tuning=shardtool.Tuning(out="numpy")
    ) as loader:
        batch = next(iter(loader))
    ids, document = batch["input_ids"], batch["document"]
    flat = table[ids.reshape(-1) % 100]
    by_limits = np.zeros((ids.size, 8))
    for a, b in zip(batch["cu_seqlens"], batch["cu_seqlens"][1:]):
        assert b - a <= batch["max_seqlen"]
        by_limits[a:b] = attend(*flat[a:b].transpose(1, 0, 2), np.tri(b - a, dtype=bool))
    for row in range(len(ids)):
        q, k, v = table[ids[row] % 100].transpose(1, 0, 2)
        mask = np.tri(L, dtype=bool) & (document[row][:, None] == document[row][None, :])
        by_mask = attend(q, k, v, mask)
        for sample, offset, length in rows_of(batch)[row]:
            piece = table[np.array(tokens_of(sample)[offset : offset + length]) % 100].transpose(1, 0, 2)
            alone = attend(*piece, np.tri(length, dtype=bool))
            at = int(np.flatnonzero(ids[row] == tokens_of(sample)[offset])[0])
            assert np.allclose(alone, by_mask[at : at + length])
            assert np.allclose(alone, by_limits[row * L + at : row * L + at + length])


def test_buckets(docs: str) -> None:
    units = reference(docs, "bucket", 600, "drop", shuffle=True, seed=1, epochs=1)
    loader = Loader(
        docs,
        2,
        fields={"tokens.txt": "bytes", "input_ids.npy": "npy"},
        shuffle=True,
        seed=1,
        epochs=1,
        tuning=shardtool.Tuning(out="numpy"),
        units=Bucket(600, by="tokens", long="drop"),
    )
    position = 0
    with loader:
        for batch in loader:
            want = units.batch(0, position, 2)
            assert want is not None
            samples = [item.sample for unit in want.units for item in unit]
            assert batch.numbers == samples
            assert batch["length"].tolist() == [len(tokens_of(i)) for i in samples]
            starts = batch["unit_start"].tolist()
            assert [samples[a:b] for a, b in zip(starts, starts[1:])] == [[item.sample for item in unit] for unit in want.units]
            assert [list(ids) for ids in batch["input_ids.npy"]] == [tokens_of(i) for i in samples]
            assert [int(n) for n in batch["tokens.txt"]] == batch["length"].tolist()
            position = want.next_position
        assert position == 0


def test_long_documents(docs: str, caplog: pytest.LogCaptureFixture) -> None:
    """What ``long=`` cuts off and leaves out is counted, and said once."""
    long = [len(tokens_of(i)) for i in range(SAMPLES) if len(tokens_of(i)) > 40]
    assert long
    for policy, want in (
        ("drop", (0, 0, len(long), sum(long))),
        ("truncate", (len(long), sum(long) - 40 * len(long), 0, 0)),
        ("split", (0, 0, 0, 0)),
    ):
        caplog.clear()
        with Loader(docs, 2, epochs=2, units=Pack(40, ["input_ids"], long=policy)) as loader:  # type: ignore[arg-type]
            for _ in loader:
                pass
            for _ in loader:
                pass
            stats = loader.stats()
        assert (stats.truncated, stats.tokens_cut, stats.dropped, stats.tokens_dropped) == want
        assert caplog.text.count(f"of the {SAMPLES} samples of an epoch, {len(long)} are longer than a unit") == (policy != "split")
        assert (stats + stats - stats)[-4:] == want


def test_wrong_lengths(tmp_path: Path) -> None:
    """A sample whose field is longer or shorter than its attribute is named, before its batch."""
    for i, off in ((17, 1), (23, -1)):
        url = write(tmp_path / f"wrong{i}", {i: off})
        loader = Loader(url, 4, epochs=1, units=Pack(200, ["input_ids"], long="split", plans="none"), tuning=shardtool.Tuning(out="numpy"))
        with loader, pytest.raises(DecodeError, match=f"index says that the sample has {len(tokens_of(i)) + off}") as caught:
            for batch in loader:
                assert i not in batch.numbers
        assert caught.value.key == f"d{i:04}" and caught.value.field == "input_ids.npy"


def test_fields_of_different_lengths(tmp_path: Path) -> None:
    """A sample whose fields differ in their lengths is named, before its batch is delivered."""
    rows = tmp_path / "rows.jsonl"
    with open(rows, "w") as f:
        for i in range(60):
            ids = list(range(1, 3 + i % 7))
            labels = ids + [1] * (i == 31)
            f.write(json.dumps({"id": f"d{i:04}", "input_ids": ids, "labels": labels, "tokens": len(ids)}) + "\n")
    run("pack", rows, tmp_path / "docs", "--key", "id", "--attr", "tokens=tokens", "--quiet")
    pack = Pack(16, ["input_ids", "labels"], plans="none")
    with Loader(tmp_path / "docs", 2, epochs=1, units=pack, tuning=shardtool.Tuning(out="numpy")) as loader:
        with pytest.raises(DecodeError, match="6 values, but the index says that the sample has 5") as caught:
            for batch in loader:
                assert 31 not in batch.numbers
    assert caught.value.key == "d0031" and caught.value.field == "labels.npy"
    short = Pack(1, ["input_ids"], long="drop", plans="none")  # every sample is longer
    with Loader(tmp_path / "docs", 2, epochs=1, units=short, tuning=shardtool.Tuning(out="numpy")) as loader:
        with pytest.raises(ConfigError, match="every sample is longer than a unit and is dropped: give a larger one"):
            next(iter(loader))


def test_window_and_memory(docs: str) -> None:
    """A window that the memory cannot hold is an error with the least memory, which works."""
    pack = Pack(L, ["input_ids"], long="split", window=SAMPLES, plans="none")

    def first(memory: int) -> Any:
        order = shardtool.Order(shuffle_memory=memory)
        with Loader(docs, 2, shuffle=True, epochs=1, units=pack, order=order, tuning=shardtool.Tuning(out="numpy")) as loader:
            return next(iter(loader))

    with pytest.raises(ConfigError, match=r"too small: at least \d+ bytes") as caught:
        first(10_000)
    least = re.search(r"at least (\d+) bytes", str(caught.value))
    assert least and first(int(least[1]))["input_ids"].shape == (2, L)
    with pytest.raises(ConfigError, match="too small"):
        first(int(least[1]) - 1)


def test_refused(docs: str) -> None:
    for options, text in (
        ({"units": Pack(8, ["input_ids"])}, "longer than the length of 8"),
        ({"units": Pack(L, ["ids"], long="split")}, "the data set has no field 'ids', it has input_ids.npy, labels.npy"),
        ({"units": Pack(L, ["input_ids"], by="frames")}, 'no integer attribute "frames"'),
        ({"units": Pack(L, ["tokens.txt"], long="split")}, "not an .npy file"),
        ({"units": Bucket(10, by="tokens")}, "longer than the budget of 10"),
    ):
        with (
            Loader(docs, 2, epochs=1, tuning=shardtool.Tuning(out="numpy"), **options) as loader,
            pytest.raises((ConfigError, DecodeError), match=text),
        ):
            next(iter(loader))
    for make, text in (
        (lambda: Pack(0, ["a"]), "length=0"),
        (lambda: Pack(2**31, ["a"]), "length=2147483648: give 1 to 2147483647"),
        (lambda: Pack(5, ["a"], window=2**20 + 1), "window=1048577: give 1 to 1048576"),
        (lambda: Bucket(2**40), "budget=1099511627776"),
        (lambda: Pack(5, "input_ids"), "give a list of names"),
        (lambda: Pack(5, []), "name the fields"),
        (lambda: Pack(5, ["fill"]), "none of position_ids"),
        (lambda: Pack(5, ["a"], long="keep"), "long='keep'"),  # type: ignore[arg-type]
        (lambda: Loader(docs, 2, units=5), "units=5: give a shardtool.Pack or a shardtool.Bucket or None"),  # type: ignore[arg-type]
        (lambda: Loader(docs, 2, units=Pack(5, ["a"]), fields=["a"]), r"fields and Pack\("),
    ):
        with pytest.raises(ConfigError, match=text):
            make()


def test_state_fits(docs: str) -> None:
    """A state of units is refused by another packing, and by samples; one of samples by units."""

    def one(**options: Any) -> Dict[str, Any]:
        with Loader(docs, 2, epochs=1, tuning=shardtool.Tuning(out="numpy"), **options) as loader:
            next(iter(loader))
            return loader.state_dict()

    packed, plain = one(units=Pack(L, ["input_ids"], long="split")), one()
    for state, options, text in (
        (packed, {"units": Pack(L + 1, ["input_ids"], long="split")}, "units: size"),
        (packed, {"units": Pack(L, ["input_ids"], long="drop")}, "units: long"),
        (packed, {"units": Bucket(L, by="tokens", long="split")}, "units: kind"),
        (packed, {}, "units"),
        (plain, {"units": Pack(L, ["input_ids"], long="split")}, "units"),
    ):
        with Loader(docs, 2, epochs=1, tuning=shardtool.Tuning(out="numpy"), **options) as loader:
            loader.load_state_dict(state)
            with pytest.raises((CheckpointError, ConfigError), match=text):
                next(iter(loader))
