"""Weights of a mix that a training program sets in mid-run."""

from __future__ import annotations

import json
import logging
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from mix_help import SIZES, Model, got, mix_of, pack, yaml_of
from test_mix_chains import follow

from oracle import parse_share, quantize
from shardtool import Faults, Loader, Mix, Order, Tuning
from shardtool.errors import CheckpointError, ConfigError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mixes")
    for name, samples in SIZES.items():
        pack(out, name, samples)
    return out


FIELDS = {"txt": "txt"}
NAMES = sorted(SIZES)


def steer(model: Model, weights: Dict[str, Any]) -> None:
    """What the oracle does where a program sets weights."""
    shares = [parse_share(str(weights.get(s.name, 0))) for s in model.mix.sources]
    model.mix = model.mix.steer(model.position, quantize(shares))
    model.mix.check()


def any_weights(rng: random.Random) -> Dict[str, Any]:
    names = rng.sample(NAMES, rng.randrange(1, len(NAMES) + 1))
    return {name: rng.choice([rng.randrange(1, 9), round(rng.uniform(0.01, 1), 3)]) for name in names}


@pytest.mark.parametrize("chain", range(12))
def test_chain(base: Path, chain: int) -> None:
    """Loaders whose loops set weights, and which are left and resumed on other ranks, have the
    batches and states of the oracle."""
    rng = random.Random(chain)
    tail, seed = rng.choice(["wrap", "short", "pad", "drop"]), rng.randrange(2**64)
    mix = mix_of(base, {name: rng.randrange(1, 9) for name in NAMES}, segments=[{"at": 150, "weights": {"web": 1}}])
    model, state = Model(base, mix, seed, tail), None
    for _ in range(3):
        world, global_batch = rng.randrange(1, 4), rng.choice([7, 24, 60])
        model.size(global_batch)
        legs = [(rng.randrange(0, 6), [any_weights(rng) for _ in range(rng.randrange(3))]) for _ in range(3)]
        want: List[Any] = [[] for _ in range(world)]
        for batches, sets in legs:
            for weights in sets:
                steer(model, weights)
            parts, _ = follow(model, batches, world)
            for mine, part in zip(want, parts):
                mine += part
        at = model.checkpoint()
        states = []
        for rank in range(world):
            more: Dict[str, Any] = {"tuning": Tuning(prefetch=rng.randrange(6))} if rng.random() < 0.5 else {}
            if rng.random() < 0.3:
                more["faults"] = Faults(on_error="skip")  # each start has a stream of its own
            with Loader(
                mix,
                shuffle=True,
                seed=seed,
                tail=tail,
                rank=rank,
                world_size=world,
                fields=FIELDS,
                order=Order(global_batch=global_batch),
                **more,
            ) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                mine = []
                batches_of = _endless(loader)
                for batches, sets in legs:
                    for weights in sets:
                        loader.set_weights(weights)
                    mine += [got(next(batches_of)) for _ in range(batches)]
                assert mine == want[rank]
                states.append(loader.state_dict())
        assert all(one["checkpoint"] == at for one in states)
        state = states[0]


def _endless(loader: Any) -> Any:
    while True:
        yield from loader


def _loader(base: Path, *, mix: Optional[Any] = None, **options: Any) -> Any:
    mix = mix_of(base, {"code": 1, "web": 3}) if mix is None else mix
    return Loader(mix, 10, **{"shuffle": True, "seed": 3, "fields": FIELDS, **options})


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ({"code": -1, "web": 1}, "source 'code': weight -1: give a finite number"),
        ({"code": float("nan")}, "weight nan"),
        ({"code": float("inf")}, "weight inf"),
        ({"code": 0, "web": 0.0}, "all weights are 0"),
        ({}, "all weights are 0"),
        ({"cod": 1}, "there is no source 'cod': the mix has code, web"),
        ({"code": "much"}, "'much' is no number"),
        ({"code": True}, "weight True"),
        ({"code": None}, "None is no number"),
        ([1, 2], "give a dict of the weights"),
        ({"code": 1, "web": 1e-12}, 'source "web": its share is below 2^-32'),
    ],
)
def test_refused(base: Path, weights: Any, problem: str) -> None:
    """The loop goes on as before, without a lost batch."""
    with _loader(base) as loader, _loader(base) as other:
        for step, (batch, same) in enumerate(zip(loader, other)):
            assert got(batch) == got(same)
            if step == 2:
                with pytest.raises(ConfigError) as caught:
                    loader.set_weights(weights)
                assert problem in str(caught.value)
            if step == 5:
                break
        assert loader.state_dict() == other.state_dict()


def test_one_data_set(base: Path) -> None:
    with Loader(base / "code", 10) as loader, pytest.raises(ConfigError, match="one data set: weights are for the sources of a mix"):
        loader.set_weights({"code": 1})


