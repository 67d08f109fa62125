"""Which names a piece of Python reads from the session before it, and which it leaves behind."""

from __future__ import annotations

import ast
import builtins
import warnings
from dataclasses import dataclass
from functools import lru_cache

_BUILTINS = frozenset(dir(builtins))
_MAX_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Names:
    """`late` are names that functions and classes of the code read only when they are called."""

    reads: frozenset[str]
    writes: frozenset[str]
    late: frozenset[str]


@lru_cache(maxsize=4096)
def names_of(code: str) -> Names | None:
    """None: anything may happen. Code that does not parse reads and writes nothing: it is never run."""
    if len(code) > _MAX_CHARACTERS or any(mark in code for mark in ("exec(", "eval(", "globals(", "import *")):
        return None
    if any(line.lstrip().startswith(("%", "!")) for line in code.splitlines()):
        return None  # IPython's own commands
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Names(frozenset(), frozenset(), frozenset())
    visitor = _Visitor()
    for statement in tree.body:
        visitor.visit(statement)
    return Names(frozenset(visitor.reads), frozenset(visitor.writes), frozenset(visitor.late))


class _Visitor(ast.NodeVisitor):
    """Module level in order of execution, near enough: a name read before the code binds it comes from the session."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.late: set[str] = set()
        self._bound: set[str] = set()
        self._imported: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        else:
            self._bind(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self.visit(node.target)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._mutate(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._mutate(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self._mutate(node.func)  # a method may change its object
        elif not (isinstance(node.func, ast.Name) and node.func.id in _BUILTINS | self._imported):
            for argument in node.args:
                self._mutate(argument)  # a callee of the session may change what it is given
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = (alias.asname or alias.name).split(".")[0]
            self._imported.add(name)
            self._bind(name)

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._later(node)
        self._bind(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815
    visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._later(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        bound = set(self._bound)
        kept = set(self.writes)
        for generator in node.generators:
            self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(part)
        self._bound, self.writes = bound, kept  # its variables are its own

    visit_ListComp = _comprehension  # noqa: N815
    visit_SetComp = _comprehension  # noqa: N815
    visit_GeneratorExp = _comprehension  # noqa: N815
    visit_DictComp = _comprehension  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def _later(self, node: ast.AST) -> None:
        inner: set[str] = set()
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                inner.add(each.id)
        self.late |= inner - _BUILTINS
        self.reads |= inner - _BUILTINS - self._bound
        self.writes |= {
            name for each in ast.walk(node) if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names
        }

    def _mutate(self, node: ast.expr) -> None:
        """`a.b`, `a[b]`, `f(a)` may change what `a` names."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        if isinstance(node, ast.Name) and node.id not in _BUILTINS | self._imported:
            self.writes.add(node.id)

    def _read(self, name: str) -> None:
        if name not in self._bound and name not in _BUILTINS:
            self.reads.add(name)

    def _bind(self, name: str) -> None:
        self._bound.add(name)
        self.writes.add(name)
