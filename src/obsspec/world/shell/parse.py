"""From a script to its tree, by tree-sitter's grammar of bash; what is not understood is `Unparsed`, never a guess."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from obsspec.world.shell.chains import Chains
from obsspec.world.shell.compounds import Compounds
from obsspec.world.shell.heredocs import lay_aside
from obsspec.world.shell.tree import Background, Command, Sequence
from obsspec.world.shell.words import NotCoveredError

MAX_CHARACTERS = 100_000
MAX_DEPTH = 80
_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Syntax errors, or a construct that is not covered. Anything may happen when it runs."""

    why: str


@lru_cache(maxsize=4096)
def parse(script: str) -> Sequence | Unparsed:
    """The tree of a script. Never raises. Results are cached by text."""
    if len(script) > MAX_CHARACTERS or "\0" in script:
        return Unparsed("too long or with a NUL")
    laid = lay_aside(script)
    if laid is None:
        return Unparsed("a here-document or a quote without its end")
    source = laid[0].encode("utf-8", "surrogateescape" if _escaped(laid[0]) else "replace")
    root = Parser(_LANGUAGE).parse(source).root_node
    if root.has_error or _is_odd(root, source):
        return Unparsed("syntax")
    statements = _Statements(source)
    statements.chains = Chains(source, statements.read, laid[1])
    try:
        return statements.read(root)
    except NotCoveredError as error:
        return Unparsed(str(error))


def _escaped(text: str) -> bool:
    return all(not 0xD800 <= ord(c) <= 0xDFFF or 0xDC80 <= ord(c) <= 0xDCFF for c in text)


def _is_odd(root: Node, source: bytes) -> bool:
    """Too deep, or with a backslash between nodes: the grammar skips an escaped blank, which belongs to a word."""
    level, nodes = 0, [root]
    while nodes:
        level += 1
        if level > MAX_DEPTH or any(_skips_backslash(node, source) for node in nodes):
            return True
        nodes = [child for node in nodes for child in node.children]
    return False


def _skips_backslash(node: Node, source: bytes) -> bool:
    if node.type == "string":
        return False
    return any(b"\\" in source[one.end_byte : two.start_byte] for one, two in pairwise(node.children))


class _Statements:
    """Reads lists of statements, checking that something separates them, which the grammar does not ask for."""

    chains: Chains

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._compounds = Compounds(self)

    def read(self, node: Node) -> Sequence:
        """The statements among the children of `node`."""
        return self.among(node.children)

    def among(self, nodes: list[Node]) -> Sequence:
        return Sequence(tuple(self._commands(nodes)))

    def compound(self, node: Node) -> Command | None:
        return self._compounds.read(node)

    def _commands(self, nodes: list[Node]) -> Iterator[Command]:
        held: Command | None = None
        before: Node | None = None
        for node in nodes:
            if node.type == "comment":
                before = None
            elif not node.is_named:
                if held is not None:
                    yield Background(held) if node.type == "&" else held
                held, before = None, None
            else:
                if before is not None and not self._line_between(before, node):
                    raise NotCoveredError("statements without a separator")
                if held is not None:
                    yield held
                held, before = self.chains.read(node, self.compound), node
        if held is not None:
            yield held

    def _line_between(self, first: Node, second: Node) -> bool:
        return b"\n" in self._source[first.end_byte : second.start_byte]
