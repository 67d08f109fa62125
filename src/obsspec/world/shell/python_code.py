"""What a few lines of Python may touch, from their syntax tree: enough for `python3 -c`."""

from __future__ import annotations

import ast

from obsspec.world.shell.names import names
from obsspec.world.shell.touches import ANYTHING, Touch

_MODULES = names(
    "json math re csv sys collections itertools functools statistics hashlib string textwrap decimal fractions "
    "operator heapq bisect base64 binascii struct typing dataclasses enum copy pprint cmath"
)
_CLOCKED = frozenset(("time", "datetime", "random", "uuid", "secrets"))
_REFUSED = names("exec eval compile __import__ globals locals vars getattr setattr breakpoint input")
_HIDDEN = ("modules", "sys", "os", "builtins", "io", "codecs", "open_code", "load_module")


def python_touch(code: str) -> Touch:
    """Reads and writes through `open` with literal names; anything if more than that may happen."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Touch()  # it ends with an error before it starts
    visit = _Visit()
    try:
        visit.visit(tree)
    except RecursionError:
        return ANYTHING
    return visit.touch()


class _Visit(ast.NodeVisitor):
    def __init__(self) -> None:
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.volatile = False
        self.anything = False
        self.opened: set[ast.Name] = set()

    def touch(self) -> Touch:
        if self.anything:
            return Touch(None, None, volatile=self.volatile)
        return Touch(tuple(self.reads), tuple(self.writes), self.volatile)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._module(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._module(node.module or "")

    def _module(self, name: str) -> None:
        root = name.partition(".")[0]
        self.volatile = self.volatile or root in _CLOCKED
        self.anything = self.anything or root not in _MODULES | _CLOCKED

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__") or node.attr in _HIDDEN:
            self.anything = True
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _REFUSED or (node.id == "open" and node not in self.opened):
            self.anything = True

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            self.opened.add(node.func)
            self._open(node)
        self.generic_visit(node)

    def _open(self, node: ast.Call) -> None:
        values = [value.value if isinstance(value, ast.Constant) else None for value in node.args]
        named = {word.arg: word.value.value if isinstance(word.value, ast.Constant) else None for word in node.keywords}
        mode = values[1] if len(values) > 1 else named.get("mode", "r")
        path = values[0] if values else named.get("file")
        if not isinstance(path, str) or not isinstance(mode, str) or "opener" in named:
            self.anything = True
        else:
            self.reads.append(path)
            if set(mode) & set("wax+"):
                self.writes.append(path)
