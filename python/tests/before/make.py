"""Makes the data set and states.json: run with the release before the one that tests them.

    PYTHONPATH=.../python/src SHARDTOOL_BINARY=.../bin/shardtool python make.py

The files here are of commit 946722f4, the last whose padding was zeros and whose default was
``wrap``.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Dict, List

import shardtool

HERE = Path(__file__).resolve().parent
SAMPLES, BATCH, EPOCHS = 100, 30, 3


def pack() -> None:
    """Makes the data set: sample i has the content i."""
    source = io.BytesIO()
    with tarfile.open(fileobj=source, mode="w") as tar:
        for i in range(SAMPLES):
            info, data = tarfile.TarInfo(f"{i:03d}.cls"), b"%d" % i
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with open(HERE / "src.tar", "wb") as file:
        file.write(source.getvalue())
    command = [
        os.environ["SHARDTOOL_BINARY"],
        "pack",
        HERE / "src.tar",
        HERE / "out",
        "--quiet",
        "--block-size",
        "16KiB",
        "--shard-size",
        "32KiB",
    ]
    subprocess.run(command, check=True)
    (HERE / "src.tar").unlink()
    (HERE / "out" / ".shardtool.lock").unlink(missing_ok=True)


def states(**options: Any) -> Dict[str, Any]:
    """What an undisturbed job sees, and its states by the number of batches."""
    batches: List[Any] = []
    with shardtool.Loader(str(HERE / "out"), BATCH, shuffle=True, seed=3, fields=["cls"], **options) as loader:
        saved = [loader.state_dict()]
        for _ in range(EPOCHS):
            for batch in loader:
                batches.append([batch.epoch, batch.padding, batch.numbers])
                saved.append(loader.state_dict())
    return {"batches": batches, "states": {done: saved[done] for done in (2, 4, 5, 8)}}


if __name__ == "__main__":
    pack()
    made = {name: states(**options) for name, options in {"pad": {"tail": "pad"}, "wrap": {"tail": "wrap"}, "default": {}}.items()}
    (HERE / "states.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")
