"""Lays the bodies of here-documents aside before a script is parsed, as the shell itself does when it reads lines.

Lines that go on after a backslash are joined.
Each `<<END` becomes `<` and a placeholder, so that the grammar never sees a body; `<<< text` becomes `<` and a marked
word, because the grammar takes it in few places. What is inside quotes, comments or arithmetic is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD_END = frozenset(" \t\n;|&()<>")
_PLACEHOLDER = re.compile(r"__heredoc_(\d+)__\Z")


@dataclass(frozen=True, slots=True)
class Document:
    """The text of one here-document. `literal`: its end word was quoted, so nothing in it is expanded."""

    body: str
    literal: bool


@dataclass(slots=True)
class _Pending:
    end: str
    literal: bool
    tabs: bool  # <<-: leading tabs go
    index: int


HERE_STRING = "__herestring__"


def placeholder(text: str) -> int | None:
    """The number of the document that this word stands for."""
    found = _PLACEHOLDER.match(text)
    return int(found[1]) if found else None


def lay_aside(script: str) -> tuple[str, tuple[Document, ...]] | None:
    """The script with placeholders, and its documents. None where a document has no end, or a quote no partner."""
    if "__heredoc_" in script or HERE_STRING in script:
        return None
    if "<<" not in script and "\\\n" not in script:
        return script, ()
    return _Scanner(script).run()


def _goes_on(line: str) -> bool:
    """Whether a backslash escapes the end of the line."""
    text = line[:-1]
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


class _Scanner:
    """One pass over the characters with a stack of open constructs: `"`, `(`, `` ` ``, `$((`, `${`."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.at = 0
        self.out: list[str] = []
        self.stack: list[str] = []
        self.pending: list[_Pending] = []
        self.documents: dict[int, Document] = {}

    def run(self) -> tuple[str, tuple[Document, ...]] | None:
        while self.at < len(self.script):
            if not self._step():
                return None
        if self.pending or any(open_ in ('"', "`") for open_ in self.stack):
            return None
        return "".join(self.out), tuple(self.documents[i] for i in range(len(self.documents)))

    def _step(self) -> bool:
        mode = self.stack[-1] if self.stack else ""
        character = self.script[self.at]
        if self.script.startswith("\\\n", self.at):
            self.at += 2  # the line goes on
        elif character == "\\":
            self._copy(2)
        elif self._opens(mode):
            pass
        elif mode == '"':
            if character == '"':
                self.stack.pop()
            self._copy(1)
        elif mode in ("((", "{"):
            self._inside(mode, character)
        else:
            return self._command(mode, character)
        return True

    def _opens(self, mode: str) -> bool:
        for text, name in (("$((", "(("), ("$(", "("), ("${", "{")):
            if self.script.startswith(text, self.at):
                self.stack.append(name)
                self._copy(len(text))
                return True
        if self.script[self.at] == "`":
            if "`" in self.stack:
                del self.stack[self.stack.index("`") :]
            else:
                self.stack.append("`")
            self._copy(1)
            return True
        if self.script[self.at] == '"' and mode != '"':
            self.stack.append('"')
            self._copy(1)
            return True
        return False

    def _inside(self, mode: str, character: str) -> None:
        if mode == "((" and self.script.startswith("))", self.at):
            self.stack.pop()
            self._copy(2)
            return
        if mode == "((" and character == "(":
            self.stack.append("((nested")
        if mode == "{" and character == "}":
            self.stack.pop()
        self._copy(1)

    def _command(self, mode: str, character: str) -> bool:
        """A character where commands stand: between words, or in an unquoted one."""
        if character == "'":
            return self._quote()
        if character == "#" and (self.at == 0 or self.script[self.at - 1] in _WORD_END):
            end = self.script.find("\n", self.at)
            self._copy((len(self.script) if end < 0 else end) - self.at)
        elif self.script.startswith("<<<", self.at):
            self.at += 3
            while self.script[self.at : self.at + 1] in (" ", "\t"):
                self.at += 1
            self.out.append("<" + HERE_STRING)
        elif self.script.startswith("<<", self.at):
            return self._operator()
        elif character == "\n" and self.pending:
            return self._bodies()
        else:
            if self.script.startswith("((", self.at) and mode != "((nested":
                self.stack.append("((")
                self._copy(1)
            elif character == "(":
                self.stack.append("(" if mode != "((nested" else mode)
            elif character == ")" and mode in ("(", "((nested"):
                self.stack.pop()
            self._copy(1)
        return True

    def _quote(self) -> bool:
        start = self.at + 1
        if self.out and self.script[self.at - 1 : self.at] == "$":  # $'...': a backslash escapes a quote
            while start < len(self.script) and self.script[start] != "'":
                start += 2 if self.script[start] == "\\" else 1
        end = self.script.find("'", start)
        if end < 0:
            return False
        self._copy(end + 1 - self.at)
        return True

    def _operator(self) -> bool:
        tabs = self.script.startswith("<<-", self.at)
        at = self.at + (3 if tabs else 2)
        while at < len(self.script) and self.script[at] in " \t":
            at += 1
        start = at
        while at < len(self.script) and self.script[at] not in _WORD_END:
            at += 1
        raw = self.script[start:at]
        end = re.sub(r"['\"\\]", "", raw)
        if not raw or any(character in end for character in "$`"):
            return False
        index = len(self.documents) + len(self.pending)
        self.pending.append(_Pending(end, raw != end, tabs, index))
        self.out.append(f"<__heredoc_{index}__")
        self.at = at
        return True

    def _bodies(self) -> bool:
        """At the end of a line that announced documents: their bodies follow."""
        self._copy(1)
        for wanted in self.pending:
            lines: list[str] = []
            while True:
                if self.at >= len(self.script):
                    return False
                stop = self.script.find("\n", self.at)
                line = self.script[self.at : stop if stop >= 0 else len(self.script)]
                self.at = stop + 1 if stop >= 0 else len(self.script)
                line = line.lstrip("\t") if wanted.tabs else line
                if line == wanted.end:
                    if not wanted.literal and lines and _goes_on(lines[-1]):
                        return False  # the line before goes on in this one
                    break
                lines.append(line + "\n")
            self.documents[wanted.index] = Document("".join(lines), wanted.literal)
        self.pending.clear()
        return True

    def _copy(self, count: int) -> None:
        self.out.append(self.script[self.at : self.at + count])
        self.at += count
