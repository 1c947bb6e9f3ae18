"""Finding the program ``shardtool``."""

from __future__ import annotations

import logging
import os
import shutil
from typing import Optional, Set, Tuple

from ..errors import BinaryError, VersionError


def find() -> str:
    """The path of the program: ``$SHARDTOOL_BINARY`` if it is set, else the one inside this
    package, else the one in ``PATH``."""
    chosen = os.environ.get("SHARDTOOL_BINARY")
    if chosen:
        if not os.access(chosen, os.X_OK) or os.path.isdir(chosen):
            raise BinaryError(f"SHARDTOOL_BINARY is {chosen}, which is no program: correct or unset it")
        return chosen
    inside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "shardtool")
    if os.access(inside, os.X_OK):
        return inside
    found = _in_path()
    if found is None:
        raise BinaryError(
            "the program shardtool was not found: install the wheel for this system, which contains it, or build it with"
            " `make build` and put it into PATH or its path into SHARDTOOL_BINARY"
        )
    return found


def package_version() -> str:
    """The version of this package; empty in a source tree that is not installed."""
    from importlib import metadata  # takes milliseconds

    try:
        return metadata.version("shardtool")
    except metadata.PackageNotFoundError:
        return ""


def check_release(binary: str, program: str, package: str) -> None:
    """Raises VersionError if the program is of another release than the package: it may read or
    order data differently. Warns, once, if it is another build of the same release."""
    ours, theirs = package, program.replace("-dev", ".dev", 1)  # SemVer 0.1.0-dev0 is 0.1.0.dev0 to Python
    if not ours or theirs == ours:
        return
    if theirs.partition("+")[0] != ours.partition("+")[0]:
        chosen = bool(os.environ.get("SHARDTOOL_BINARY"))
        raise VersionError(
            f"{binary} is shardtool {program}{', chosen by SHARDTOOL_BINARY' if chosen else ''}, this Python package is {package}:"
            " install package and binary of one version" + (", or unset SHARDTOOL_BINARY to use the one in the wheel" if chosen else ""),
            package=package,
            program=program,
        )
    if (program, package) not in _warned:
        _warned.add((program, package))
        logging.getLogger("shardtool").warning("%s is build %s of shardtool, this Python package is build %s", binary, program, package)


_warned: "Set[Tuple[str, str]]" = set()


def _in_path() -> Optional[str]:
    """The program in PATH, except the command that pip makes from this package: it would call this
    function again."""
    for folder in os.get_exec_path():
        found = shutil.which("shardtool", path=folder)
        if found is not None:
            with open(found, "rb") as f:
                start = f.read(4096)
            if not (start.startswith(b"#!") and b"from shardtool" in start):
                return found
    return None
