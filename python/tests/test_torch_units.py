"""Packed sequences through torch's DataLoader."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import torch
from conftest import run
from torch.utils.data import DataLoader

import shardtool
from shardtool import Bucket, Loader, Pack


def test_data_loader(tmp_path: Path) -> None:
    """Workers deliver what a Loader does: tensors, numbers, and arrays that no sample has."""
    rows = tmp_path / "rows.jsonl"
    with open(rows, "w") as f:
        for i in range(200):
            n = 1 + i * i % 61
            f.write(json.dumps({"id": f"d{i:03}", "input_ids": [i * 100 + k for k in range(n)], "tokens": n}) + "\n")
    url = tmp_path / "docs"
    run("pack", rows, url, "--key", "id", "--attr", "tokens=tokens", "--block-size", "8KiB", "--quiet")
    pack, bucket = Pack(128, ["input_ids"], plans="none"), Bucket(300, by="tokens", plans="none")
    with Loader(url, 3, shuffle=True, epochs=1, units=pack) as loader:
        want = list(loader)
    assert want[0]["input_ids"].dtype == torch.int64 and want[0]["cu_seqlens"].dtype == torch.int32
    assert isinstance(want[0]["max_seqlen"], int) and isinstance(want[0]["fill"], float)
    for workers in (0, 2):
        got = list(DataLoader(shardtool.Dataset(url, 3, shuffle=True, epochs=1, units=pack), batch_size=None, num_workers=workers))
        assert len(got) == len(want)
        for a, b in zip(want, got):
            assert all(torch.equal(a[name], b[name]) for name in ("input_ids", "position_ids", "document", "cu_seqlens"))
            assert (a["max_seqlen"], a["fill"]) == (b["max_seqlen"], b["fill"])
    again = pickle.loads(pickle.dumps(want[1]))
    assert torch.equal(again["document"], want[1]["document"]) and again.state_dict() == want[1].state_dict()
    assert shardtool.Batch(dict(want[1].items())).state_dict() == want[1].state_dict()
    data = DataLoader(shardtool.Dataset(url, 1, fields=["tokens.txt"], epochs=1, units=bucket), batch_size=None, num_workers=1)
    assert sum(len(batch["length"]) for batch in data) == 200
