"""Packs the example's data: pieces of two books, and who wrote them.

    python prepare.py ../../../testdata/text/prose.txt /tmp/authors

Each sample has the fields ``txt``, about 300 characters, and ``cls``, 0 for Jane Austen and 1 for
Isaac Newton: two small files, as such data often comes. ``shardtool pack`` makes a data set of
them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def pieces(text: str) -> "list[tuple[str, int]]":
    """Pieces of both books, with their class. The second book begins at its title."""
    austen, newton = text.split("\nOPTICKS:", 1)
    return [(piece, label) for label, book in enumerate((austen, newton)) for piece in textwrap.wrap(book, 300)]


def main(source: str, folder: str) -> None:
    """Makes FOLDER/data, from files in FOLDER/files."""
    files, data = Path(folder, "files"), Path(folder, "data")
    files.mkdir(parents=True, exist_ok=True)
    for i, (piece, label) in enumerate(pieces(Path(source).read_text(encoding="utf-8"))):
        (files / f"{i:05d}.txt").write_text(piece, encoding="utf-8")
        (files / f"{i:05d}.cls").write_text(str(label))
    # The books are in sequence: shuffling while packing mixes them permanently.
    shardtool = os.environ.get("SHARDTOOL_BINARY", "shardtool")
    subprocess.run([shardtool, "pack", files, data, "--pack-shuffle", "7", "--block-size", "16KiB", "--quiet"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
