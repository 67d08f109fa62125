"""The conventions by which tools show the outcome of a run: each style is one way to write it down."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from obsspec.world.python.dialects import old_syntax_error
from obsspec.world.python.outcomes import Kind, Outcome


class Style(StrEnum):
    """One convention. A tool has one for runs that end well and one for those that do not."""

    CELL = "cell"  # what IPython prints
    CELL_OLD = "cell, old grammar"
    PRINTS = "prints"  # only what was printed
    ECHO = "prints and value"
    VALUE = "value or prints"
    TEXT = "value as text or prints"
    ASSIGNED = "prints or what was assigned"
    NUMBERED = "prints and numbered value"
    TRACE = "prints and traceback"
    TRACE_SOURCE = "prints and traceback with source"
    TRACE_MARKLESS = "prints and traceback with source, no marks under it"
    TRACE_OLD = "prints and syntax error, old grammar"
    TRACE_ONLY = "traceback"
    TRACE_SOURCE_ONLY = "traceback with source"
    BRIEF = "prints, type and message"
    BRIEF_ONLY = "type and message"
    REPR = "repr of the error"
    MESSAGE = "message"


MARKS = re.compile(r"\n +[~^]+(?=\n)")  # which Python 3.11 began to show
Writer = Callable[[Outcome, str, int], str | None]  # outcome, code, number of the cell


def _old_cell(outcome: Outcome, code: str, number: int) -> str | None:
    report = old_syntax_error(code) if outcome.syntax else None
    return report and report.cell(number)


def _old_trace(outcome: Outcome, code: str, number: int) -> str | None:
    report = old_syntax_error(code) if outcome.syntax else None
    return report and report.file("<string>")


def _line(value: str | None) -> str:
    return "" if value is None else value + "\n"


def _value(value: str | None, outcome: Outcome) -> str:
    return outcome.out if value is None else _line(value)


def _numbered(outcome: Outcome, code: str, number: int) -> str:
    return outcome.out + ("" if outcome.value is None else f"Out[{number}]: {outcome.value}\n")


def _brief(outcome: Outcome) -> str:
    return f"{outcome.error}: {outcome.message}\n" if outcome.message else f"{outcome.error}\n"


_CELL: dict[Style, Writer] = {Style.CELL: lambda o, code, n: o.out, Style.CELL_OLD: _old_cell}
_WELL: dict[Style, Writer] = {
    Style.PRINTS: lambda o, code, n: o.out,
    Style.ECHO: lambda o, code, n: o.out + _line(o.value),
    Style.VALUE: lambda o, code, n: _value(o.value, o),
    Style.TEXT: lambda o, code, n: _value(o.text, o),
    Style.ASSIGNED: lambda o, code, n: o.out or _line(o.value if o.value is not None else o.assigned),
    Style.NUMBERED: _numbered,
}
_BADLY: dict[Style, Writer] = {
    Style.TRACE: lambda o, code, n: o.out + o.hidden,
    Style.TRACE_SOURCE: lambda o, code, n: o.out + o.shown,
    Style.TRACE_MARKLESS: lambda o, code, n: None if o.syntax else o.out + MARKS.sub("", o.shown),
    Style.TRACE_OLD: _old_trace,
    Style.TRACE_ONLY: lambda o, code, n: o.hidden,
    Style.TRACE_SOURCE_ONLY: lambda o, code, n: o.shown,
    Style.BRIEF: lambda o, code, n: o.out + _brief(o),
    Style.BRIEF_ONLY: lambda o, code, n: _brief(o),
    Style.REPR: lambda o, code, n: o.error_repr,
    Style.MESSAGE: lambda o, code, n: o.message,
}


def write_down(outcome: Outcome, code: str, number: int) -> dict[Style, str]:
    """Every way to show `outcome`, undressed (see `surface`)."""
    plain = _BADLY if outcome.kind in (Kind.ERROR, Kind.SYNTAX) else _WELL
    writers = _CELL if outcome.cell else plain
    written = {style: write(outcome, code, number) for style, write in writers.items()}
    return {style: text for style, text in written.items() if text is not None}
