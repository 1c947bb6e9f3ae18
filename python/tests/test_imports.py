"""No module of the package imports itself through others, wherever its imports are."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Set

import shardtool

ROOT = Path(shardtool.__file__).parent


def name_of(path: Path, root: Path = ROOT) -> str:
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).replace(".__init__", "")


def graph(root: Path) -> Dict[str, Set[str]]:
    """The modules of a package, and those of it that each imports: at its top, in functions, and
    for type checkers only."""
    modules = {name_of(path, root): path for path in root.rglob("*.py")}
    out: Dict[str, Set[str]] = {}
    for name, path in modules.items():
        package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
        found = out[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                found.update(f"{base}.{a.name}" if f"{base}.{a.name}" in modules else base for a in node.names)
            elif isinstance(node, ast.Import):
                found.update(a.name for a in node.names)
        found &= set(modules)
    return out


def circles(direct: Dict[str, Set[str]]) -> List[str]:
    """The modules that import themselves through others."""
    out = []
    for name in direct:
        seen: Set[str] = set()
        left = [name]
        while left:
            more = direct[left.pop()] - seen
            seen |= more
            left += more
        if name in seen:
            out.append(name)
    return sorted(out)


def test_no_circles() -> None:
    direct = graph(ROOT)
    assert "shardtool._read.stream" in direct["shardtool.loader"]
    assert circles(direct) == []


def test_circles_are_found(tmp_path: Path) -> None:
    """Those through functions and for type checkers included."""
    root = tmp_path / "made"
    (root / "in_").mkdir(parents=True)
    (root / "__init__.py").write_text("from .a import x\n")
    (root / "a.py").write_text("def f():\n    from .in_.b import y\n")
    (root / "in_" / "b.py").write_text("from ..c import z\n")
    (root / "c.py").write_text("if TYPE_CHECKING:\n    from .a import x\nimport made.d\n")
    (root / "d.py").write_text("import os\n")
    assert circles(graph(root)) == ["made.a", "made.c", "made.in_.b"]


def test_functions_import_only_what_is_optional() -> None:
    """A function imports no module of this package, except where torch or Grain is needed."""
    late = []
    for path in ROOT.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                late += [(name_of(path), n.module) for n in ast.walk(function) if isinstance(n, ast.ImportFrom) and n.level]
    assert sorted(late) == [("shardtool.grain", "dataset")]


def test_the_package_imports_nothing_yet() -> None:
    """A command or a worker does not wait for what it does not use."""
    program = "import sys, shardtool; print([m for m in sys.modules if m.startswith('shardtool.')], 'subprocess' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT.parent)}
    )
    assert done.stdout.split("\n")[0] == "[] False"
