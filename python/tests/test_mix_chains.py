"""Elastic chains over mixes: jobs that stop and continue with other ranks, batch sizes, weights and
sources. Every batch of a Loader is the one of the oracle and of ``shardtool cat``."""

from __future__ import annotations

import collections
import os
import random
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from conftest import cat
from mix_help import SIZES, Entry, Got, Model, got, mix_of, pack, yaml_of

from oracle import split
from shardtool import Loader, Mix, Order

CHAINS = int(os.environ.get("SHARDTOOL_MIX_CHAINS", "24"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixes")
    for name, samples in SIZES.items():
        pack(out, name, samples)
    return out


def any_mix(rng: random.Random, base: Path, position: int) -> Dict[str, Any]:
    """A mix of some of the sources, with a change of its weights ahead or not."""
    names = rng.sample(sorted(SIZES), rng.randrange(1, len(SIZES) + 1))
    more: Dict[str, Any] = {}
    if rng.random() < 0.5:
        weights = {name: rng.randrange(1, 9) for name in rng.sample(names, rng.randrange(1, len(names) + 1))}
        more = {"segments": [{"at": position + rng.randrange(20, 200), "weights": weights}]}
    return mix_of(base, {name: rng.randrange(1, 9) for name in names}, **more)


class Leg:
    """One start of a job: batches that all its ranks deliver, and the state after them."""

    def __init__(self, mix: Dict[str, Any], state: Optional[Dict[str, Any]], options: Dict[str, Any], world: int) -> None:
        self.mix, self.state, self.options, self.world = mix, state, options, world

    def through_loaders(self, batches: int) -> List[List[Got]]:
        """The batches by rank. One loop may reach over epochs."""
        out = []
        states = []
        for rank in range(self.world):
            changes = {name: self.options[name] for name in ("change_mix", "skip_steps") if name in self.options}
            given = {name: value for name, value in self.options.items() if name not in changes}
            with Loader(Mix(self.mix, **changes), rank=rank, world_size=self.world, fields={"txt": "txt"}, **given) as loader:
                if self.state is not None:
                    loader.load_state_dict(self.state)
                mine: List[Got] = []
                while len(mine) < batches:
                    for batch in loader:
                        mine.append(got(batch))
                        if len(mine) == batches:
                            break
                states.append(loader.state_dict())
                out.append(mine)
        assert all(state == states[0] for state in states)
        self.state = states[0]
        return out

    def through_cat(self, rank: int, samples: int, folder: Path) -> List[Entry]:
        """The first samples of a rank."""
        o, flags = self.options, []
        if self.state is not None:
            (folder / "at").write_text(self.state["checkpoint"])
            flags = ["--checkpoint-in", folder / "at", *(["--change-mix"] if o.get("change_mix") else [])]
        else:
            flags = ["--shuffle", "--seed", o["seed"], "--tail", o["tail"]]
        if o.get("skip_steps"):
            flags += ["--skip-steps", "{}-{}".format(*o["skip_steps"])]
        split_flags = ["--global-batch", o["order"].global_batch, "--rank", rank, "--world-size", self.world]
        lines = cat(yaml_of(self.mix, folder / "mix.yaml"), *flags, *split_flags, "--epochs", 0, "--limit", samples)
        return [(line["source"], line["epoch"], line["number"]) for line in lines]


def follow(model: Model, batches: int, world: int) -> Tuple[List[List[Got]], List[Entry]]:
    """The batches of the model by rank, and all its samples."""
    out: List[List[Got]] = [[] for _ in range(world)]
    everything = []
    for _ in range(batches):
        batch = model.next()
        assert batch is not None
        everything += model.entries(batch.samples[: batch.real])
        for rank, part in enumerate(split(batch.samples, world)):
            out[rank].append(Got(model.entries(part), model.checkpoint()))
    return out, everything


@pytest.mark.parametrize("chain", range(CHAINS))
def test_chain(base: Path, tmp_path: Path, chain: int) -> None:
    rng = random.Random(chain)
    tail, seed = rng.choice(["wrap", "wrap", "short", "pad", "drop"]), rng.randrange(2**64)
    mix = any_mix(rng, base, 0)
    model, state = Model(base, mix, seed, tail), None
    delivered: List[Entry] = []
    for leg in range(rng.randrange(3, 6)):
        options: Dict[str, Any] = {"seed": seed, "shuffle": True, "tail": tail}
        world, global_batch = rng.randrange(1, 4), rng.choice([7, 24, 60])
        if leg > 0 and rng.random() < 0.6:
            mix = any_mix(rng, base, model.position)
            model.change(mix)
            options["change_mix"] = True
        model.size(global_batch)
        options["order"] = Order(global_batch=global_batch)
        batches = rng.randrange(1, 12)
        if rng.random() < 0.3:
            options["skip_steps"] = skip = (model.step + rng.randrange(2), model.step + rng.randrange(2, 4))
            model.skip(*skip)
            batches = max(batches, 3)
        if leg > 1 and rng.random() < 0.5:
            options = {name: value for name, value in options.items() if name not in ("seed", "shuffle", "tail")}  # the state has them
        job = Leg(mix, state, options, world)
        want, everything = follow(model, batches, world)
        rank = rng.randrange(world)
        mine = [entry for batch in want[rank] for entry in batch.samples]
        if mine:
            assert job.through_cat(rank, len(mine), tmp_path) == mine
        assert job.through_loaders(batches) == want
        delivered += everything
        state = job.state
    check_counts(model, delivered)


def check_counts(model: Model, delivered: List[Entry]) -> None:
    """Nothing was repeated. If no places were left out, every source has given its count."""
    assert len(set(delivered)) == len(delivered)
    if model.left_out or model.tail == "drop":
        return
    counted = dict(zip((s.name for s in model.mix.sources), model.mix.counts(model.position)))
    assert collections.Counter(source for source, _, _ in delivered) == collections.Counter({k: n for k, n in counted.items() if n})
