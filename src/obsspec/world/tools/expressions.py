"""Values of arithmetic expressions and of operations on numbers: safely, within bounds, exactly as Python has them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

Number = int | float
Value = Number
_Operator = Callable[[Number, Number], Number]

_MAX_SIZE = 500  # characters of an expression
_MAX_MAGNITUDE = 1e15

_BINARY: dict[type[ast.operator], _Operator] = {
    ast.Add: lambda first, second: first + second,
    ast.Sub: lambda first, second: first - second,
    ast.Mult: lambda first, second: first * second,
    ast.Div: lambda first, second: first / second,
    ast.FloorDiv: lambda first, second: first // second,
    ast.Mod: lambda first, second: first % second,
    ast.Pow: lambda first, second: first**second,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max, "round": round, "sqrt": math.sqrt}


class _NotArithmeticError(Exception):
    """Something else than arithmetic, or out of bounds."""


@lru_cache(maxsize=2048)
def evaluate(text: str) -> Value | None:
    """The value of an expression with at least one operator; None if it is something else or out of bounds."""
    if len(text) > _MAX_SIZE or not any(sign in text for sign in "+-*/%("):
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return None if isinstance(tree, ast.Constant) else _value(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError, TypeError, _NotArithmeticError):
        return None


def _value(node: ast.expr) -> Value:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _BINARY:
            first, second = _value(left), _value(right)
            if isinstance(sign, ast.Pow) and abs(second) > 64:
                raise _NotArithmeticError
            return _bounded(_BINARY[type(sign)](first, second))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, args)))
        case _:
            raise _NotArithmeticError


def _bounded(value: Number) -> Value:
    if isinstance(value, complex) or not abs(value) <= _MAX_MAGNITUDE:
        raise _NotArithmeticError
    return value


_OPERATIONS: Mapping[str, Callable[[Sequence[Number]], Number]] = MappingProxyType(
    {
        "sum": sum,
        "product": math.prod,
        "difference": lambda numbers: numbers[0] - numbers[1],
        "quotient": lambda numbers: numbers[0] / numbers[1],
        "power": lambda numbers: _bounded(numbers[0]) ** numbers[1] if abs(numbers[1]) <= 64 else math.nan,
        "mean": lambda numbers: sum(numbers) / len(numbers),
        "minimum": min,
        "maximum": max,
        "root": lambda numbers: math.sqrt(numbers[0]) if len(numbers) == 1 else math.nan,
        "percentage": lambda numbers: numbers[0] / numbers[1] * 100,
    }
)


def of_numbers(numbers: Sequence[Number]) -> Mapping[str, Value]:
    """The usual operations on up to 50 numbers, where they have a value."""
    found: dict[str, Value] = {}
    if not 1 <= len(numbers) <= 50:
        return found
    for name, compute in _OPERATIONS.items():
        try:
            found[name] = _bounded(compute(numbers))
        except (ArithmeticError, ValueError, IndexError, TypeError, _NotArithmeticError):
            continue
    return found
