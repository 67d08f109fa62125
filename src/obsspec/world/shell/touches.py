"""What a program touches, and how its arguments are read for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Touch:
    """Paths as the program was given them, "." for its directory. None: anything."""

    reads: tuple[str, ...] | None = ()
    writes: tuple[str, ...] | None = ()
    volatile: bool = False
    changes_shell: bool = False
    reads_shell: bool = False


ANYTHING = Touch(None, None)
NOTHING = Touch()
Rule = Callable[[list[str]], Touch]


def operands(arguments: list[str], with_value: str = "") -> list[str]:
    """The arguments that are no options. `with_value`: letters of short options whose value may be the next one."""
    found: list[str] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument == "--":
            return found + arguments[at + 1 :]
        if argument.startswith("-") and argument != "-":
            if not argument.startswith("--") and argument[-1] in with_value and not argument[1:-1].isdigit():
                at += 1
        else:
            found.append(argument)
        at += 1
    return found


def has_flag(arguments: list[str], letters: str, *names: str) -> bool:
    """Whether a short option of these letters, or one of the long `names`, is given."""
    return any(
        (argument.startswith("-") and not argument.startswith("--") and any(c in argument[1:] for c in letters))
        or argument.partition("=")[0] in names
        for argument in arguments
    )


def reads(with_value: str = "", *, here: bool = False, skip: int = 0) -> Rule:
    """Reads all operands after the first `skip`; its directory if it has none and `here` is set."""

    def rule(arguments: list[str]) -> Touch:
        found = [path for path in operands(arguments, with_value)[skip:] if path != "-"]
        return Touch(reads=tuple(found or ["."] if here else found))

    return rule


def writes(with_value: str = "", skip: int = 0) -> Rule:
    def rule(arguments: list[str]) -> Touch:
        found = tuple(operands(arguments, with_value)[skip:])
        return Touch(reads=found, writes=found)

    return rule


def constant(touch: Touch) -> Rule:
    return lambda _: touch
