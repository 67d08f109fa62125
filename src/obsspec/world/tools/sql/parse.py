"""Parsing queries of MySQL, and where that fails."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

_CONTEXT = 10_000  # the parser's report then holds all that it read before the error


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """The tree of one query; or the `offset` of the first character that no longer belongs to one, if known."""

    tree: exp.Query | None = None
    offset: int | None = None


@lru_cache(maxsize=256)
def parse_query(text: str) -> Parsed:
    """Never raises; what is no single query has neither tree nor offset."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it can not parse is no concern of the user
    try:
        trees = sqlglot.parse(text, read="mysql", error_message_context=_CONTEXT)
    except ParseError as error:
        return Parsed(offset=_offset(error, text))
    except (SqlglotError, RecursionError):
        return Parsed(offset=_open_quote(text))
    finally:
        logger.setLevel(level)
    tree = trees[0] if len(trees) == 1 else None
    return Parsed(tree) if isinstance(tree, exp.Query) else Parsed()


def _offset(error: ParseError, text: str) -> int | None:
    first: dict[str, Any] = error.errors[0] if error.errors else {}
    context = first.get("start_context")
    if context is None or not text.startswith(context):
        return None
    return len(context)


def _open_quote(text: str) -> int | None:
    """Where a string begins that never ends."""
    opened: tuple[str, int] | None = None
    for index, sign in enumerate(text):
        if opened is None and sign in "'\"`":
            opened = (sign, index)
        elif opened is not None and sign == opened[0]:
            opened = None
    return None if opened is None else opened[1]
