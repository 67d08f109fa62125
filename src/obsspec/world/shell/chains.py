"""Pipelines, `&&` and `||`, redirections and simple commands.

The grammar hangs a redirection on the whole chain before it (`a && b > f`) and then mistakes what a pipe connects, so
a chain is first flattened to leaves and operators and then put together by the precedence of the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from tree_sitter import Node

from obsspec.world.shell.documents import document_word
from obsspec.world.shell.heredocs import HERE_STRING, Document, placeholder
from obsspec.world.shell.names import names
from obsspec.world.shell.tree import (
    AndOr,
    Assignment,
    Command,
    Compound,
    Literal,
    Pipeline,
    Redirection,
    Sequence,
    Simple,
    Word,
)
from obsspec.world.shell.words import NotCoveredError, Words, text_of

RESERVED = names("if then elif else fi do done case esac while until for select in function { } ! [[ ]] time coproc")
_CHAINS = ("list", "pipeline", "redirected_statement", "negated_command")
_REDIRECTS = ("file_redirect", "heredoc_redirect")
_TESTS = {"[": "]", "[[": "]]"}
ReadCompound = Callable[[Node], Command | None]


class Chains:
    """Reads one statement. Raises `NotCoveredError`."""

    def __init__(self, source: bytes, script: Callable[[Node], Sequence], documents: tuple[Document, ...]) -> None:
        self._words = Words(source, script)
        self._documents = documents

    def word(self, node: Node) -> Word:
        return self._words.word(node)

    def read(self, node: Node, compound: ReadCompound) -> Command:
        items = list(self._flat(node, compound))
        return _chain(items)

    def _flat(self, node: Node, compound: ReadCompound) -> Iterator[Command | str]:
        if node.type not in _CHAINS:
            yield self._leaf(node, compound)
            return
        items: list[Command | str] = []
        redirections: list[Redirection] = []
        for before, child in zip([None, *node.children], node.children, strict=False):
            if child.type in _REDIRECTS:
                if before is not None and before.end_byte == child.start_byte and _numbered(child):
                    raise NotCoveredError("a number that belongs to a word")
                redirections.append(self.redirection(child))
            elif child.is_named:
                items += self._flat(child, compound)
            else:
                items.append(child.type)
        if redirections:
            last = items.pop() if items else Simple()
            if not isinstance(last, Simple | Compound):
                raise NotCoveredError("redirection")
            items.append(replace(last, redirections=(*last.redirections, *redirections)))
        yield from items

    def _leaf(self, node: Node, compound: ReadCompound) -> Command:
        if node.type == "command":
            return self._command(node)
        if node.type == "variable_assignment":
            return Simple(assignments=(self._assignment(node),))
        if node.type == "variable_assignments":
            return Simple(assignments=tuple(self._assignment(child) for child in node.children))
        if node.type in ("declaration_command", "unset_command"):
            return Simple(words=tuple(self._declared(child) for child in node.children))
        if node.type == "test_command":
            return self._test(node)
        found = compound(node)
        if found is None:
            raise NotCoveredError(node.type)
        return found

    def _command(self, node: Node) -> Simple:
        for one, two in pairwise(node.children):
            if one.end_byte == two.start_byte and (two.type not in _REDIRECTS or _numbered(two)):
                raise NotCoveredError("words without a blank between them")
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirections: list[Redirection] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type in _REDIRECTS:
                redirections.append(self.redirection(child))
            else:
                words.append(self.word(child))
        if words and words[0].parts and isinstance(words[0].parts[0], Literal) and len(words[0].parts) == 1:
            first = words[0].parts[0]
            if first.text in RESERVED and not first.quoted:
                raise NotCoveredError("a reserved word as a command")
        return Simple(tuple(words), tuple(assignments), tuple(redirections))

    def _assignment(self, node: Node) -> Assignment:
        name, value = node.children[0], node.children[2:]
        append = node.children[1].type == "+="
        if name.type != "variable_name" or (value and value[0].type == "array") or len(value) > 1:
            return Assignment(text_of(name).partition("[")[0], None, append)
        return Assignment(text_of(name), self.word(value[0]) if value else Word(), append)

    def _declared(self, node: Node) -> Word:
        if node.type != "variable_assignment":
            return self.word(node)
        assignment = self._assignment(node)
        if assignment.value is None or assignment.append:
            raise NotCoveredError("declaration")
        return Word((Literal(f"{assignment.name}=", quoted=True), *assignment.value.parts))

    def _test(self, node: Node) -> Simple:
        """`[ ... ]` as the plain words that it is; `[[ ... ]]` in the same form, under its own name."""
        leaves = list(_leaves(node))
        for before, after in pairwise(leaves):
            if before.end_byte == after.start_byte:
                raise NotCoveredError("test")
        opening = text_of(leaves[0])
        if opening not in _TESTS or text_of(leaves[-1]) != _TESTS[opening]:
            raise NotCoveredError("test")
        return Simple(tuple(self.word(leaf) for leaf in leaves))

    def redirection(self, node: Node) -> Redirection:
        fd: int | None = None
        operator = ""
        target: Word | None = None
        for child in node.children:
            if child.type == "file_descriptor":
                fd = int(text_of(child))
            elif not child.is_named and not operator:
                operator = child.type
            elif target is None:
                target = self.word(child)
            else:
                raise NotCoveredError("redirection")
        if target is None or node.type != "file_redirect":
            raise NotCoveredError("redirection")
        first = target.parts[0] if target.parts else None
        if operator != "<" or not isinstance(first, Literal):
            return Redirection(operator, target, fd)
        if first.text.startswith(HERE_STRING):
            rest = Literal(first.text.removeprefix(HERE_STRING), first.quoted)
            return Redirection("<<<", Word(), fd, Word((rest, *target.parts[1:], Literal("\n", quoted=True))))
        index = placeholder(first.text)
        if index is None:
            return Redirection(operator, target, fd)
        return Redirection("<<", Word(), fd, document_word(self._documents[index]))


def _numbered(redirect: Node) -> bool:
    return redirect.children[0].type == "file_descriptor"


def _leaves(node: Node) -> Iterator[Node]:
    """The words of a test: the grammar's expressions taken apart again."""
    if (node.type.endswith("_expression") and node.type != "brace_expression") or node.type == "test_command":
        for child in node.children:
            yield from _leaves(child)
    else:
        yield node


def _chain(items: list[Command | str]) -> Command:
    """Pipes bind tighter than `&&` and `||`, which bind from the left."""
    done: Command | None = None
    joined = ""
    run: list[Command | str] = []
    for item in [*items, "end"]:
        if item in ("&&", "||", "end"):
            right = _pipeline(run)
            done = right if done is None else AndOr(done, joined, right)
            joined, run = str(item), []
        else:
            run.append(item)
    if done is None:
        raise NotCoveredError("chain")
    return done


def _pipeline(run: list[Command | str]) -> Command:
    negated = False
    while run and run[0] == "!":
        negated, run = not negated, run[1:]
    stages = [item for item in run[::2] if not isinstance(item, str)]
    pipes = [item for item in run[1::2] if item in ("|", "|&")]
    if not stages or len(stages) + len(pipes) != len(run) or len(pipes) != len(stages) - 1:
        raise NotCoveredError("pipeline")
    if len(stages) == 1 and not negated:
        return stages[0]
    return Pipeline(tuple(stages), tuple(pipe == "|&" for pipe in pipes), negated)
