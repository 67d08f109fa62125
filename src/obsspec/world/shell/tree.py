"""A shell script as a small typed tree: only what the parts that read scripts need, and nothing of the parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that stands for itself. `quoted` text is neither split nor a pattern."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name}`, also the special ones (`?`, `1`, `@`)."""

    name: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(script)`."""

    script: Sequence
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Opaque:
    """An expansion that is not followed: arithmetic, `${x%y}`, `<(...)`. What it runs and names is kept."""

    text: str
    quoted: bool = False
    scripts: tuple[Sequence, ...] = ()
    names: tuple[str, ...] = ()


Part = Literal | Variable | Substitution | Opaque


@dataclass(frozen=True, slots=True)
class Word:
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: Word | None  # None: an array or an element of one
    append: bool = False


@dataclass(frozen=True, slots=True)
class Redirection:
    """`fd operator target`; `document` is the text that `<<` and `<<<` put on standard input."""

    operator: str  # ">", ">>", ">|", "<", "<>", "&>", "&>>", ">&", "<&", "<<", "<<<"
    target: Word
    fd: int | None = None
    document: Word | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple command; no words: assignments of the shell itself, or redirections alone."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()


class Shape(StrEnum):
    """What kind of compound command it is."""

    GROUP = "{ }"
    SUBSHELL = "( )"
    IF = "if"
    FOR = "for"
    WHILE = "while"
    UNTIL = "until"
    CASE = "case"
    FUNCTION = "function"
    ARITHMETIC = "(( ))"


@dataclass(frozen=True, slots=True)
class Compound:
    """A compound command.

    `bodies`: the scripts in order: IF condition, body, condition, body, ..., the `else` body if their number is odd;
    WHILE and UNTIL condition, body; the others their only or all their bodies. `name`: of a FOR variable or a FUNCTION.
    `words`: values of FOR (None: the positional parameters), subject and patterns of CASE.
    """

    shape: Shape
    bodies: tuple[Sequence, ...] = ()
    name: str = ""
    words: tuple[Word, ...] | None = ()
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Two or more stages, or a negated one. `merged[i]`: stage i also pipes its errors (`|&`)."""

    stages: tuple[Command, ...]
    merged: tuple[bool, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    left: Command
    operator: str  # "&&" or "||"
    right: Command


@dataclass(frozen=True, slots=True)
class Background:
    """`command &`."""

    command: Command


Command = Simple | Compound | Pipeline | AndOr | Background


@dataclass(frozen=True, slots=True)
class Sequence:
    """Commands one after the other: a whole script, or a list inside a compound command."""

    commands: tuple[Command, ...] = field(default=())


def starts_jobs(command: Command) -> bool:
    """Whether something may still run in the background when the command is over, as far as its own text says."""
    match command:
        case Background():
            return True
        case Simple():
            return False
        case Compound():
            return any(starts_jobs(each) for body in command.bodies for each in body.commands)
        case Pipeline():
            return any(starts_jobs(stage) for stage in command.stages)
        case AndOr():
            return starts_jobs(command.left) or starts_jobs(command.right)
