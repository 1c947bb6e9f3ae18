"""Runs the programs and commands of a page of docs, unchanged and in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List, Tuple

from conftest import ROOT


def blocks(page: str) -> List[Tuple[str, str]]:
    """The blocks of Python and shell of docs/PAGE."""
    return re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.S)


def run_blocks(parts: List[Tuple[str, str]], folder: Path, before: str = "") -> str:
    """Runs the blocks in folder, as one program after the lines in before; returns its output."""
    program = ["import subprocess", before]
    for kind, text in parts:
        program.append(text if kind == "python" else f"subprocess.run(['sh', '-ec', {text!r}], check=True, stdout=subprocess.DEVNULL)")
    (folder / "bin").mkdir()
    (folder / "bin" / "shardtool").symlink_to(Path(os.environ["SHARDTOOL_BINARY"]).resolve())
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    (folder / "page.py").write_text("\n".join(program))
    done = subprocess.run([sys.executable, "page.py"], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
