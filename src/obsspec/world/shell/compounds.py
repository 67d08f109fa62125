"""Compound commands: groups, subshells, `if`, loops, `case`, functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tree_sitter import Node

from obsspec.world.shell.tree import Command, Compound, Sequence, Shape, Word
from obsspec.world.shell.words import NotCoveredError, text_of

if TYPE_CHECKING:
    from obsspec.world.shell.chains import Chains


class Statements(Protocol):
    """Reads lists of statements."""

    chains: Chains

    def among(self, nodes: list[Node]) -> Sequence: ...


class Compounds:
    """Reads one compound command; None if the node is none. Raises `NotCoveredError`."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def read(self, node: Node) -> Command | None:
        match node.type:
            case "compound_statement" | "subshell":
                return self._group(node)
            case "if_statement":
                return Compound(Shape.IF, tuple(self._branches(node)))
            case "for_statement":
                return self._for(node)
            case "c_style_for_statement":
                return Compound(Shape.ARITHMETIC, (self._body(node),))
            case "while_statement":
                return self._while(node)
            case "case_statement":
                return self._case(node)
            case "function_definition":
                return self._function(node)
            case _:
                return None

    def _group(self, node: Node) -> Compound:
        if node.children[0].type == "((":
            return Compound(Shape.ARITHMETIC)
        shape = Shape.SUBSHELL if node.type == "subshell" else Shape.GROUP
        return Compound(shape, (self._statements.among(node.children[1:-1]),))

    def _branches(self, node: Node) -> list[Sequence]:
        """Of `if` and `elif`: condition, body and what follows them."""
        found: list[Sequence] = []
        run: list[Node] = []
        for child in [*node.children, None]:
            if child is not None and child.type not in ("if", "elif", "then", "fi", "elif_clause", "else_clause"):
                run.append(child)
                continue
            if run:
                found.append(self._statements.among(run))
                run = []
            if child is not None and child.type == "elif_clause":
                found += self._branches(child)
            elif child is not None and child.type == "else_clause":
                found.append(self._statements.among(child.children[1:]))
        return found

    def _for(self, node: Node) -> Compound:
        if node.children[0].type != "for":
            raise NotCoveredError("select")
        name = node.child_by_field_name("variable")
        values = node.children_by_field_name("value")
        words = tuple(self._statements.chains.word(value) for value in values)
        has_list = any(child.type == "in" for child in node.children)
        if name is None:
            raise NotCoveredError("for")
        return Compound(Shape.FOR, (self._body(node),), text_of(name), words if has_list else None)

    def _while(self, node: Node) -> Compound:
        shape = Shape.WHILE if node.children[0].type == "while" else Shape.UNTIL
        condition = self._statements.among(node.children[1:-1])
        return Compound(shape, (condition, self._body(node)))

    def _body(self, node: Node) -> Sequence:
        body = node.children[-1]
        if body.type not in ("do_group", "compound_statement"):
            raise NotCoveredError("loop")
        return self._statements.among(body.children[1:-1])

    def _case(self, node: Node) -> Compound:
        words: list[Word] = []
        bodies: list[Sequence] = []
        for child in node.children:
            if child.type == "case_item":
                inside = child.children
                close = next(i for i, part in enumerate(inside) if part.type == ")")
                bodies.append(self._statements.among(inside[close + 1 :]))
            elif child.is_named and child.type != "comment":
                words.append(self._statements.chains.word(child))
        return Compound(Shape.CASE, tuple(bodies), words=tuple(words))

    def _function(self, node: Node) -> Compound:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            raise NotCoveredError("function")
        return Compound(Shape.FUNCTION, (self._statements.among([body]),), text_of(name))
