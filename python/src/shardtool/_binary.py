"""Finding the program ``shardtool``."""

from __future__ import annotations

import os
import shutil
from typing import Optional

from .errors import BinaryError


def find() -> str:
    """The path of the binary: ``$SHARDTOOL_BINARY`` if it is set, else the one inside this package, else the one in ``PATH``."""
    told = os.environ.get("SHARDTOOL_BINARY")
    if told:
        if not os.access(told, os.X_OK) or os.path.isdir(told):
            raise BinaryError(f"SHARDTOOL_BINARY is {told}, which is no program: correct or unset it")
        return told
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shardtool")
    if os.access(inside, os.X_OK):
        return inside
    found = _in_path()
    if found is None:
        raise BinaryError(
            "the program shardtool is not there: install the wheel for Linux, which has it inside, or build it with"
            " `make build` and put it into PATH or name it in SHARDTOOL_BINARY"
        )
    return found


def _in_path() -> Optional[str]:
    """The program in PATH, but not the command that pip made of this package: that one looks for the program here."""
    for folder in os.get_exec_path():
        found = shutil.which("shardtool", path=folder)
        if found is not None:
            with open(found, "rb") as f:
                start = f.read(4096)
            if not (start.startswith(b"#!") and b"from shardtool" in start):
                return found
    return None
