"""What a tool call may read and change: shell commands by their parse, other tools by their kind and name."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import cast

from obsspec.values import ToolCall
from obsspec.world.shell.effects import UNKNOWN, Effects, shell_effects
from obsspec.world.shell.paths import START, overlap
from obsspec.world.shell.python_code import python_touch

__all__ = ["START", "UNKNOWN", "Effects", "ToolKind", "effects", "kind_of", "overlap", "script_of"]


class ToolKind(StrEnum):
    SHELL = "shell"
    PYTHON = "python"
    SQL = "sql"
    OTHER = "other"


_SHELL_NAME = re.compile(r"(?:^|[_\W])(?:bash|sh|shell|terminal|console|cmd|command)(?:$|[_\W\d])")
_PYTHON_NAME = re.compile(r"python|jupyter|code_interpreter|(?:^|_)(?:code|repl)(?:$|_)")
_SQL_NAME = re.compile(r"sql|(?:^|_)(?:query|execute)_(?:db|database)|database_query")
_FIELDS = {
    ToolKind.SHELL: ("command", "cmd", "script", "bash_command", "input"),
    ToolKind.PYTHON: ("code", "source", "source_code", "script", "cell", "input", "command"),
    ToolKind.SQL: ("query", "sql", "statement", "sql_query", "input", "command"),
}
_READING = re.compile(
    r"(?:^|[_\W])(?:get|list|search|find|read|lookup|look|fetch|show|view|check|describe|count|calculate|compute|think|"
    r"query|display|compare|convert|estimate|verify|is|has)(?:$|[_\W])|^(?:ls|cat|pwd|grep|wc|tail|head|du|diff)$"
)
_WRITING = re.compile(
    r"(?:^|[_\W])(?:set|add|create|delete|remove|update|modify|cancel|book|send|write|post|put|exchange|return|transfer|"
    r"insert|place|buy|sell|withdraw|fund|start|stop|open|close|cd|mv|cp|rm|mkdir|touch|echo|sort|login|logout)(?:$|[_\W])"
)
_STATELESS = re.compile(r"(?:^|[_\W])(?:think|calculate|calculator|compute|add_numbers|convert)(?:$|[_\W])")
_CLOCKED = re.compile(r"(?:^|[_\W])(?:time|now|today|date|random|uuid|weather)(?:$|[_\W])")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SQL_READ = re.compile(
    r"\s*(?:select|show|desc|describe|explain|values|help|pragma\s+[a-z_]+\s*(?:\(|;|$))\b", re.IGNORECASE
)
_SQL_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_SQL_CHANGE = re.compile(
    r"\b(?:insert|update|delete|replace|drop|create|alter|truncate|merge|into|attach)\b", re.IGNORECASE
)
_SQL_VOLATILE = re.compile(
    r"\b(?:now|rand|random|uuid|sysdate|curdate|curtime|connection_id|sleep|current_timestamp|current_date|current_time)\b",
    re.IGNORECASE,
)


def kind_of(call: ToolCall) -> ToolKind:
    """What sort of tool this is, by its name."""
    name = _CAMEL.sub("_", call.name).lower()
    for kind, pattern in ((ToolKind.PYTHON, _PYTHON_NAME), (ToolKind.SQL, _SQL_NAME), (ToolKind.SHELL, _SHELL_NAME)):
        if pattern.search(name) and _text(call, kind) is not None:
            return kind
    return ToolKind.OTHER


def script_of(call: ToolCall) -> str | None:
    """The script, code or statement that the call runs; None if it is no such tool."""
    kind = kind_of(call)
    return None if kind is ToolKind.OTHER else _text(call, kind)


def effects(call: ToolCall, cwd: str | None = START) -> Effects:
    """The effects of one call, for a shell that is in `cwd`. Never raises; what is not known counts as anything."""
    kind = kind_of(call)
    text = _text(call, kind) or ""
    if kind is ToolKind.SHELL:
        return shell_effects(text, cwd)
    if kind is ToolKind.SQL:
        return _sql(text)
    if kind is ToolKind.PYTHON:
        touch = python_touch(text)
        return Effects(None, None, touch.volatile, changes_shell=True, reads_shell=True)
    return _named(_CAMEL.sub("_", call.name).lower())


def _text(call: ToolCall, kind: ToolKind) -> str | None:
    for name in _FIELDS.get(kind, ()):
        value = call.arguments.get(name)
        if isinstance(value, str):
            return value
        if kind is ToolKind.SHELL and isinstance(value, (list, tuple)):
            return _joined([str(word) for word in cast("Sequence[object]", value)])
    return None


def _joined(words: Sequence[str]) -> str:
    """A command that is given word by word."""
    if len(words) == 3 and words[1] in ("-c", "-lc") and posixpath.basename(words[0]) in ("bash", "sh", "zsh"):
        return words[2]
    return shlex.join(words)


def _sql(text: str) -> Effects:
    statements = [part for part in text.split(";") if part.strip()]
    plain = all(_SQL_READ.match(part) or _SQL_WITH.match(part) for part in statements)
    changes = any(_SQL_CHANGE.search(_without_strings(part)) for part in statements if not _SQL_READ.match(part))
    into = re.search(r"\binto\b", _without_strings(text), re.IGNORECASE) is not None
    volatile = _SQL_VOLATILE.search(_without_strings(text)) is not None
    if plain and not changes and not into:
        return Effects(None, frozenset(), volatile)
    return Effects(None, None, volatile, changes_shell=True)


def _without_strings(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "''", text)


def _named(name: str) -> Effects:
    volatile = _CLOCKED.search(name) is not None
    if _STATELESS.search(name):
        return Effects(frozenset(), frozenset(), volatile)
    if _READING.search(name) and not _WRITING.search(name):
        return Effects(None, frozenset(), volatile)
    return Effects(None, None, volatile)
