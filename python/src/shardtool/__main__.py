"""The command ``shardtool`` that pip installs, and ``python -m shardtool``: both run the
program."""

from __future__ import annotations

import os
import sys

from ._wire import program
from .errors import BinaryError


def main() -> None:
    """Replaces this process by the program, with its arguments, signals and exit code."""
    try:
        binary = program.find()
        os.execv(binary, ["shardtool", *sys.argv[1:]])
    except BinaryError as err:
        code, words = err.code, str(err)
    except OSError as err:
        code, words = 1, f"{binary} does not start: {err.strerror}"
    sys.exit(print(f"shardtool: {words}", file=sys.stderr) or code)


if __name__ == "__main__":
    main()
