"""Tools that compute: the value of an expression or of a few numbers in the arguments, in a learnt spelling."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType

from obsspec.values import ToolCall
from obsspec.world.tools.expressions import Number, Value, evaluate, of_numbers
from obsspec.world.tools.holes import MAX_ANSWER, abstract
from obsspec.world.tools.seen import Asked, leaves
from obsspec.world.tools.streak import Streak
from obsspec.world.tools.template import argument_values, digest
from obsspec.world.tools.trust import Claim


def _whole(value: Number) -> str:
    return str(int(value)) if value == int(value) else repr(value)


SPELLINGS: Mapping[str, Callable[[Number], str]] = MappingProxyType(
    {
        "rounded": lambda value: str(round(float(value), 2)),
        "float": lambda value: str(float(value)),
        "plain": str,
        "whole": _whole,
        "cents": lambda value: f"{value:.2f}",
        "nearest": lambda value: str(round(value)),
    }
)

Rule = tuple[str, str]  # how the value comes about, and how it is spelled


class Arithmetic:
    """For each tool and rule (operation and spelling): the template around the value, as long as it keeps holding.

    What may be a mere copy of an argument is no value.
    """

    def __init__(self) -> None:
        self._streaks: dict[Hashable, dict[Rule, Streak]] = {}

    def claims(self, asked: Asked) -> Iterable[Claim]:
        rules = self._streaks.get(_tool(asked.call))
        if not rules:
            return
        spelled, values = _spelled(asked.call), argument_values(asked.call)
        for rule, streak in sorted(rules.items(), key=lambda item: -item[1].length):
            if rule in spelled and streak.template.uses("value"):
                text = streak.template.fill({**values, "value": spelled[rule]})
                if text is not None:
                    written = rule[0] == "expression"  # rather than guessed from a few numbers
                    prior = (streak.length + (3 if written else 1)) / (streak.length + (4 if written else 2))
                    classes = (("arithmetic", written, streak.bucket), (asked.call.name, rule))
                    yield Claim(text, "tools/arithmetic", classes, prior)
                    return

    def learn(self, asked: Asked, text: str) -> None:
        spelled = _spelled(asked.call)
        if not spelled or len(text) > MAX_ANSWER:
            return
        values, call = argument_values(asked.call), digest(asked.call)
        rules = self._streaks.setdefault(_tool(asked.call), {})
        for rule, value in spelled.items():
            if rule in rules:
                rules[rule].see(text, {**values, "value": value}, call)
            elif value in text:
                rules[rule] = Streak(abstract(text, {**values, "value": value}), {call})


def _tool(call: ToolCall) -> Hashable:
    return call.name, tuple(sorted(call.arguments))


def _spelled(call: ToolCall) -> dict[Rule, str]:
    """Every rule that gives a value for this call, with the value as it spells it."""
    spelled: dict[Rule, str] = {}
    for operation, value in _values(call).items():
        for name, spell in SPELLINGS.items():
            try:
                spelled[operation, name] = spell(value)
            except (OverflowError, ValueError):  # infinite or not a number
                continue
    return spelled


def _values(call: ToolCall) -> Mapping[str, Value]:
    """The one expression in the arguments, else the operations on the numbers in them."""
    scalars = [value for _, value in leaves(dict(call.arguments))]
    expressions = [value for text in scalars if isinstance(text, str) and (value := evaluate(text)) is not None]
    if expressions:
        return {"expression": expressions[0]} if len(expressions) == 1 else {}
    numbers = [value for value in scalars if isinstance(value, int | float) and not isinstance(value, bool)]
    return of_numbers(numbers)
