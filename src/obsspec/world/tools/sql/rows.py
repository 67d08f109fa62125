"""Rows of a result as Python prints them: read into values."""

from __future__ import annotations

import ast
import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

Row = tuple[Any, ...]

_MAX_SIZE = 60_000  # characters
_CALLS = {
    "Decimal": Decimal,
    "datetime.date": datetime.date,
    "datetime.datetime": datetime.datetime,
    "datetime.timedelta": datetime.timedelta,
}


class _NotRowsError(Exception):
    """Something else than a printed list of tuples."""


@lru_cache(maxsize=256)
def read_rows(text: str) -> tuple[Row, ...] | None:
    """The rows; None if the text is no complete list of tuples of plain values."""
    if not text.startswith("[") or not text.endswith("]") or len(text) > _MAX_SIZE:
        return None
    try:
        value = _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, _NotRowsError):
        return None
    if not isinstance(value, list):
        return None
    rows: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    if not all(isinstance(row, tuple) for row in rows):
        return None
    return tuple(rows)


def write_rows(rows: list[Row]) -> str:
    """The same text again."""
    return repr(rows)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=elements):
            return [_value(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Call(func=function, args=args, keywords=keywords) if make := _CALLS.get(ast.unparse(function)):
            return make(*map(_value, args), **{str(keyword.arg): _value(keyword.value) for keyword in keywords})
        case _:
            raise _NotRowsError
