"""What of a rollout's history matters to a shadow: which commands changed files, and which files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from obsspec.values import Context, ToolCall
from obsspec.world.effects import Effects, ToolKind, kind_of, script_of
from obsspec.world.shadow.harness import Harness
from obsspec.world.shadow.kinds import OutputKind, output_kind
from obsspec.world.shell.effects import shell_effects
from obsspec.world.shell.paths import resolve, within

MAX_CHANGES = 12  # more commands to run again are not worth it
_CD = re.compile(r"\s*cd\s+([\w./+-]+)\s*(?:;|&&|\n|\Z)")
_FAILED_CD = re.compile(r"\bcd: .*: (?:No such file or directory|Not a directory)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """One call as the shell gets it, in `directory`. `arguments` None: the harness cannot even split it."""

    text: str
    arguments: tuple[str, ...] | None
    effects: Effects
    directory: str

    @property
    def script(self) -> str:
        return self.arguments[2] if self.arguments is not None and len(self.arguments) > 2 else ""

    @property
    def shell(self) -> str:
        """The name that the shell gives itself in messages."""
        arguments = self.arguments or ()
        return arguments[3] if len(arguments) > 3 else (arguments[0] if arguments else "")


@dataclass(frozen=True, slots=True)
class Past:
    """`changes`: commands that may have changed files, in order. `touched`: what they may have; None is anything.

    `directory`: where the shell is now. `shell`: variables and the like may have changed, or nobody knows where it is.
    """

    directory: str
    changes: tuple[Command, ...] = ()
    touched: frozenset[str] | None = frozenset()
    shell: bool = False

    def spared(self, path: str) -> bool:
        """Whether `path` is as it was at the start."""
        if self.touched is None:
            return False
        return not any(within(path, changed) or within(changed, path) for changed in self.touched)


def read_command(text: str, harness: Harness, directory: str) -> Command:
    arguments = harness.best(text).arguments(text)
    script = arguments[2] if arguments is not None and len(arguments) > 2 else ""
    return Command(text, arguments, shell_effects(script, directory), directory)


def shell_text(call: ToolCall) -> str | None:
    """The text of a shell call; None for other tools."""
    return script_of(call) if kind_of(call) is ToolKind.SHELL else None


def read_past(context: Context, harness: Harness, directory: str, *, keeps: bool) -> Past | None:
    """None where other tools than the shell have acted, or too much has changed. `keeps`: the shell lives on."""
    past = Past(directory)
    for exchange in context.history:
        for call, observation in zip(exchange.calls, exchange.observations, strict=False):
            text = shell_text(call)
            if text is None:
                return None
            command = read_command(text, harness, past.directory)
            past = _after(past, command, observation.text, keeps=keeps)
    return past if len(past.changes) <= MAX_CHANGES else None


def _after(past: Past, command: Command, output: str, *, keeps: bool) -> Past:
    changes, touched, directory, shell = past.changes, past.touched, past.directory, past.shell
    if not unchanging(command, output):
        changes = (*changes, command)
        writes = command.effects.writes
        touched = None if writes is None or touched is None else touched | writes
    if keeps and command.effects.changes_shell and not _FAILED_CD.search(output):
        moved = _CD.match(command.script)
        rest = command.script[moved.end() :] if moved is not None else command.script
        there = resolve(moved[1], directory) if moved is not None else directory
        shell = shell or there is None or shell_effects(rest, there).changes_shell
        directory = there or directory
    return Past(directory, changes, touched, shell)


def unchanging(command: Command, output: str) -> bool:
    """Whether it left all files as they were. A script with a syntax error on its only line is not run at all."""
    if command.arguments is None or command.effects.writes == frozenset():
        return True
    return command.effects.writes is None and "\n" not in command.script and output_kind(output) is OutputKind.SYNTAX
