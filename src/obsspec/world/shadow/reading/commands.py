"""The part of a script whose output can be read: one pipeline of plain words, perhaps after a `cd`."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from obsspec.world.shell.parse import Unparsed, parse
from obsspec.world.shell.tree import AndOr, Command, Literal, Pipeline, Simple, Word

_HARMLESS = frozenset({"/dev/null"})


@dataclass(frozen=True, slots=True)
class Words:
    """A program and its arguments, file name patterns as written."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return posixpath.basename(self.words[0])

    def options(self, with_value: str = "") -> tuple[str, tuple[str, ...]]:
        """All short option letters, and the operands. `with_value`: letters whose value may be the next word."""
        letters, operands, rest = "", list[str](), list(self.words[1:])
        while rest:
            word = rest.pop(0)
            if word == "--":
                operands += rest
                break
            if word.startswith("--"):
                continue
            if word.startswith("-") and len(word) > 1:
                letters += word[1:]
                if len(word) == 2 and word[1] in with_value and rest:
                    rest.pop(0)
            else:
                operands.append(word)
        return letters, tuple(operands)


@dataclass(frozen=True, slots=True)
class Readable:
    """`directory`: where the pipeline runs, absolute."""

    directory: str
    stages: tuple[Words, ...]


def readable(script: str, directory: str) -> Readable | None:
    """None for everything that is more than a pipeline of literal words."""
    tree = parse(script)
    if isinstance(tree, Unparsed) or len(tree.commands) != 1:
        return None
    command = tree.commands[0]
    if isinstance(command, AndOr):
        moved = _simple(command.left)
        if moved is None or len(moved.words) != 2 or moved.words[0] != "cd" or command.operator != "&&":
            return None
        directory = posixpath.normpath(posixpath.join(directory, moved.words[1]))
        command = command.right
    stages = command.stages if isinstance(command, Pipeline) and not command.negated else (command,)
    found = [_simple(stage) for stage in stages]
    if any(words is None for words in found):
        return None
    return Readable(directory, tuple(words for words in found if words is not None))


def _simple(command: Command) -> Words | None:
    if not isinstance(command, Simple) or not command.words or command.assignments:
        return None
    for redirection in command.redirections:
        if redirection.fd != 2 or redirection.operator not in (">", ">>", ">&"):
            return None
        if redirection.operator != ">&" and _text(redirection.target) not in _HARMLESS:
            return None
    words = [_text(word) for word in command.words]
    return None if None in words else Words(tuple(word for word in words if word is not None))


def _text(word: Word) -> str | None:
    if not all(isinstance(part, Literal) for part in word.parts):
        return None
    return "".join(part.text for part in word.parts if isinstance(part, Literal))
