"""The crops and flips of images: the same numbers as those recorded."""

from __future__ import annotations

import json
import random
from typing import Any, Dict

from conftest import ROOT

from shardtool._read.decoding import Pixels

#: A line for each image.
VECTORS = ROOT / "testdata" / "order" / "crop-vectors.jsonl"


def drawn(of: Dict[str, Any]) -> Dict[str, Any]:
    """What the seed of a sample chooses."""
    image = Pixels()
    image.size, image.crop, image.scale, image.ratio = tuple(of["size"]), of["crop"], tuple(of["scale"]), tuple(of["ratio"])
    draw = random.Random(of["seed"])
    return {"box": list(image._box(draw, *of["image"])), "mirrored": draw.random() < 0.5}


def vectors() -> "list[Dict[str, Any]]":
    """The inputs of the file. To make it anew: python -c 'import test_crops; test_crops.write()'"""
    draw, out = random.Random(1), []
    for i in range(300):
        image = [draw.randint(1, 1 << draw.randint(1, 14)) for _ in range(2)]
        size = [draw.randint(1, 512)] * 2 if i % 2 else [draw.randint(1, 1 << 14), draw.randint(1, 512)]
        scale = sorted(draw.random() for _ in range(2)) if i % 3 else [0.08, 1.0]
        ratio = sorted(draw.random() * 4 + 0.01 for _ in range(2)) if i % 5 else [3 / 4, 4 / 3]
        seed = draw.getrandbits(draw.choice([8, 32, 33, 64]))
        crop = ["random", "random", "random", "center", "none"][i // 7 % 5]
        out.append({"image": image, "size": size, "crop": crop, "scale": scale, "ratio": ratio, "seed": seed})
    return out


def write() -> None:
    VECTORS.write_text("".join(json.dumps({**of, **drawn(of)}) + "\n" for of in vectors()))


def test_vectors() -> None:
    lines = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    assert lines == [{**of, **drawn(of)} for of in vectors()]
