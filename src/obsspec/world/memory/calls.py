"""A call as memory sees it: what kind of tool it is, the text that matters, its class, and its shape with holes.

The *normal* text leaves out what does not change the answer as far as one can tell by looking: wrappers, a final
semicolon, blanks between words, the case of SQL keywords. The *shape* leaves out the arguments as well: `cat a.txt`
and `cat b.txt` have one shape, and the words left out fill its holes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from obsspec.values import ToolCall
from obsspec.world.effects import ToolKind, kind_of, script_of
from obsspec.world.memory.digests import digest
from obsspec.world.shell.names import names


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """`name` is the tool's. `words` are the arguments, each once, in order; `shape` names the text without them.

    `call` and `exact` name the tool with the normal and with the exact text. Compared by identity: `read` gives the
    same object for the same call as long as it remembers it.
    """

    kind: ToolKind
    name: str
    text: str
    normal: str
    group: str  # the class of the call: tool and command words
    shape: bytes
    words: tuple[str, ...]
    call: bytes
    exact: bytes


HOLE = "\x01"
EXACT = 4  # bytes: only tells spellings of one call apart
_MAX_KINDS = 1024
_SQL_WORDS = names(
    "select from where group by order having limit offset join inner left right outer full cross on using as and or not"
    " in is null like between exists distinct count sum avg min max union all intersect except case when then else end"
    " asc desc show tables columns databases describe explain insert into values update set delete create table drop"
    " alter add column index view with recursive primary key use database pragma begin commit rollback"
)
_SQL_STARTS = names(
    "select show desc describe explain insert update delete create drop alter with set use pragma begin commit rollback"
    " replace truncate"
)
_WRAPPER = re.compile(r"\A(?:execute|run|bash|sql|python|query)\[(.*)\]\Z", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_SQL_TOKEN = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`|\s+|\w+|.""", re.DOTALL)
_PIECE = re.compile(r"""'[^'\n]*'|"[^"\n]*"|`[^`\n]*`|[\w./~@%+:=-]+|\s+|.""", re.DOTALL)
_SEPARATORS = frozenset("|&;\n(){}!")
_OPENERS = names("then do else time sudo env nohup exec xargs if while elif")
_MAX_CHARACTERS = 2_000  # longer calls are hardly ever alike but for their arguments


def read(call: ToolCall) -> Reading:
    kind, argument = _kind(call)
    text = call.arguments.get(argument)
    if not isinstance(text, str):
        text = script_of(call) if kind is not ToolKind.OTHER else None
    return (
        read_text(ToolKind.OTHER, call.name, _json(call.arguments))
        if text is None
        else read_text(kind, call.name, text)
    )


_kinds: dict[tuple[str, tuple[str, ...]], tuple[ToolKind, str]] = {}


def _kind(call: ToolCall) -> tuple[ToolKind, str]:
    """What sort of tool it is, and which argument holds the script; both depend on names only."""
    names_of_call = (call.name, tuple(call.arguments))
    known = _kinds.get(names_of_call)
    if known is None:
        script = script_of(call)
        argument = next((name for name, value in call.arguments.items() if script is not None and value is script), "")
        known = kind_of(call), argument
        if len(_kinds) < _MAX_KINDS:
            _kinds[names_of_call] = known
    return known


@lru_cache(maxsize=8192)
def read_text(kind: ToolKind, name: str, text: str) -> Reading:
    """The reading of a call of tool `name`; equal calls are read once."""
    normal = _NORMAL[kind](text)
    pieces = _PIECE.findall(normal[:_MAX_CHARACTERS])
    heads = _HEADS[kind](pieces, normal)
    shape, words = _holes(pieces, frozenset(heads), kind) if len(normal) <= _MAX_CHARACTERS else (normal, ())
    group = " ".join((name, *heads[:6]))
    return Reading(
        kind, name, text, normal, group, digest(name, shape), words, digest(name, normal), digest(name, text)[:EXACT]
    )


