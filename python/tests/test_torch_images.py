"""Images: the programs of docs/pytorch.md, and files that are no images."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, List

import PIL.Image
import pytest
import torch
from conftest import ROOT, run
from torch.utils.data import DataLoader

import shardtool
import shardtool.torch
from shardtool import DecodeError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def tree(base: Path) -> Path:
    """Two classes of 40 images, a few of them gray, in the layout of ImageNet."""
    for i in range(80):
        folder = base / "train" / f"n{i % 2:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        out = io.BytesIO()
        PIL.Image.effect_noise((40 + i, 60), 50).convert("L" if i % 7 == 0 else "RGB").save(out, "JPEG")
        (folder / f"n{i % 2:08d}_{i}.JPEG").write_bytes(out.getvalue())
    return base / "train"


def program(name: str, *changes: Any) -> str:
    """A program of the page, with less to do."""
    match = re.search(rf"<!-- tested: {name} -->\n```python\n(.*?)```", (ROOT / "docs" / "pytorch.md").read_text(), re.S)
    assert match
    text = match[1]
    for here, there in changes:
        assert here in text
        text = text.replace(here, there)
    return text


@pytest.mark.parametrize("name", ["images", "workers"])
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The same augmentation in each run, and another for each batch."""
    pytest.importorskip("torchvision")
    run("pack", tree(tmp_path), tmp_path / "out", "--class-field", "cls", "--pack-shuffle", "7", "--quiet")
    monkeypatch.chdir(tmp_path)
    changes = [("batch_size=64", "batch_size=16"), (", 90)", ", 2)")]
    changes += [("epochs=90", "epochs=2")] if name == "images" else [("num_workers=8", "num_workers=2"), ("pin_memory=True, ", "")]
    seen: List[int] = []
    pixels: List[Any] = []

    def train(images: Any, labels: Any) -> None:
        assert images.shape == (16, 3, 224, 224) and images.dtype == torch.float32 and labels.dtype == torch.int64
        seen.extend(labels.tolist())
        pixels.append(images.double().sum().item())

    for _ in range(2):
        scope = {"shardtool": shardtool, "torch": torch, "train": train}
        exec(program(name, *changes), scope)
    assert len(seen) == 320 and sum(seen) == 160
    assert pixels[:10] == pixels[10:] and len(set(pixels)) == 10
    assert scope["saved"]["version"] == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_not_an_image(tmp_path: Path, workers: int) -> None:
    """The worker's error is raised in turn, with its key."""
    source = tree(tmp_path)
    (source / "n00000001" / "n00000001_41.JPEG").write_bytes(b"no image")
    run("pack", source, tmp_path / "out", "--quiet")
    dataset = shardtool.Dataset(tmp_path / "out", 10, fields={"JPEG": "image:RGB"})
    n = 0
    it = iter(DataLoader(dataset, batch_size=None, num_workers=workers))
    with pytest.raises(DecodeError, match=r"n00000001/n00000001_41.*cannot decode"):
        for batch in it:
            assert [i.mode for i in batch["JPEG"]] == ["RGB"] * 10
            n += 1
    getattr(it, "_shutdown_workers", int)()
    assert n == 5
    dataset.close()
