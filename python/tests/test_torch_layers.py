"""The programs of docs/layers.md, unchanged, in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from conftest import run
from pages_help import blocks, run_blocks

import shardtool

N = 100


def test_commands(tmp_path: Path) -> None:
    """What the page shows before its recipes."""
    numpy = pytest.importorskip("numpy")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("PIL")
    keys = [f"dog/{i}" for i in range(N)]
    with shardtool.Writer(tmp_path / "photos", fields={"jpg": "jpg:90"}) as w:
        for i, key in enumerate(keys):
            w.write({"__key__": key, "jpg": numpy.full((32, 32, 3), i, "u1"), "txt": f"old {i}", "json": {"i": i}})
    for name, rows in (("captions", keys[::-1]), ("fixed", keys[:3])):
        table = arrow.table({"id": rows, "caption": [f"{name} {key}" for key in rows]})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    numpy.save(tmp_path / "emb.npy", numpy.arange(N * 4, dtype="f4").reshape(N, 4))
    parts = blocks("layers.md")[:4]
    assert [kind for kind, _ in parts] == ["sh", "sh", "python", "python"]
    (tmp_path / "train").write_text("#!/bin/sh\nexec cat > /dev/null\n")
    (tmp_path / "train").chmod(0o755)
    before = "import os, shardtool\nos.environ['PATH'] += ':' + os.getcwd()\nanswers = [('dog/5', 'a note')]"
    after = """
read = {}
fields = {"caption": "txt", "emb.npy": "npy", "note": "txt?"}
for batch in shardtool.Loader("photos/", 7, epochs=1, layers=["captions", "clip", "notes"], fields=fields):
    read.update(zip(batch.sample_keys, zip(batch["caption"], batch["emb.npy"][:, 0].tolist(), batch["note"])))
first = next(iter(loader))
print(len(read), read["dog/2"], read["dog/5"], tuple(first["jpg"].shape), len(shardtool.open("flat/")))
"""
    got = run_blocks([*parts, ("python", after)], tmp_path, before)
    assert got == f"{N} ('fixed dog/2', 8.0, None) ('captions dog/5', 20.0, 'a note') ({N}, 3, 224, 224) {N}\n"


def test_page(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("PIL")
    rnd = numpy.random.default_rng(1)
    with shardtool.Writer(tmp_path / "photos", fields={"jpg": "jpg:90"}, shard_size="128KiB", block_size="16KiB") as w:
        for i in range(N):
            pixels = rnd.integers(0, 40 + 2 * i, (64, 64, 3)).astype("uint8")
            w.write({"__key__": f"{i:05d}", "jpg": pixels})
    order = list(range(N))
    random.Random(1).shuffle(order)
    table = arrow.table({"id": [f"{i:05d}" for i in order], "emb": [[float(i)] * 8 for i in order]})
    parquet.write_table(table, tmp_path / "embeddings.parquet")

    parts = blocks("layers.md")[4:]
    assert [kind for kind, _ in parts] == ["python", "sh", "python", "python", "sh", "python", "python"]
    assert run_blocks(parts, tmp_path).splitlines() == [str(N)]

    layers = ["captions", "clip", "quality", tmp_path / "mine" / "captions"]
    with pytest.raises(shardtool.ShardtoolError, match="caption"):  # two layers have it
        next(iter(shardtool.Loader(tmp_path / "photos", 10, layers=layers)))
    fields = {"emb.npy": "npy", "contrast": "float", "caption": "txt"}
    scores = {}
    with shardtool.Loader(tmp_path / "photos", 10, layers=layers[:3], fields=fields, epochs=1, shuffle=True) as loader:
        for batch in loader:
            assert batch["emb.npy"][:, 0].tolist() == [float(key) for key in batch.sample_keys]
            scores.update(zip(batch.sample_keys, batch["contrast"].tolist()))
    good = {key for key, score in scores.items() if score >= 20}
    assert 0 < len(good) < N and len(shardtool.open(f"{tmp_path / 'photos'}#good")) == len(good)
    ls = run("layer", "ls", tmp_path / "photos").stdout
    assert f"latents: latent, covers {N} of {N} samples" in ls and f"no row for {N - len(good)}" in ls
