"""The programs and commands of docs/start-*.md, on raw data as users have it."""

from __future__ import annotations

import csv
import json
import wave
from pathlib import Path
from typing import Callable

import pytest
from pages_help import blocks, run_blocks

np = pytest.importorskip("numpy")
image = pytest.importorskip("PIL.Image")

# What a loop does with a batch: each page says what it gets.
TRAIN = """
steps = []
def train(*values):
    steps.append([tuple(v.shape) if hasattr(v, "shape") else len(v) for v in values])
"""


def language(raw: Path) -> None:
    for source, word in (("web", "prose "), ("code", "x = 1; ")):
        (raw / source).mkdir(parents=True)
        for file in range(3):
            with (raw / source / f"{file:03d}.jsonl").open("w") as f:
                for i in range(60):
                    f.write(json.dumps({"text": word * (1 + (file + 7 * i) % 90)}) + "\n")


def picture(path: Path, i: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(np.random.default_rng(i).integers(0, 255, (72 + i % 9, 80, 3), dtype="u1")).save(path)


def images(raw: Path) -> None:
    for part, n in (("train", 40), ("val", 10)):
        for cls, many in (("ant", n), ("bee", n // 2), ("cat", n // 4)):
            for i in range(many):
                picture(raw / part / cls / f"{cls}{i:03d}.jpg", i)


def vision_language(raw: Path) -> None:
    for i in range(100):
        picture(raw / f"images/{i:03d}.jpg", i)
    with (raw / "metadata.jsonl").open("w") as f:
        f.writelines(json.dumps({"file_name": f"images/{i:03d}.jpg", "text": f"caption {i}"}) + "\n" for i in range(100))


def audio(raw: Path) -> None:
    raw.mkdir()
    with (raw / "metadata.csv").open("w", newline="") as table:
        rows = csv.writer(table)
        rows.writerow(["file_name", "text", "duration_ms"])
        for i in range(80):
            ms = 400 + 97 * (i % 37)
            with wave.open(str(raw / f"{i:03d}.wav"), "wb") as f:
                f.setnchannels(1)
                f.setsampwidth(2)
                f.setframerate(8000)
                f.writeframes(np.zeros(8 * ms, "<i2").tobytes())
            rows.writerow([f"{i:03d}.wav", f"words {i}", ms])


def tables(raw: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    raw.mkdir()
    rnd = np.random.default_rng(1)
    for file in range(2):
        n = 2000
        dense = arrow.FixedSizeListArray.from_arrays(arrow.array(rnd.random(13 * n, dtype="f4")), 13)
        split = ["train" if i % 10 else "test" for i in range(n)]
        columns = {name: rnd.integers(0, high, n) for name, high in (("user", 999), ("item", 999), ("click", 2))}
        parquet.write_table(arrow.table({**columns, "dense": dense, "split": split}), raw / f"part-{file:05d}.parquet")


@pytest.mark.parametrize(
    "page, made, steps, first",
    [
        ("start-language.md", language, 11, [(4, 512)] * 3),
        ("start-images.md", images, 6, [(32, 3, 64, 64), (32,)]),
        ("start-vision-language.md", vision_language, 5, [(16, 3, 64, 64), 16]),
        ("start-audio.md", audio, None, None),
        ("start-tables.md", tables, 15, [(256,), (256,), (256, 13), (256,)]),
    ],
)
def test_page(tmp_path: Path, page: str, made: Callable[[Path], None], steps: int | None, first: object) -> None:
    made(tmp_path / "raw")
    out = run_blocks([*blocks(page), ("python", "print(len(steps), steps[0])")], tmp_path, TRAIN)
    if steps is not None:
        assert out == f"{steps} {first}\n"
    else:  # batches of similar length
        assert int(out.split()[0]) > 10
