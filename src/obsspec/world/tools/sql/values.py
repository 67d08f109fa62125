"""Comparisons and sums of values as MySQL makes them, where that is plain; everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from types import MappingProxyType
from typing import Any

from sqlglot import exp


class UnclearError(Exception):
    """What the database does with these values is not modelled."""


Number = int | float | Decimal


def key(value: Any) -> Any:
    """What stands for the value in comparisons: strings without case and without spaces at their end."""
    if isinstance(value, str):
        if not value.isascii():
            raise UnclearError
        return value.lower().rstrip(" ")
    if value is None or isinstance(value, int | float | Decimal):
        return value
    raise UnclearError


def loose_key(value: Any) -> Any:
    """The same for telling values apart, where a language's order of letters does not matter."""
    return key(value) if not isinstance(value, str) or value.isascii() else value


def order_key(value: Any) -> tuple[bool, Any]:
    """For sorting; NULL comes first. Raises `UnclearError`."""
    return value is not None, key(value) if value is not None else 0


def compare(first: Any, second: Any) -> int | None:
    """-1, 0 or 1; None if one is NULL. A string is compared with a number by the number that it begins with."""
    if first is None or second is None:
        return None
    left, right = key(first), key(second)
    if isinstance(left, str) != isinstance(right, str):
        left, right = _number(left), _number(right)
    return (left > right) - (left < right)


def like(value: Any, pattern: Any) -> bool | None:
    """Without case; `%` and `_` only."""
    if value is None or pattern is None:
        return None
    if not isinstance(value, str) or not isinstance(pattern, str) or "\\" in pattern or not (value + pattern).isascii():
        raise UnclearError
    parts = [".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern.lower()]
    return re.fullmatch("".join(parts), value.lower(), re.DOTALL) is not None


def _number(value: Any) -> Number:
    if not isinstance(value, str):
        return value
    found = re.match(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value)
    return float(found.group(0)) if found else 0.0


def _exact(values: Sequence[Number]) -> bool:
    return all(isinstance(value, int | Decimal) for value in values)


def _numbers(values: Sequence[Any]) -> list[Number]:
    if not all(isinstance(value, int | float | Decimal) for value in values):
        raise UnclearError
    return list(values)


def _sum(values: Sequence[Any]) -> Number | None:
    numbers = _numbers(values)
    if not numbers:
        return None
    return sum(map(Decimal, numbers), Decimal(0)) if _exact(numbers) else float(sum(map(float, numbers)))


def _mean(values: Sequence[Any]) -> Number | None:
    numbers = _numbers(values)
    if not numbers:
        return None
    if not _exact(numbers):
        return sum(map(float, numbers)) / len(numbers)
    scale = max(-int(Decimal(number).as_tuple().exponent) for number in numbers)
    mean = sum(map(Decimal, numbers), Decimal(0)) / len(numbers)
    return mean.quantize(Decimal(1).scaleb(-(scale + 4)), rounding=ROUND_HALF_UP)


AGGREGATES: Mapping[type[exp.Expr], Callable[[Sequence[Any]], Any]] = MappingProxyType(
    {
        exp.Count: len,
        exp.Sum: _sum,
        exp.Avg: _mean,
        exp.Min: lambda values: min(values, key=order_key, default=None),
        exp.Max: lambda values: max(values, key=order_key, default=None),
    }
)
