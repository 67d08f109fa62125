"""How a harness hands the text of an action to a shell.

Most give it to `bash -c` as one argument. Some embed it in a double quoted string that is split again, so that inner
quotes break it apart; some policies wrap their command in brackets or fences that the harness takes off. What a
command prints depends on all of that, so each way is a hypothesis that outcomes decide between.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

_BRACKETS = re.compile(r"\s*\w+\[(.*)\]\s*\Z", re.DOTALL)
_FENCE = re.compile(r"\s*```\w*\n(.*?)\n?```\s*\Z", re.DOTALL)


class Form(StrEnum):
    ARGUMENT = "argument"
    QUOTED = "quoted"


class Wrapping(StrEnum):
    """What stands around the command in the text of an action."""

    NONE = "none"
    BRACKETS = "brackets"  # execute[ls]
    FENCE = "fence"  # a Markdown code block


@dataclass(frozen=True, slots=True)
class Shell:
    form: Form
    program: str  # as the shell calls itself in its messages


SHELLS = (
    Shell(Form.ARGUMENT, "bash"),
    Shell(Form.ARGUMENT, "/bin/bash"),
    Shell(Form.ARGUMENT, "/bin/sh"),
    Shell(Form.ARGUMENT, "sh"),
    Shell(Form.QUOTED, "/bin/bash"),
    Shell(Form.QUOTED, "bash"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One hypothesis. `unwrapped`: the wrapping is taken off before the shell sees the command."""

    shell: Shell
    unwrapped: bool = True

    def arguments(self, text: str) -> tuple[str, ...] | None:
        """Program, `-c`, script and what follows; None where the text cannot be split."""
        script = unwrap(text) if self.unwrapped else text
        if self.shell.form is Form.ARGUMENT:
            return (self.shell.program, "-c", script)
        return _split(self.shell.program, script)


def wrapping(text: str) -> Wrapping:
    if _BRACKETS.match(text):
        return Wrapping.BRACKETS
    return Wrapping.FENCE if _FENCE.match(text) else Wrapping.NONE


def unwrap(text: str) -> str:
    found = _BRACKETS.match(text) or _FENCE.match(text)
    return found[1] if found else text


@lru_cache(maxsize=4096)
def _split(program: str, script: str) -> tuple[str, ...] | None:
    try:
        return tuple(shlex.split(f'{program} -c "{script}"'))
    except ValueError:
        return None
