"""Finding the program ``shardtool``."""

from __future__ import annotations

import logging
import os
import shutil
from typing import Optional, Set, Tuple

from .errors import BinaryError, VersionError


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


def package_version() -> str:
    """The version of this package; empty in a source tree that is not installed."""
    from importlib import metadata  # which takes milliseconds

    try:
        return metadata.version("shardtool")
    except metadata.PackageNotFoundError:
        return ""


def check_release(binary: str, program: str, package: str) -> None:
    """Refuses a program of another release, which may read or order data otherwise. Of one release, builds may differ; that is told."""
    if not package or program == package:
        return
    if program.partition("+")[0] != package.partition("+")[0]:
        told = os.environ.get("SHARDTOOL_BINARY")
        raise VersionError(
            f"{binary} is shardtool {program}{', as SHARDTOOL_BINARY says' if told else ''}, this Python package is {package}:"
            " install package and binary of one version"
            + (", or unset SHARDTOOL_BINARY to use the one that the wheel has inside" if told else ""),
            package=package,
            program=program,
        )
    if (program, package) not in _told:
        _told.add((program, package))
        logging.getLogger("shardtool").warning("%s is build %s of shardtool, this Python package is build %s", binary, program, package)


_told: "Set[Tuple[str, str]]" = set()


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
