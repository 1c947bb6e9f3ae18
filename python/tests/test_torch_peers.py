"""Peers of a rank as a process group of torch.distributed, and as one dimension of a mesh."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

import shardtool
from shardtool import ConfigError, Loader, Tuning

PROGRAM = """
import json, sys
import torch.distributed as dist
import shardtool

class Mesh:  # one dimension of a DeviceMesh, which torch 1 lacks
    ndim, mesh = 1, None
    def __init__(self, group): self.group = group
    def get_group(self): return self.group

url, index, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=4)
groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
rank = index // 2
peers = groups[rank] if rank == 0 else Mesh(groups[rank])
tuning, given = shardtool.Tuning(peers=peers), {"shuffle": True, "seed": 5, "epochs": 2, "rank": rank, "world_size": 2}
out = []
with shardtool.Loader(url, 25, fields={"x.npy": "npy", "cls": "int"}, tuning=tuning, **given) as loader:
    for epoch in range(2):
        for batch in loader:
            out.append([batch.sample_keys, repr(batch["x.npy"]), batch["cls"].tolist(), loader.state_dict()])
print(json.dumps(out))
dist.destroy_process_group()
"""


def test_groups(small: Path, tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    src = str(Path(shardtool.__file__).parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {src!r})\n{PROGRAM}", str(small)]
    made = [subprocess.Popen([*command, str(i), str(port)], stdout=subprocess.PIPE) for i in range(4)]
    got: List[Any] = [json.loads(p.communicate(timeout=300)[0]) for p in made]
    assert got[0] == got[1] and got[2] == got[3]
    for rank in range(2):
        given: Dict[str, Any] = {"shuffle": True, "seed": 5, "epochs": 2, "rank": rank, "world_size": 2}
        with Loader(small, 25, fields={"x.npy": "npy", "cls": "int"}, **given) as loader:
            want = [[b.sample_keys, repr(b["x.npy"]), b["cls"].tolist(), loader.state_dict()] for _ in range(2) for b in loader]
        assert got[2 * rank] == want and len(want) == 40


def test_refused(small: Path) -> None:
    class Mesh:
        ndim, mesh = 2, None

        def get_group(self) -> None:
            raise AssertionError

    with pytest.raises(ConfigError, match="one dimension of the device mesh"):
        Loader(small, 5, rank=0, world_size=1, tuning=Tuning(peers=Mesh()))
    with pytest.raises(ConfigError, match="a Dataset reads by itself"):
        shardtool.Dataset(small, 5, rank=0, world_size=1, tuning=Tuning(peers=Mesh()))
