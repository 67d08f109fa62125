"""Where a database stops reading a statement: what is left of it is in the message."""

from __future__ import annotations

import re
from functools import lru_cache

from sqlglot import exp

from obsspec.world.tools.sql.messages import Complaint, Fault
from obsspec.world.tools.sql.parse import parse_query
from obsspec.world.tools.sql.statement import Kind, Statement

_NEAR = 80  # characters of the rest that MySQL quotes

_RESERVED_WORDS = """
    accessible add all alter analyze and as asc asensitive before between both by call cascade case change check
    collate column condition constraint continue convert create cross current_date current_time current_timestamp
    current_user cursor database databases declare default delayed delete desc describe deterministic distinct
    distinctrow div drop dual each else elseif enclosed escaped except exists exit explain fetch for force foreign from
    fulltext generated get grant group grouping having if ignore in index infile inner inout insert intersect interval
    into is iterate join key keys kill lateral leading leave left like limit linear lines load lock loop match
    modifies natural not null of on optimize option optionally or order out outer outfile over partition precision
    primary procedure purge range read reads recursive references regexp release rename repeat replace require resignal
    restrict return revoke right rlike row rows schema schemas select sensitive separator set show signal spatial
    specific sql ssl starting stored straight_join system table terminated then to trailing trigger undo union unique
    unlock unsigned update usage use using values varying virtual when where while window with write xor zerofill
"""
_FUNCTION_WORDS = """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
_CALLED = frozenset(_FUNCTION_WORDS.split())  # read as the name of a function: missed are the parentheses after it


@lru_cache(maxsize=1024)
def syntax_fault(statement: Statement) -> Fault | None:
    """The complaint of MySQL about a statement it can not read; None if nothing is known to be wrong with it."""
    match statement.kind:
        case Kind.QUERY:
            if statement.tree is None:
                return _near(statement.text, parse_query(statement.text).offset)
            return _reserved(statement.text, statement.tree) or _unsupported(statement.tree)
        case Kind.COLUMNS:
            bare = statement.table in _RESERVED and "`" not in statement.text
            return _near(statement.text, statement.text.lower().rindex(statement.table)) if bare else None
        case Kind.LOOK:
            place = re.search(r"<\w", statement.text)
            return _near(statement.text, place.start()) if place else None
        case _:
            return None


def _near(text: str, offset: int | None) -> Fault | None:
    if offset is None:
        return None
    line = text.count("\n", 0, offset) + 1
    return Fault(Complaint.SYNTAX, text[offset : offset + _NEAR], clause=str(line))


def _reserved(text: str, tree: exp.Query) -> Fault | None:
    """The first name that is a reserved word and is not quoted."""
    places: list[int] = []
    for identifier in tree.find_all(exp.Identifier):
        start, word = identifier.meta.get("start"), identifier.name.lower()
        if start is None or identifier.quoted or text[start - 1 : start] == ".":
            continue
        if word in _RESERVED:
            places.append(start)
        elif word in _CALLED:
            after = re.compile(r"\s*").match(text, start + len(word))
            places.append(after.end() if after else start)
    return _near(text, min(places)) if places else None


def _unsupported(tree: exp.Query) -> Fault | None:
    for inside in tree.find_all(exp.In):
        query = inside.args.get("query")
        if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query) and query.this.args.get("limit"):
            return Fault(Complaint.LIMIT, "")
    return None
