"""Command-line options as the GNU programs take them; an option that is not listed makes the whole undetermined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Options:
    """`flags`: letters given; `values`: the values of each option that takes one, in order; `operands`: the rest."""

    flags: set[str] = field(default_factory=set[str])
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    operands: list[str] = field(default_factory=list[str])

    def value(self, letter: str) -> str | None:
        """The last value of this option."""
        found = self.values.get(letter)
        return found[-1] if found else None


def read_options(
    arguments: Sequence[str], flags: str, values: str = "", long: Mapping[str, str] | None = None
) -> Options | None:
    """Short options in `flags` and, with a value, in `values`; `long` maps long names to their letters.

    None for an unknown option or a missing value.
    """
    options = Options()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            options.operands += rest
            break
        if argument.startswith("--"):
            good = _long(argument, rest, options, values, long or {}, flags)
        elif argument.startswith("-") and len(argument) > 1:
            good = _short(argument[1:], rest, options, flags, values)
        else:
            options.operands.append(argument)
            good = True
        if not good:
            return None
    return options


def _long(argument: str, rest: list[str], options: Options, values: str, long: Mapping[str, str], flags: str) -> bool:
    name, sign, value = argument[2:].partition("=")
    letter = long.get(name, "")
    if letter and letter in values:
        if not sign and not rest:
            return False
        options.values.setdefault(letter, []).append(value if sign else rest.pop(0))
        return True
    if not letter or sign or letter not in flags:
        return False
    options.flags.add(letter)
    return True


def _short(cluster: str, rest: list[str], options: Options, flags: str, values: str) -> bool:
    for index, letter in enumerate(cluster):
        if letter in values:
            attached = cluster[index + 1 :]
            if not attached and not rest:
                return False
            options.values.setdefault(letter, []).append(attached or rest.pop(0))
            return True
        if letter not in flags:
            return False
        options.flags.add(letter)
    return True
