"""No module of the package imports itself through others, when it is imported."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Dict, List, Set

import shardtool

ROOT = Path(shardtool.__file__).parent


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).replace(".__init__", "")


MODULES = {name_of(path): path for path in ROOT.rglob("*.py")}


def imported(name: str) -> Set[str]:
    """The modules of the package that one imports at its top."""
    path, out = MODULES[name], set()  # type: ignore[var-annotated]
    package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")

    def visit(body: List[Any]) -> None:
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
                out.update(f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names)
            elif isinstance(node, (ast.Try, ast.If)) and "TYPE_CHECKING" not in ast.dump(getattr(node, "test", ast.Pass())):
                visit(node.body + node.orelse)

    visit(ast.parse(path.read_text()).body)
    return out


def test_no_circles() -> None:
    direct: Dict[str, Set[str]] = {name: imported(name) for name in MODULES}
    for name in MODULES:
        seen: Set[str] = set()
        left = [name]
        while left:
            more = direct[left.pop()] - seen
            seen |= more
            left += more
        assert name not in seen, sorted(seen & {n for n in MODULES if name in direct[n]})