def test_state(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A state has the weights, and a resume takes them, also with another mix file. A mix that may
    change, and has other sources, has its own."""
    mix = mix_of(base, {"code": 1, "web": 3}, segments=[{"at": 200, "weights": {"code": 1}}])
    with _loader(base, mix=mix) as loader, caplog.at_level(logging.INFO, "shardtool"):
        it = iter(loader)
        batch = next(it)
        loader.set_weights({"web": Fraction(1, 4), "code": Decimal("0.75")})
        state, before = loader.state_dict(), batch.state_dict()
        rest = [got(next(it)) for _ in range(6)]
    assert json.loads(state["checkpoint"])["steered"][0] == 10
    assert "steered" not in json.loads(before["checkpoint"])
    assert "weights from position 10 on: code 0.75, web 0.25" in caplog.text
    assert "the segment of the mix at position 200 is dropped" in caplog.text
    other = mix_of(base, {"code": 9, "web": 1})
    for given in (mix, other):
        with _loader(base, mix=given) as loader:
            loader.load_state_dict(state)
            it = iter(loader)
            assert [got(next(it)) for _ in range(6)] == rest
    with _loader(base, mix=Mix(other, change_mix=True)) as loader:
        loader.load_state_dict(state)
        it = iter(loader)
        assert [got(next(it)) for _ in range(6)] == rest  # nothing but the weights has changed
        assert len(loader) == 50
    more = Mix(mix_of(base, {"code": 9, "web": 1, "math": 0.001}), change_mix=True)
    with _loader(base, mix=more) as loader:
        loader.load_state_dict(state)
        counts = [source for batch in list(loader)[:20] for source in batch.sources]
        assert counts.count("code") > 170
        assert "steered" not in loader.state_dict()["checkpoint"]
    with _loader(base, mix=mix) as loader:
        loader.load_state_dict(before)
        it = iter(loader)
        assert [got(next(it)) for _ in range(6)] != rest
    with pytest.raises(CheckpointError, match="different steps or jobs"):
        loader.load_state_dict([state, before])


def test_change_mix_once(base: Path) -> None:
    """change_mix allows a change where the loader resumes, and does not bring back the weights of
    the file in a later epoch."""
    with _loader(base) as loader:
        next(iter(loader))
        state = loader.state_dict()
    changed = mix_of(base, {"code": 9, "web": 1}, epoch=500)
    with _loader(base, mix=Mix(changed, change_mix=True)) as loader:
        loader.load_state_dict(state)
        next(iter(loader))
        loader.set_weights({"web": 1})
        for _ in range(2):
            for batch in loader:
                assert set(batch.sources) == {"web"}
                break
        loader.set_epoch(4)
        assert set(next(iter(loader)).sources) == {"web"}


def test_places(base: Path) -> None:
    """Before the first batch, at the end of an epoch, after a loop that was left, and with an epoch
    that was set."""
    with _loader(base) as loader:
        loader.set_weights({"code": 1})
        assert loader.epoch == 0
        batches = list(loader)
        assert len(batches) == len(loader) == 50
        assert {source for batch in batches for source in batch.sources} == {"code"}
        loader.set_weights({"web": 1})
        for batch in loader:
            assert (batch.epoch, set(batch.sources)) == (1, {"web"})
            loader.set_weights({"web": 1, "code": 1})
            break
        batch = next(iter(loader))
        assert (batch.epoch, set(batch.sources)) == (2, {"web", "code"})
        loader.load_state_dict(loader.state_dict())
        loader.set_epoch(7)
        loader.set_weights({"code": 1})
        batch = next(iter(loader))
        assert (batch.epoch, set(batch.sources)) == (7, {"code"})
        assert loader.stats().batches == 53


def test_the_end(base: Path) -> None:
    """A stream whose sources are used up ends there, and len() knows it."""
    mix = mix_of(base, {"code": 1, "web": 1, "math": 0})
    for source in mix["sources"].values():
        source["max_epochs"] = 1
    with _loader(base, mix=mix, tail="short") as loader:
        assert len(loader) == 41
        it = iter(loader)
        next(it)
        loader.set_weights({"code": 1})
        assert len(loader) == 16  # code gives the 145 that it has left
        assert sum(1 for _ in it) == 15
        loader.set_weights({"math": 1})
        assert [batch.size for batch in loader] == [10, 10, 10, 10]


def test_explain(base: Path, tmp_path: Path) -> None:
    """What the program prints of a state."""
    from conftest import run

    with _loader(base) as loader:
        next(iter(loader))
        loader.set_weights({"web": 1})
        (tmp_path / "state").write_text(loader.state_dict()["checkpoint"])
    assert "the training program set the weights at position 10, step 1" in run("explain", tmp_path / "state").stdout
    yaml_of(mix_of(base, {"code": 1, "web": 3}), tmp_path / "mix.yaml")
    assert " 100.00%" in run("explain", tmp_path / "state", tmp_path / "mix.yaml").stdout
