"""Programs of the pages without the library that they need: the error names it, and how to get
it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardtool

#: What pages have a user write, and the library that it needs.
NEEDS = [
    ("shardtool.Dataset('out', 4)", "torch"),
    ("shardtool.torch.Prefetcher(shardtool.Loader('out', 4), 'cpu')", "torch"),
    ("from shardtool.torch import Prefetcher", "torch"),
    ("import shardtool.torch", "torch"),
    ("from shardtool.torch.lightning import SteerByLoss", "torch"),
    ("shardtool.Loader('out', 4, format='torch', fields={'cls': 'int'})", "torch"),
    ("shardtool.Loader('out', 4, fields={'cls': 'int'})", "numpy"),
    ("shardtool.Loader('out', 4, format='arrow')", "pyarrow"),
    ("shardtool.open('out', fields={'png': 'image'})[0]['png']", "Pillow"),
    ("shardtool.Image(224)", "numpy"),
    ("shardtool.grain.IterDataset('out', 4)", "grain"),
    ("shardtool.optimize(len, [1], 'made', engine='ray', parts=2)", "ray"),
    ("shardtool.optimize(len, [1], 'made', engine='dask', parts=2)", "distributed"),
    ("shardtool.optimize(len, [1], 'made', engine='spark', parts=2)", "pyspark"),
]


@pytest.mark.parametrize(("program", "library"), NEEDS)
def test_without(tmp_path: Path, program: str, library: str) -> None:
    source = Path(shardtool.__file__).parent.parent
    line = program if "import" in program else "r = " + program
    code = f"import shardtool\nr = None\n{line}\nif isinstance(r, shardtool.Loader): next(iter(r))['cls']"
    with shardtool.Writer(tmp_path / "out", fields={"png": "bytes"}) as w:
        w.write({"__key__": "a", "cls": 1, "png": b"no image"})
    # -S: only what comes with Python
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    said = (done.stderr.strip().splitlines() or [""])[-1]
    assert done.returncode and library in said and "install" in said, done.stderr
    assert not (tmp_path / "made").exists()
