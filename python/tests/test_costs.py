"""Costs decide which rank gets which entry of a batch: Loader(cost=...), Dataset(cost=...)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import in_groups, run
from skips_help import on_ranks

from oracle import cost_of, split_by_cost
from shardtool import Bucket, ConfigError, Loader, Pack, Writer
from shardtool import Order as Details

np = pytest.importorskip("numpy")

SAMPLES = 400
OPTIONS: Dict[str, Any] = {"shuffle": True, "seed": 3, "epochs": 1, "fields": {"n": "int"}, "global_batch": 24}


def tokens_of(i: int) -> int:
    return 1 + int(random.Random(i).lognormvariate(5, 1))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("costs") / "texts"
    with open(path.with_suffix(".jsonl"), "w") as f:
        for i in range(SAMPLES):
            row = {
                "id": f"d{i:04}",
                "n": i,
                "tokens": tokens_of(i),
                "input_ids": [i] * (1 + tokens_of(i) % 50),
                "length": 1 + tokens_of(i) % 50,
            }
            f.write(json.dumps(row) + "\n")
    run(
        "pack",
        path.with_suffix(".jsonl"),
        path,
        "--key",
        "id",
        "--attr",
        "tokens=tokens",
        "--attr",
        "length=length",
        "--block-size",
        "4KiB",
        "--quiet",
    )
    return str(path)


def steps_of(loader: Loader) -> List[List[int]]:
    with loader:
        return [batch["n"].tolist() for batch in loader]


def ranks_of(url: str, world: int, **options: Any) -> "List[List[List[int]]]":
    """The samples of each rank, step by step."""
    given = in_groups(**{**OPTIONS, **options})
    return [steps_of(Loader(url, rank=rank, world_size=world, **given)) for rank in range(world)]


@pytest.mark.parametrize("group", [None, 2])
def test_the_same_batches(texts: str, group: "int | None") -> None:
    """All ranks together have the batches of the job without costs, dealt out as ORDER.md says."""
    whole = ranks_of(texts, 1)[0]
    got = ranks_of(texts, 4, cost="tokens + 0.5", cost_group=group, tail="short")
    for step, samples in enumerate(whole):
        costs = [cost_of("tokens + 0.5", {"tokens": tokens_of(n)}) for n in samples]
        parts = split_by_cost(costs, len(samples), 4, group or 4)
        assert [rank[step] for rank in got] == [[samples[k] for k in part] for part in parts]
    assert got != ranks_of(texts, 4, tail="short")


def micro_batches_of(batch: Any, name: str = "n") -> List[List[int]]:
    begins = batch["micro_start"].tolist()
    assert begins[0] == 0 and begins[-1] == len(batch[name])
    return [batch[name][a:b].tolist() for a, b in zip(begins, begins[1:])]


@pytest.mark.parametrize("tail", ["short", "pad"])
def test_micro_batches(texts: str, tail: Any) -> None:
    """A rank has the samples that it has without, in the order of ORDER.md. Padding stays last."""
    given = in_groups(**{**OPTIONS, "global_batch": 28}, micro_batches=3)
    plain = ranks_of(texts, 4, cost="tokens", tail=tail, global_batch=28)
    whole = ranks_of(texts, 1, tail=tail, global_batch=28)[0]
    real = [min(28, SAMPLES - 28 * step) for step in range(len(whole))]
    for rank in range(4):
        with Loader(texts, rank=rank, world_size=4, cost="tokens", tail=tail, **given) as loader:
            got = [(micro_batches_of(batch), batch.padding) for batch in loader]
        for step, (parts, padding) in enumerate(got):
            costs = [cost_of("tokens", {"tokens": tokens_of(n)}) for n in whole[step]]
            want = split_by_cost(costs, real[step], 4, 4, 3)[rank]
            assert [n for part in parts for n in part] == [whole[step][k] for k in want]
            assert sorted(n for part in parts for n in part) == sorted(plain[rank][step])
            assert padding == sum(k >= real[step] for k in want) and all(k >= real[step] for k in want[len(want) - padding :])
            assert [len(part) for part in parts] == [
                (rank * 3 + m + 1) * len(whole[step]) // 12 - (rank * 3 + m) * len(whole[step]) // 12 for m in range(3)
            ]


def test_micro_batches_resume(texts: str) -> None:
    """On other ranks, in other micro-batches. Each sample comes once."""
    given = in_groups(**OPTIONS)
    seen, states = [], []
    for rank, micro in [(0, 4), (1, 4)]:
        with Loader(texts, rank=rank, world_size=2, cost="tokens", tail="short", **in_groups(**OPTIONS, micro_batches=micro)) as loader:
            it = iter(loader)
            seen += [n for _ in range(5) for part in micro_batches_of(next(it)) for n in part]
            states.append(loader.state_dict())
    with Loader(texts, rank=0, world_size=2, cost="tokens", tail="short", **given) as loader:
        it = iter(loader)
        for _ in range(5):
            next(it)
        assert states[0] == states[1] == loader.state_dict()
    for rank in range(3):
        loader = Loader(texts, rank=rank, world_size=3, cost="tokens^2 + 1", **in_groups(**OPTIONS, micro_batches=2))
        loader.load_state_dict(states[0])
        with loader:
            seen += [n for batch in loader for part in micro_batches_of(batch) for n in part]
    assert sorted(seen) == list(range(SAMPLES))


def test_micro_batches_of_units(texts: str) -> None:
    """They begin at sequences, and at micro-batches of a Bucket."""
    sequences: Dict[str, Any] = {"units": Pack(64, fields=["input_ids"], by="length"), "epochs": 1, "shuffle": True}
    options: Dict[str, Any] = {"cost": "length^2", "order": Details(global_batch=16, micro_batches=2)}
    for rank in range(2):
        with Loader(texts, rank=rank, world_size=2, tail="short", **sequences, **options) as loader:
            for batch in loader:
                parts = micro_batches_of(batch, "input_ids")
                assert abs(len(parts[0]) - len(parts[1])) <= 1
    buckets: Dict[str, Any] = {"units": Bucket(100, by="length"), "epochs": 1, "shuffle": True, "fields": {"n": "int"}}
    seen = []
    for rank in range(2):
        with Loader(texts, rank=rank, world_size=2, tail="short", **buckets, **options) as loader:
            for batch in loader:
                starts, units = batch["micro_start"].tolist(), batch["unit_start"].tolist()
                assert starts[0] == 0 and starts[-1] == len(units) - 1
                seen += batch["n"].tolist()
    assert sorted(seen) == list(range(SAMPLES))


def test_micro_batches_elsewhere(texts: str) -> None:
    """In a DataLoader with workers, in record batches of Arrow, in arrays of torch."""
    given = in_groups(**OPTIONS, micro_batches=3)
    with Loader(texts, cost="tokens", **given) as loader:
        want = [micro_batches_of(batch) for batch in loader]
    pytest.importorskip("pyarrow")
    with Loader(texts, cost="tokens", format="arrow", **given) as loader:
        for parts, records in zip(want, loader):
            assert records.num_rows == sum(len(part) for part in parts)
            begins = json.loads(records.schema.metadata[b"shardtool.micro_start"])
            assert [b - a for a, b in zip(begins, begins[1:])] == [len(part) for part in parts]
    torch = pytest.importorskip("torch")
    from shardtool import Dataset

    data = torch.utils.data.DataLoader(Dataset(texts, cost="tokens", **given), batch_size=None, num_workers=2)
    assert [micro_batches_of(batch) for batch in data] == want


@pytest.mark.parametrize("removed", [False, True])
def test_micro_batches_of_rows(tmp_path: Path, removed: bool) -> None:
    """Of stacked arrays. Without removed samples they are shorter."""
    with Writer(tmp_path / "rows", layout="stacked", attrs={"tokens": "t"}) as out:
        out.write_batch({"x": np.arange(100).reshape(100, 1), "t": 1 + np.arange(100) * 7 % 31})
    with Loader(tmp_path / "rows", 100, epochs=1) as loader:
        keys = next(iter(loader)).sample_keys
    if removed:
        (tmp_path / "gone").write_text("".join(f"{key}\n" for key in keys[:40]))
        run("remove", tmp_path / "rows", "--keys", tmp_path / "gone")
    given: Dict[str, Any] = {"cost": "tokens", "shuffle": True, "epochs": 1, "fields": {"x": "npy"}}
    with Loader(tmp_path / "rows", 20, order=Details(micro_batches=4), **given) as loader:
        parts = [micro_batches_of(batch, "x") for batch in loader]
    sizes = [[len(part) for part in batch] for batch in parts]
    assert sorted(n for batch in parts for part in batch for (n,) in part) == list(range(40 if removed else 0, 100))
    assert removed or sizes == [[5] * 4] * 5
    assert not removed or all(size <= 5 for batch in sizes for size in batch)


def test_a_field_of_the_name(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": str(i), "micro_start": i, "tokens": i}) + "\n" for i in range(8)))
    run("pack", rows, tmp_path / "rows", "--key", "id", "--attr", "tokens=tokens", "--quiet")
    given: Dict[str, Any] = {"cost": "tokens", "order": Details(global_batch=4, micro_batches=2)}
    with pytest.raises(ConfigError, match="field 'micro_start': batches have a column of this name"):
        next(iter(Loader(tmp_path / "rows", fields={"micro_start": "int"}, **given)))
    with Loader(tmp_path / "rows", fields={"tokens": "int"}, **given) as loader:
        assert micro_batches_of(next(iter(loader)), "tokens")


def test_a_resume_on_other_ranks(texts: str) -> None:
    """With another cost, and another number of ranks. Each sample comes once."""
    given = in_groups(**OPTIONS)
    seen, states = [], []
    for rank in range(2):
        with Loader(texts, rank=rank, world_size=2, cost="tokens", tail="short", **given) as loader:
            it = iter(loader)
            seen += [n for _ in range(5) for n in next(it)["n"].tolist()]
            states.append(loader.state_dict())
    assert states[0] == states[1]
    for rank in range(3):
        loader = Loader(texts, rank=rank, world_size=3, cost="tokens^2 + 1", **given)
        loader.load_state_dict(states[0])
        seen += [n for samples in steps_of(loader) for n in samples]
    assert sorted(seen) == list(range(SAMPLES))


def test_packed(texts: str) -> None:
    given: Dict[str, Any] = {
        "shuffle": True,
        "epochs": 1,
        "units": Pack(64, fields=["input_ids"], by="length"),
        "order": Details(global_batch=8),
    }

    def rows(rank: int, world: int, **more: Any) -> "List[List[str]]":
        with Loader(texts, rank=rank, world_size=world, tail="short", **given, **more) as loader:
            return [[str(row) for row in np.asarray(batch["input_ids"]).tolist()] for batch in loader]

    whole, ranks = rows(0, 1), [rows(rank, 4, cost="length^2") for rank in range(4)]
    assert [sorted(step) for step in whole] == [sorted(row for part in parts for row in part) for parts in zip(*ranks)]


def test_refused(texts: str) -> None:
    for cost, want in [
        (
            "patches",
            r"has no integer attribute \"patches\", it has .* `shardtool layer add DATASET NAME TABLE --key COLUMN --attr patches=COLUMN`",
        ),
        ("tokens +", "at character 9: write a number"),
        ("1 - tokens", 'has no cost: it is below 0 where "tokens" is'),
    ]:
        with pytest.raises(ConfigError, match=want):
            ranks_of(texts, 2, cost=cost)
    with pytest.raises(ConfigError, match="groups of 3 ranks that balance costs: 4 ranks"):
        ranks_of(texts, 4, cost="tokens", cost_group=3)
    with pytest.raises(ConfigError, match="4 micro-batches whose costs are balanced, and no cost"):
        ranks_of(texts, 4, micro_batches=4)
    with pytest.raises(ConfigError, match="7 micro-batches of each of 4 ranks, of a batch of 24: some would be empty"):
        ranks_of(texts, 4, cost="tokens", micro_batches=7)
    with pytest.raises(ConfigError, match="micro_batches=0"):
        Details(micro_batches=0)
    with pytest.raises(ConfigError, match="cost_group=-1"):
        Details(cost_group=-1)
    with pytest.raises(ConfigError, match="cost=7"):
        Loader(texts, 4, cost=7)  # type: ignore[arg-type]


def costs_of(rank: int, size: int, url: str, costs: List[str]) -> Any:
    try:
        steps = steps_of(Loader(url, cost=costs[rank], **in_groups(**OPTIONS)))
    except ConfigError as err:
        return ["refused", str(err)]
    return steps


def test_ranks_compare(texts: str, tmp_path: Path) -> None:
    """Ranks of torch.distributed that have other costs are refused, by the later one."""
    pytest.importorskip("torch")
    same = on_ranks(2, tmp_path, costs_of, texts, ["tokens", "tokens"])
    assert {n for steps in same for samples in steps for n in samples} == set(range(SAMPLES))
    other = on_ranks(2, tmp_path, costs_of, texts, ["tokens", "tokens^2"])
    refused = [steps[1] for steps in other if steps[0] == "refused"]
    assert len(refused) == 1 and "give all ranks the same cost" in refused[0] and "'tokens^2' over all ranks" in refused[0]


def two_loaders(rank: int, size: int, url: str) -> Any:
    """Each rank makes and iterates two loaders, of other seeds, in another order."""
    out = {}
    for seed in (3, 4)[:: -1 if rank else 1]:
        out[seed] = steps_of(Loader(url, cost="tokens" if seed == 3 else "tokens^2", **in_groups(**{**OPTIONS, "seed": seed})))
    return out


def test_loaders_in_another_order(texts: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    got = on_ranks(2, tmp_path, two_loaders, texts)
    for seed in (3, 4):
        assert {n for rank in got for samples in rank[seed] for n in samples} == set(range(SAMPLES))


def test_missing_in_one_source(texts: str, tmp_path: Path) -> None:
    """A source of a mix without the attribute is named, and so is the command that adds it."""
    rows = tmp_path / "bare.jsonl"
    rows.write_text("".join(json.dumps({"id": str(i), "n": i}) + "\n" for i in range(20)))
    run("pack", rows, tmp_path / "bare", "--key", "id", "--quiet")
    mix = {"sources": {"texts": {"data": texts, "weight": 1}, "bare": {"data": str(tmp_path / "bare"), "weight": 1}}, "epoch": 40}
    with pytest.raises(ConfigError, match=r'source "bare": cost "tokens": .*has no integer attribute "tokens".*layer add'):
        next(iter(Loader(mix, 10, cost="tokens", shuffle=True, fields={"n": "int"})))


def test_many_ranks_are_said(texts: str, caplog: pytest.LogCaptureFixture) -> None:
    """Ranks of several hosts that exchange entries are a warning on rank 0."""
    for rank, group in [(0, None), (0, 8), (1, None)]:
        with Loader(texts, rank=rank, world_size=16, cost="tokens", **in_groups(**OPTIONS, cost_group=group)) as loader:
            next(iter(loader))
    said = [m for m in caplog.messages if "ranks exchange entries" in m]
    assert len(said) == 1 and ("if 8 ranks share a host, give Order(cost_group=8)" in said[0])


def test_a_dataset(texts: str) -> None:
    torch = pytest.importorskip("torch")
    from shardtool import Dataset

    given = in_groups(**OPTIONS)
    for rank, want in enumerate(ranks_of(texts, 2, cost="tokens", tail="short")):
        data = torch.utils.data.DataLoader(
            Dataset(texts, rank=rank, world_size=2, cost="tokens", tail="short", **given), batch_size=None, num_workers=2
        )
        assert [batch["n"].tolist() for batch in data] == want
