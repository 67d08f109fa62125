"""What one run of a piece of code in one engine came to: all that any convention may show of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Engine(StrEnum):
    """How code is run."""

    IPYTHON = "ipython"  # a cell in IPython's shell
    PLAIN = "plain"  # exec, with the value of a last expression


class Kind(StrEnum):
    """What there is to show."""

    PRINTED = "printed"
    VALUE = "value"  # a last expression with a value
    SILENT = "silent"
    ERROR = "error"
    SYNTAX = "syntax"  # an error before anything ran


@dataclass(frozen=True, slots=True)
class Outcome:
    """`late`: the run was cut off by its time limit. `clipped`: it printed more than is kept."""

    out: str
    err: str = ""
    value: str | None = None  # repr of the last expression
    text: str | None = None  # str of it
    assigned: str | None = None  # repr of what the last statement bound
    error: str = ""  # type of the exception
    message: str = ""
    error_repr: str = ""
    hidden: str = ""  # traceback without source lines, and with
    shown: str = ""
    syntax: bool = False
    late: bool = False
    clipped: bool = False
    written: bool = False  # files are left
    cell: bool = False  # made by IPython: `out` is all that it shows
    seconds: float = 0.0

    @property
    def kind(self) -> Kind:
        if self.syntax:
            return Kind.SYNTAX
        if self.error:
            return Kind.ERROR
        if self.value is not None or (self.cell and "Out[" in self.out):
            return Kind.VALUE
        return Kind.PRINTED if self.out else Kind.SILENT


def read_outcome(data: bytes) -> Outcome:
    """From the JSON that a REPL sent, which ran hostile code: raises ValueError on anything unexpected."""
    raw: dict[str, Any] = json.loads(data)

    def text(name: str) -> str:
        value = raw.get(name, "")
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a text")
        return value

    def known(name: str) -> str | None:
        return text(name) if name in raw else None

    return Outcome(
        out=text("out"),
        err=text("err"),
        value=known("value"),
        text=known("text"),
        assigned=known("assigned"),
        error=text("error"),
        message=text("message"),
        error_repr=text("repr"),
        hidden=text("hidden"),
        shown=text("shown"),
        syntax=bool(raw.get("syntax")),
        late=bool(raw.get("late")),
        clipped=bool(raw.get("clipped")),
        written=bool(raw.get("written")),
        cell=bool(raw.get("cell")),
        seconds=float(raw.get("seconds", 0.0)),
    )
