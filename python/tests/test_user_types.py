"""A program that uses the package passes `mypy --strict`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardtool

PROGRAM = """
from typing import Any, Dict, Iterator

import shardtool
import shardtool.grain
import shardtool.torch
from shardtool import Bucket, Faults, Image, Mix, Order, Pack, Source, Tuning


def count(batch: shardtool.Batch) -> int:
    return batch.size


def samples(path: str) -> Iterator[Dict[str, Any]]:
    yield {"text": path}


loader = shardtool.Loader("out/", 64, fields={"jpg": Image(224), "cls": "int"}, order=Order(lanes=4), tuning=Tuning(prefetch=2))
for batch in loader:
    keys, seeds, state = batch.sample_keys, batch.seeds, loader.state_dict()
    reveal_type(batch)
counted = shardtool.Loader(Mix({"sources": {"a": {"data": "out/"}}}, change_mix=True), 8, map_batch=count, faults=Faults(on_error="skip"))
for number in counted:
    reveal_type(number)
mapped = shardtool.Dataset(Source("out/", view="clean"), 8, map_batch=count)
for number in mapped:
    reveal_type(number)
for named in shardtool.Dataset("out/", 8):
    reveal_type(named)
packed = shardtool.Loader("out/", 4, units=Pack(2048, ["input_ids"]))
bucket = shardtool.Loader("out/", 4, units=Bucket(4096))
with shardtool.open("out/", fields={"txt": "txt"}) as ds:
    reveal_type(ds[0])
    reveal_type(ds[1:3])
with shardtool.Writer("out/", fields={"x": "jpg:92"}, on_exists="resume") as w:
    w.write({"x": b"", "y": None})
shardtool.optimize(samples, ["a", "b"], "out/", workers=2)
stats: shardtool.Stats = loader.stats()
source = shardtool.grain.Source("out/", fields=["x"])
reveal_type(source[0])
elements = shardtool.grain.IterDataset("out/", 8, order=Order(lanes=4))
shardtool.grain.restore("checkpoint/", iter(elements.map(count)))
"""


def test_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--ignore-missing-imports"]
    command = [*command, "--cache-dir", str(tmp_path / "cache"), "--config-file", os.devnull, str(program)]
    env = {**os.environ, "MYPYPATH": str(Path(shardtool.__file__).parents[1])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith("program.py") and "error" in line]
    notes = [line.partition("Revealed type is ")[2].strip('"') for line in done.stdout.splitlines() if "Revealed" in line]
    assert errors == [], done.stdout
    kinds = [
        "shardtool.batch.Batch",
        "int",
        "int",
        "shardtool.torch.named.NamedBatch",
        "shardtool.samples.Sample",
        "list[shardtool.samples.Sample]",
        "dict[str, Any] | None",
    ]
    assert [n.replace("builtins.", "") for n in notes] == kinds, done.stdout
