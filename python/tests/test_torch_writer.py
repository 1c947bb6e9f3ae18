"""Tensors that are written and read, and images of a Dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_image_fields import picture

import shardtool
from shardtool import EncodeError, Writer


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("torch") / "out"
    with Writer(url, fields={"jpg": "jpg:95"}, block_size="16KiB") as w:
        for i in range(100):
            x = torch.full((2, 3), float(i), requires_grad=True)
            w.write({"jpg": picture(i), "x": x, "turned": x.T, "cls": i, "some": 1 if i % 2 else None})
        with pytest.raises(EncodeError, match=r"tensor.float\(\)"):
            w.write({"x": torch.zeros(2, dtype=torch.bfloat16)})
        with pytest.raises(EncodeError, match=r"tensor.to_dense\(\)"):
            w.write({"x": torch.zeros(2).to_sparse()})
    return url


@pytest.mark.parametrize("workers", [0, 2])
def test_typed_dataset(written: Path, workers: int) -> None:
    """Without fields, tensors as they were written, in worker processes too."""
    data = shardtool.Dataset(written, 20, epochs=1)
    for batch in torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers):
        assert batch["x"].shape == (len(batch["cls"]), 2, 3) and batch["turned"].shape[1:] == (3, 2)
        assert torch.equal(batch["x"][:, 0, 0].long(), batch["cls"]) and isinstance(batch["some"], list)


@pytest.mark.parametrize("workers", [0, 2])
def test_images(written: Path, workers: int) -> None:
    """The same crops as without worker processes."""
    fields = {"jpg": shardtool.Image(16, crop="random", flip=True), "cls": "int"}
    with shardtool.Loader(written, 20, fields=fields, epochs=1, shuffle=True, seed=3, tuning=shardtool.Tuning(out="numpy")) as loader:
        whole = {int(n): p.copy() for batch in loader for p, n in zip(batch["jpg"], batch["cls"])}
    data = shardtool.Dataset(written, 20, fields=fields, epochs=1, shuffle=True, seed=3)
    seen = 0
    for batch in torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers):
        assert isinstance(batch["jpg"], torch.Tensor) and batch["jpg"].dtype == torch.uint8
        for p, n in zip(batch["jpg"], batch["cls"]):
            assert np.array_equal(p.numpy(), whole[int(n)])
            seen += 1
    assert seen == 100
