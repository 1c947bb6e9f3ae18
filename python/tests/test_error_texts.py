"""No code of the package reads or edits the text of an error: it catches a class, or looks at an
attribute or a hint."""

import ast
import pathlib
from typing import Iterator, List, Set

import pytest

import shardtool

_SOURCE = pathlib.Path(shardtool.__file__).parent

#: What reads the text of errors of other packages, which have no type or attribute for it.
_FOREIGN = {("_write/engines.py", "_spark"): "the text of an error of py4j goes on with the stack trace of Java"}

#: Methods of a string that look into it or change it. Encoding it for a pipe does neither.
_METHODS = {name for name in dir(str) if not name.startswith("_")} - {"encode"}
_PATTERNS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}


class _Readings(ast.NodeVisitor):
    """The lines of a function or module that read or edit the text of an error."""

    def __init__(self) -> None:
        self.lines: List[int] = []
        self._errors: Set[str] = set()  # variables with an error
        self._texts: Set[str] = set()  # variables with the text of one

    def _error(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._errors

    def _text(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._texts
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr", "format"):
            return any(self._error(a) or self._text(a) for a in node.args)
        if isinstance(node, ast.JoinedStr):  # a text of one error alone
            return len(node.values) == 1 and isinstance(node.values[0], ast.FormattedValue) and self._error(node.values[0].value)
        if isinstance(node, ast.Subscript):
            return self._text(node.value)
        return isinstance(node, ast.Attribute) and node.attr in ("args", "message", "msg") and self._error(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._errors.add(node.name)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        for arg in [*node.posonlyargs, *node.args, *node.kwonlyargs]:
            kind = ast.unparse(arg.annotation) if arg.annotation else ""
            if arg.arg in ("err", "error", "exc") or kind.strip("'\"").endswith(("Error", "Exception")):
                self._errors.add(arg.arg)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                (self._texts.add if self._text(node.value) else self._texts.discard)(target.id)
                if self._error(node.value):
                    self._errors.add(target.id)
            elif self._text(target):
                self.lines.append(node.lineno)  # it edits

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if self._text(node.target):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if any(self._text(n) for n in [node.left, *node.comparators]):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            looks = node.func.attr in _METHODS and self._text(node.func.value)
            matches = node.func.attr in _PATTERNS and any(self._text(a) for a in node.args)
            if looks or matches:
                self.lines.append(node.lineno)
        self.generic_visit(node)


def _readings(tree: ast.Module) -> "Iterator[tuple[str, int]]":
    """Yields the name of each outermost function or class that reads a text, and the line."""
    for node in tree.body:
        readings = _Readings()
        readings.visit(node)
        for line in readings.lines:
            yield getattr(node, "name", ""), line


def test_nothing_reads_the_text_of_an_error() -> None:
    files = list(_SOURCE.rglob("*.py"))
    assert len(files) > 50
    found, foreign = [], set()
    for file in files:
        name = file.relative_to(_SOURCE).as_posix()
        for where, line in _readings(ast.parse(file.read_text())):
            if (name, where) in _FOREIGN:
                foreign.add((name, where))
            else:
                found.append(f"{name}:{line}: catch a class, or look at an attribute or a hint")
    assert not found, "\n".join(found)
    assert foreign == set(_FOREIGN), "an exception that is not needed any more"


@pytest.mark.parametrize(
    "body",
    [
        "if 'gone' in str(err): pass",
        "if str(err) == 'gone': pass",
        "if err.args[0] == 'gone': pass",
        "text = str(err)\n    text = text.replace('a', 'b')",
        "re.match('gone', str(err))",
        "PATTERN.search(f'{err}')",
        "if str(err).startswith('gone'): pass",
        "err.message += 'more'",
        "show(str(err).partition('x')[0])",
        "err.message = 'other'",
        "if err.message.endswith('gone'): pass",
        "other = err\n    if 'gone' in repr(other): pass",
    ],
)
def test_readings_are_found(body: str) -> None:
    assert list(_readings(ast.parse(f"try:\n    pass\nexcept ValueError as err:\n    {body}\n")))


@pytest.mark.parametrize(
    "body",
    [
        "raise RuntimeError(f'shard 3: {err}') from err",
        "send(str(err).encode())",
        "if err.key in known: pass",
        "if isinstance(err, KeyError) and err.errno == 2: pass",
        "show(str(err)[:1000])",
        "if err is first: pass",
    ],
)
def test_what_passes_a_text_on_is_not(body: str) -> None:
    assert not list(_readings(ast.parse(f"try:\n    pass\nexcept ValueError as err:\n    {body}\n")))
