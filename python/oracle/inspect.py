"""Reads the table of a data set through ``shardtool inspect``."""

from __future__ import annotations

import json
import os
import subprocess
from typing import List, Optional, Tuple

from shardtool._wire import program
from shardtool.errors import BinaryError, CheckpointError, ConfigError, CorruptError, NotFoundError, ShardtoolError

from .view import Subset

_KINDS = {2: ConfigError, 3: CorruptError, 6: NotFoundError, 7: CheckpointError}


def inspect(url: str) -> Tuple[List[int], List[int], int, str, str, List[str], Optional[Subset]]:
    """Returns the members of a Table."""
    whole, _, name = os.fspath(url).partition("#")
    said = json.loads(_run("inspect", "--json", "--blocks", "--", whole))
    blocks: List[int] = []
    first = [0]
    for shard in said["shard_list"]:
        blocks += shard.get("block_samples", ())
        first.append(len(blocks))
    digest, view = said["digest"], None
    if name:
        described = json.loads(_run("inspect", "--json", "--", os.fspath(url)))["view"]
        if described["kind"] != "subset":
            raise ConfigError(
                f"{os.fspath(url)} is a view that draws samples: make the table of the data set, and give it view=Weighted(weights, draws)"
                " or view=Classed(classes, weights, draws)"
            )
        digest += "#" + described["id"]
        view = Subset([json.loads(line)["number"] for line in _run("ls", "--json", "--", os.fspath(url)).splitlines()])
    return blocks, first, said["decoded_bytes"], digest, said["tables"], [shard["name"] for shard in said["shard_list"]], view


def _run(*arguments: str) -> str:
    """Runs the program and returns what it writes to stdout."""
    binary = program.find()
    try:
        command = [binary, *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", check=False)
    except OSError as err:
        raise BinaryError(f"{binary} does not start: {err.strerror}") from err
    if done.returncode != 0:
        words = done.stderr.strip()
        raise _KINDS.get(done.returncode, ShardtoolError)(words[len("shardtool: ") :] if words.startswith("shardtool: ") else words)
    return done.stdout
