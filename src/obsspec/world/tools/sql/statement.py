"""SQL statements in the arguments of calls: found, parsed and classed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sqlglot import exp

from obsspec.values import ToolCall
from obsspec.world.tools.sql.parse import parse_query

_MAX_SIZE = 10_000  # characters
_READS = frozenset(("select", "with", "show", "desc", "describe", "explain"))
_WRITES = frozenset(("insert", "update", "delete", "replace", "create", "alter", "drop", "truncate", "use", "set"))
_WRAPPED = re.compile(r"\s*\w+\s*\[(.*)\][^\[\]]*", re.DOTALL)  # action[...], as some agents write their calls
_TABLES = re.compile(r"show\s+(?:full\s+)?tables\s*", re.IGNORECASE)
_COLUMNS = re.compile(
    r"(?:(?:desc|describe|explain)(?:\s+table)?|show\s+(?:columns|fields)\s+(?:from|in))\s+([`\w.$]+)\s*", re.IGNORECASE
)


class Kind(StrEnum):
    QUERY = "query"  # SELECT, WITH
    TABLES = "tables"  # the names of the tables
    COLUMNS = "columns"  # the columns of one table
    LOOK = "look"  # another statement that changes nothing
    WRITE = "write"


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """`tree` is the parsed query, None if it has an error; `table` is the subject of `COLUMNS`, lower case."""

    kind: Kind
    text: str
    tree: exp.Query | None = None
    table: str = ""


def statement_of(call: ToolCall) -> Statement | None:
    """The statement in the only argument that begins like SQL; None if there is no such argument."""
    found = [read_statement(text) for text in call.arguments.values() if isinstance(text, str)]
    statements = [statement for statement in found if statement is not None]
    return statements[0] if len(statements) == 1 else None


@lru_cache(maxsize=1024)
def read_statement(text: str) -> Statement | None:
    """The one statement that a text is, without what wraps it; None if it begins with no word of SQL."""
    if len(text) > _MAX_SIZE:
        return None
    wrapped = _WRAPPED.fullmatch(text)
    bare = (wrapped.group(1) if wrapped else text).strip().rstrip(";").strip()
    word = re.match(r"\(*\s*(\w+)", bare)
    if word is None or word.group(1).lower() not in _READS | _WRITES:
        return None
    if _TABLES.fullmatch(bare):
        return Statement(Kind.TABLES, bare)
    columns = _COLUMNS.fullmatch(bare)
    if columns:
        return Statement(Kind.COLUMNS, bare, table=columns.group(1).replace("`", "").lower())
    match word.group(1).lower():
        case "select" | "with":
            return Statement(Kind.QUERY, bare, parse_query(bare).tree)
        case "show" | "desc" | "describe" | "explain":
            return Statement(Kind.LOOK, bare)
        case _:
            return Statement(Kind.WRITE, bare)