def _holes(pieces: list[str], keep: frozenset[str], kind: ToolKind) -> tuple[str, tuple[str, ...]]:
    """The shape, and the words of its holes. Command words, options, keywords and punctuation stay."""
    shape: list[str] = []
    words: dict[str, int] = {}
    for piece in pieces:
        if _stays(piece, keep, kind):
            shape.append(" " if piece.isspace() and "\n" not in piece else piece)
            continue
        word = unquoted(piece)
        number = words.setdefault(word, len(words))
        shape.append(f"{HOLE}{number}{HOLE}")
    return "".join(shape), tuple(words)


def _stays(piece: str, keep: frozenset[str], kind: ToolKind) -> bool:
    if len(piece) == 1 and not piece.isalnum():
        return True
    if piece.isspace() or piece in keep:
        return True
    if kind is ToolKind.SQL:
        return piece.lower() in _SQL_WORDS
    return kind is ToolKind.SHELL and piece.startswith("-")


def unquoted(piece: str) -> str:
    return piece[1:-1] if len(piece) >= 2 and piece[0] == piece[-1] and piece[0] in "'\"`" else piece


def unwrapped(text: str) -> str:
    """Without `execute[...]` or a code fence around all of it."""
    text = text.strip()
    for wrapper in (_WRAPPER, _FENCE):
        found = wrapper.match(text)
        if found:
            text = found[1].strip()
    return text


def _normal_shell(text: str) -> str:
    text = text.strip()
    found = _WRAPPER.match(text)  # a fence stays: a shell runs what is in backquotes
    text = found[1].strip() if found else text
    if not any(mark in text for mark in "'\"\\\n`"):
        text = " ".join(text.split())
    return text.removesuffix(";").rstrip() if not text.endswith((";;", "\\;")) else text


def _normal_python(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").rstrip().splitlines())


def _normal_sql(text: str) -> str:
    parts: list[str] = []
    for token in _SQL_TOKEN.findall(unwrapped(text)):
        if token.isspace():
            parts.append(" ")
        else:
            parts.append(token.lower() if token.lower() in _SQL_WORDS else token)
    return "".join(parts).strip().rstrip("; ")


def _shell_heads(pieces: list[str], normal: str) -> tuple[str, ...]:
    """The command words: first of each simple command."""
    heads: list[str] = []
    expected = True
    for piece in pieces:
        if piece in _SEPARATORS or (piece.isspace() and "\n" in piece):
            expected = True
        elif not piece.isspace() and expected and "=" not in piece:
            heads.append(piece)
            expected = piece in _OPENERS
    return tuple(dict.fromkeys(heads))


def _sql_heads(pieces: list[str], normal: str) -> tuple[str, ...]:
    if not is_sql(normal):
        return ("text",)
    return tuple(dict.fromkeys(piece for piece in pieces if piece in _SQL_WORDS))


def is_sql(text: str) -> bool:
    return _first_word(text) in _SQL_STARTS


def _python_heads(pieces: list[str], normal: str) -> tuple[str, ...]:
    last = normal.rsplit("\n", 1)[-1].strip()
    return ("print" if "print(" in normal else "silent", "import" if "import " in normal else "", _last_kind(last))


def _last_kind(line: str) -> str:
    if line.startswith("print("):
        return "print"
    return "assign" if re.match(r"[\w., \[\]]+=[^=]", line) else "expression"


def _api_heads(pieces: list[str], normal: str) -> tuple[str, ...]:
    return ()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=dict)


def _first_word(text: str) -> str:
    found = re.match(r"\s*(\w+)", text)
    return found[1].lower() if found else ""


_NORMAL = {
    ToolKind.SHELL: _normal_shell,
    ToolKind.PYTHON: _normal_python,
    ToolKind.SQL: _normal_sql,
    ToolKind.OTHER: str.strip,
}
_HEADS = {
    ToolKind.SHELL: _shell_heads,
    ToolKind.PYTHON: _python_heads,
    ToolKind.SQL: _sql_heads,
    ToolKind.OTHER: _api_heads,
}
