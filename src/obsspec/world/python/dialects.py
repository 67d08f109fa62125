"""Syntax errors as older Pythons report them, where the parser of another version is installed (parso)."""

from __future__ import annotations

import importlib
import io
import tokenize
from dataclasses import dataclass
from functools import cache
from typing import Any

GRAMMAR = "3.8"  # the last one before the parser that explains itself
CLOSING = {")": "(", "]": "[", "}": "{"}
AT_END = ("unexpected character after line continuation", "EOL while scanning")  # reported at the end of the line
UNREADABLE = ("invalid syntax", "unexpected", "EOL", "EOF", "expected an indented", "unindent", "invalid char")


@dataclass(frozen=True, slots=True)
class SyntaxReport:
    """`line` counts from 1, `column` from 0."""

    error: str
    message: str
    line: int
    column: int
    text: str

    def cell(self, number: int) -> str:
        """As IPython shows it."""
        return f"  Cell In[{number}], line {self.line}\n{self._body}"

    def file(self, name: str) -> str:
        """As a traceback shows it."""
        return f'  File "{name}", line {self.line}\n{self._body}'

    @property
    def _body(self) -> str:
        stripped = self.text.lstrip()
        column = max(0, self.column - (len(self.text) - len(stripped)))
        return f"    {stripped}\n    {' ' * column}^\n{self.error}: {self.message}\n"


@cache
def _grammar() -> Any:
    try:
        return importlib.import_module("parso").load_grammar(version=GRAMMAR)
    except ImportError:
        return None


def old_syntax_error(code: str) -> SyntaxReport | None:
    """The first error of `code`; None if there is none, or no parser for older Pythons."""
    grammar = _grammar()
    if grammar is None:
        return None
    try:
        issues = sorted(grammar.iter_errors(grammar.parse(code)), key=lambda issue: issue.start_pos)
    except RecursionError:
        return None
    if not issues:
        return None
    # what cannot be read is reported before what can be read but means nothing
    first = next((issue for issue in issues if str(issue.message).split(": ")[-1].startswith(UNREADABLE)), issues[0])
    error, _, message = str(first.message).partition(": ")
    lines = code.split("\n")
    line, column = int(first.start_pos[0]), int(first.start_pos[1])
    text = lines[line - 1] if line <= len(lines) else ""
    if message.startswith(AT_END):
        column = len(text)
    elif message == "invalid syntax":
        message = _tokenizer_says(lines, line, column) or message
    return SyntaxReport(error, message, line, column, text)


def _tokenizer_says(lines: list[str], line: int, column: int) -> str | None:
    """The tokenizer knows brackets and characters better than the parser."""
    text = lines[line - 1] if line <= len(lines) else ""
    character = text[column : column + 1]
    if character in CLOSING and character:
        opened = _opened("\n".join([*lines[: line - 1], text[:column]]))
        if not opened:
            return f"unmatched '{character}'"
        if opened[-1] != CLOSING[character]:
            return f"closing parenthesis '{character}' does not match opening parenthesis '{opened[-1]}'"
    if character > "\x7f" and not character.isidentifier():
        return "invalid character in identifier"
    return None


def _opened(code: str) -> list[str]:
    """The brackets that are open at the end of `code`."""
    opened: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.OP and token.string in CLOSING.values():
                opened.append(token.string)
            elif token.type == tokenize.OP and token.string in CLOSING and opened:
                opened.pop()
    except (tokenize.TokenError, IndentationError):
        pass
    return opened
