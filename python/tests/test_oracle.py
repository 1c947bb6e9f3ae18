"""The oracle against `shardtool order`, which knows nothing of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
from conftest import ROOT, SAMPLES, run
from test_order import flags

from oracle import (
    Mix,
    MixCheckpoint,
    MixSource,
    Order,
    Parameters,
    Table,
    choose,
    parse_share,
    per_token,
    quantize,
    read_checkpoint,
    read_mix_checkpoint,
    skip_hash,
)
from shardtool import CheckpointError, ConfigError, Loader, NotFoundError

ORDERS: List[Dict[str, Any]] = [
    {"tail": "short"},
    {"tail": "pad"},
    {"shuffle": True, "seed": 7, "tail": "short"},
    {"shuffle": True, "seed": 7, "whole_shards": True, "tail": "drop"},
    {"shuffle": True, "seed": 2**64 - 1, "tail": "pad", "lanes": 12, "delay": 3},
    {"shuffle": True, "tail": "short", "shuffle_memory": "4MiB", "epoch": 2**32 - 3},
    {"shuffle": True, "tail": "wrap", "affinity": "run", "run_blocks": 2, "lanes": 4, "delay": 2, "head": 1, "epoch": 5},
]


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_same_as_the_program(small: Path, order: Dict[str, Any], world: int) -> None:
    """Every line: epoch, position, shard, block, number, of every rank."""
    given = dict(order)
    first = given.pop("epoch", 0)
    ours = Order.of(str(small), epochs=2, global_batch=70, world_size=world, **given)
    batches = list(ours.batches(70, epoch=first, epochs=2))
    for rank in range(world):
        lines = run("order", small, *flags(order), "--epochs=2", "--global-batch=70", f"--world-size={world}", f"--rank={rank}").stdout
        got = []
        for b in batches:
            before = sum(len(b.part(r, world)) for r in range(rank))
            for i, number in enumerate(b.part(rank, world), before):
                shard, block = ours.locate(number)
                at = b.position + i
                padding = i >= b.real
                epoch, position = (b.epoch, at) if padding else (b.epoch + at // SAMPLES, at % SAMPLES)
                line = {"epoch": epoch, "position": position, "shard": ours.table.shards[shard], "block": block, "number": number}
                got.append({**line, "padding": True} if padding else line)
        assert got == [json.loads(line) for line in lines.splitlines()]
        assert len(got) > SAMPLES / world


def test_checkpoints(small: Path, tmp_path: Path) -> None:
    """The program reads what the module writes, and vice versa; a loader resumes from its
    checkpoint."""
    theirs = tmp_path / "theirs.json"
    run("cat", small, "--shuffle", "--seed=3", "--global-batch=64", "--limit=640", "--json", "--checkpoint-out", theirs)
    read = read_checkpoint(theirs.read_text())
    order = Order.of(str(small), checkpoint=theirs.read_text())
    assert (read.epoch, read.position, read.samples) == (0, 640, SAMPLES)
    made = order.checkpoint(0, 640, 64)
    assert made == read and made.text() == theirs.read_text().strip()

    want = [b.samples for b in order.batches(100, position=640, epochs=2)]
    with Loader(small, 100, fields=[], epochs=2) as loader:
        loader.load_state_dict({"version": 1, "checkpoint": made.text(), "ledger": None, "begin": None})
        got = [batch.numbers for _ in range(2) for batch in loader]
    assert got == want
    assert order.batch(0, 640, 100) == pickle.loads(pickle.dumps(order)).batch(0, 640, 100)

    with pytest.raises(CheckpointError, match="the check differs"):
        Order.of(str(small), checkpoint=theirs.read_text().replace('"position":640', '"position":64'))
    with pytest.raises(ConfigError, match="seed: the checkpoint has all"):
        Order.of(str(small), checkpoint=read, seed=3)
    with pytest.raises(CheckpointError, match="another data set: digest"):
        Order.of(str(small), checkpoint=read._replace(digest="other"))
    with pytest.raises(CheckpointError, match="skipped"):
        order.checkpoint(0, 0, skipped=-1)


def test_refusals(small: Path, tmp_path: Path) -> None:
    table = Table([3, 0, 5], [0, 2, 3])
    order = Order(table, Parameters(shuffle=True, lanes=2))
    assert [order.locate(i) for i in (0, 2, 3, 7)] == [(0, 0), (0, 0), (1, 0), (1, 0)]
    assert sorted(order.batch(0, 0, 8).samples) == list(range(8))  # type: ignore[union-attr]
    assert list(Order(Table([], [0]), Parameters()).batches(4, epochs=None)) == []
    for call in (
        lambda: order.locate(8),
        lambda: order.place(0, 9),
        lambda: order.place(2**32, 1),
        lambda: order.batch(0, 0, 0),
        lambda: order.batch(0, 0, 4).part(2, 2),  # type: ignore[union-attr]
        lambda: Order(Table([1], [0, 2]), Parameters()),
        lambda: Order(table, Parameters(tail="wrap", delay=2)),
        lambda: Order(table, Parameters(tail="drop")).batch(0, 0, 9),
        lambda: choose(table, shuffle=True, tail="none"),
        lambda: choose(Table([1] * 1000, [0, 1000], 10**9), shuffle=True, shuffle_memory=10),
        lambda: Order.of(str(small), shuffle=True, shuffle_memory="much"),
    ):
        with pytest.raises(ConfigError):
            call()
    with pytest.raises(NotFoundError, match="no data set"):
        Order.of(str(tmp_path))
    assert skip_hash([]) == ""


def test_no_program_is_needed(tmp_path: Path) -> None:
    """Importing it starts no process and needs no program; without the program, `of` names what is
    missing."""
    text = (
        "import subprocess, os\n"
        "subprocess.Popen = os.execv = None\n"
        "from oracle import Order, Table, Parameters\n"
        "print(Order(Table([4], [0, 1]), Parameters()).batch(0, 0, 3).samples)\n"
        "try: Order.of('out/')\n"
        "except Exception as e: print(type(e).__name__)\n"
    )
    env = {
        "PYTHONPATH": os.pathsep.join(str(ROOT / "python" / part) for part in ("src", ".")),
        "PATH": str(tmp_path),
        "SHARDTOOL_BINARY": str(tmp_path / "none"),
    }
    done = subprocess.run([sys.executable, "-c", text], env=env, check=True, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    out = done.stdout
    assert out.splitlines() == ["[0, 1, 2]", "BinaryError"]


def test_vectors() -> None:
    """The specification's vectors, run by the checker that the repository has for all
    implementations."""
    command = [sys.executable, "-I", str(ROOT / "python" / "order_check.py"), str(ROOT / "testdata" / "order" / "order-vectors.json")]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.endswith(" checks, 0 differ\n")


def test_mix_vectors() -> None:
    """The vectors of mixes, by their checker."""
    command = [sys.executable, "-I", str(ROOT / "python" / "mix_check.py"), str(ROOT / "testdata" / "order" / "mix-vectors.json")]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.endswith(" checks, 0 differ\n")


def test_mix_of_two() -> None:
    """A mix as documented: every batch from a position alone, and a checkpoint that resumes it."""
    tables = [Table([3, 3, 9], [0, 3]), Table([5, 7, 6, 8, 4], [0, 3, 5])]
    sources = [MixSource(name, sum(table.blocks), Parameters(lanes=3)) for name, table in zip(("code", "web"), tables)]
    mix = Mix(sources, [(0, quantize([parse_share("1/4"), parse_share("0.75")]))], epoch_length=60, seed=7)
    orders = [Order(table, mix.parameters(i)) for i, table in enumerate(tables)]
    first = mix.batch(orders, 0, 16)
    assert first is not None and [s for s, _, _ in first.samples].count(0) == 4 and first.next_position == 16
    again = read_mix_checkpoint(MixCheckpoint.at(mix, 16, global_batch=16).text())
    assert again.mix.batch(orders, again.position, 16) == mix.batch(orders, 16, 16)
    with pytest.raises(CheckpointError):
        read_mix_checkpoint(MixCheckpoint.at(mix, 16).text().replace('"position":16', '"position":17'))
    with pytest.raises(ConfigError):
        mix._replace(sources=sources[::-1]).check()


def test_shares_of_tokens() -> None:
    """Half of the tokens each, of samples with 100 and with 4.5 tokens on average."""
    shares = [per_token(parse_share("1/2"), 4000, 40), per_token(parse_share("0.5"), 45, 10), per_token(parse_share("0"), 0, 30)]
    assert quantize(shares) == [184950745, 4110016551, 0]
    with pytest.raises(ConfigError):
        per_token(parse_share("1"), 0, 30)
