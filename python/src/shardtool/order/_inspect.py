"""Reads the table of a data set through ``shardtool inspect``."""

from __future__ import annotations

import json
import os
import subprocess
from typing import List, Tuple

from .. import _binary
from ..errors import BinaryError, CheckpointError, ConfigError, CorruptError, NotFoundError, ShardtoolError

_KINDS = {2: ConfigError, 3: CorruptError, 6: NotFoundError, 7: CheckpointError}


def inspect(url: str) -> Tuple[List[int], List[int], int, str, str, List[str]]:
    """Returns the members of a Table."""
    binary = _binary.find()
    try:
        command = [binary, "inspect", "--json", "--blocks", "--", os.fspath(url)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", check=False)
    except OSError as err:
        raise BinaryError(f"{binary} does not start: {err.strerror}") from err
    if done.returncode != 0:
        words = done.stderr.strip()
        raise _KINDS.get(done.returncode, ShardtoolError)(words[len("shardtool: ") :] if words.startswith("shardtool: ") else words)
    said = json.loads(done.stdout)
    blocks: List[int] = []
    first = [0]
    for shard in said["shard_list"]:
        blocks += shard.get("block_samples", ())
        first.append(len(blocks))
    return blocks, first, said["decoded_bytes"], said["digest"], said["tables"], [shard["name"] for shard in said["shard_list"]]
