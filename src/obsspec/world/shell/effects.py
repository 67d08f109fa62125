"""What running a script may read and change, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from obsspec.world.shell import expand
from obsspec.world.shell.names import names
from obsspec.world.shell.parse import Unparsed, parse
from obsspec.world.shell.paths import resolve
from obsspec.world.shell.programs import touched
from obsspec.world.shell.python_code import python_touch
from obsspec.world.shell.touches import ANYTHING, Touch
from obsspec.world.shell.tree import (
    AndOr,
    Background,
    Command,
    Compound,
    Literal,
    Opaque,
    Pipeline,
    Sequence,
    Shape,
    Simple,
    Substitution,
    Variable,
    Word,
)

_VOLATILE_NAMES = names("RANDOM SRANDOM SECONDS EPOCHSECONDS EPOCHREALTIME BASHPID PPID $ ! LINENO")
_VOLATILE_PATHS = ("/proc/", "/sys/", "/dev/urandom", "/dev/random")
_HARMLESS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty")
_SHELLS = ("bash", "sh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash")
_PYTHONS = ("python", "python3")


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call may do. Paths are absolute and normalised, or `?/...` under the unnamed directory of the start.

    `reads`, `writes`: None is anything; a directory stands for all in it. `volatile`: time, chance or the machine
    show in the output. `changes_shell`: directory, variables or options may differ afterwards; `reads_shell`: the
    outcome depends on them (relative paths aside).
    """

    reads: frozenset[str] | None
    writes: frozenset[str] | None
    volatile: bool = False
    changes_shell: bool = False
    reads_shell: bool = False

    @property
    def read_only(self) -> bool:
        return self.writes == frozenset() and not self.changes_shell


UNKNOWN = Effects(None, None, changes_shell=True, reads_shell=True)


@lru_cache(maxsize=4096)
def shell_effects(script: str, cwd: str | None) -> Effects:
    """The effects of a shell script that starts in `cwd`. Never raises."""
    tree = parse(script)
    if isinstance(tree, Unparsed):
        return UNKNOWN
    walk = _Walk(cwd)
    try:
        walk.sequence(tree)
    except RecursionError:
        return UNKNOWN
    return walk.effects()


def command_effects(command: Command, cwd: str | None, variables: Mapping[str, str | None]) -> Effects:
    """The effects of one command of a script, where the shell has these variables."""
    walk = _Walk(cwd, variables=dict(variables))
    walk.command(command)
    return walk.effects()


@dataclass(slots=True)
class _Walk:
    """Collects over a tree. Branches that may not be taken count as taken."""

    cwd: str | None
    reads: set[str] | None = field(default_factory=set[str])
    writes: set[str] | None = field(default_factory=set[str])
    volatile: bool = False
    changes_shell: bool = False
    reads_shell: bool = False
    variables: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    inner: int = 0  # in how many subshells this is

    def effects(self) -> Effects:
        reads = None if self.reads is None else frozenset(self.reads)
        writes = None if self.writes is None else frozenset(self.writes)
        return Effects(reads, writes, self.volatile, self.changes_shell, self.reads_shell)

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def output(self, part: Substitution) -> str | None:
        del part
        return None

    def sequence(self, script: Sequence) -> None:
        for command in script.commands:
            self.command(command)

    def command(self, command: Command) -> None:
        match command:
            case Simple():
                self._simple(command)
            case Compound():
                self._compound(command)
            case Pipeline():
                for stage in command.stages:
                    self._inner(stage) if len(command.stages) > 1 else self.command(stage)
            case AndOr():
                self.command(command.left)
                self.command(command.right)
            case Background():
                self._inner(command.command)
                self.volatile, self.writes, self.changes_shell = True, None, True

    def _inner(self, command: Command) -> None:
        cwd, variables = self.cwd, dict(self.variables)
        self.inner += 1
        self.command(command)
        self.inner -= 1
        self.cwd, self.variables = cwd, variables

    def _compound(self, command: Compound) -> None:
        for redirection in command.redirections:
            self._redirect(redirection.operator, redirection.target, redirection.document)
        for word in command.words or ():
            self._word(word)
        if command.shape in (Shape.FUNCTION, Shape.ARITHMETIC):
            self.changes_shell = self.reads_shell = True
            if command.shape is Shape.FUNCTION:
                self._touch(ANYTHING)  # it may be called under any name
        if command.shape is Shape.FOR:
            self._for(command)
            return
        again = 2 if command.shape in (Shape.WHILE, Shape.UNTIL, Shape.ARITHMETIC) else 1
        for _ in range(again):  # a second round sees what the first left behind
            for body in command.bodies:
                inside = Compound(Shape.GROUP, (body,))
                self._inner(inside) if command.shape is Shape.SUBSHELL else self.sequence(body)
            if again == 2:
                self.variables = dict.fromkeys(self.variables)

    def _for(self, command: Compound) -> None:
        values = expand.all_fields(command.words or (), self)
        self.changes_shell = self.changes_shell or not self.inner
        for value in values[:50] if values is not None and len(values) <= 50 else [None]:
            self.variables[command.name] = value
            self.sequence(command.bodies[0])

    def _simple(self, command: Simple) -> None:
        for redirection in command.redirections:
            self._redirect(redirection.operator, redirection.target, redirection.document)
        for assignment in command.assignments:
            if assignment.value is not None:
                self._word(assignment.value)
            if not command.words:
                value = expand.text(assignment.value, self) if assignment.value is not None else None
                self.variables[assignment.name] = None if assignment.append else value
                self.changes_shell = self.changes_shell or not self.inner
        for word in command.words:
            self._word(word)
        if command.words:
            self._program([self._argument(word) for word in command.words])

    def _argument(self, word: Word) -> list[str] | None:
        """Fields of one word; a pattern becomes the directory it looks in."""
        found = expand.fields(word, self)
        if found is not None:
            return list(found)
        if all(isinstance(part, Literal) for part in word.parts):
            text = expand.text(word, self)
            if text is not None and not text.startswith("~"):
                fixed = (
                    text[: min(text.find(c) for c in "*?[{@!+" if c in text)] if set(text) & set("*?[{@!+") else text
                )
                return [fixed.rpartition("/")[0] or ("/" if fixed.startswith("/") else ".")]
        return None

    def _program(self, arguments: list[list[str] | None]) -> None:
        name = arguments[0][0] if arguments[0] else None
        known = [field for one in arguments for field in one or ()]
        if name is None or not known:
            self._touch(ANYTHING)
            self.changes_shell = self.changes_shell or not self.inner
            return
        if name in _SHELLS and len(known) == 3 and known[1] == "-c" and None not in arguments:
            self._script(known[2])
            return
        if name in _PYTHONS and len(known) >= 3 and known[1] == "-c" and None not in arguments:
            self._touch(python_touch(known[2]))
            return
        touch = touched(known)
        if None in arguments:  # an argument is not known: so is what is read and, of what writes, what is written
            with_it = touched([*known, "operand"])
            touch = replace(with_it, reads=None, writes=None if with_it.writes != () or _option_writes(name) else ())
        if name in ("cd", "pushd", "popd"):
            self.cwd = resolve(known[1], self.cwd) if name == "cd" and len(known) == 2 and known[1] != "-" else None
        elif name in (".", "source", "eval", "exec"):
            touch = Touch(None, None, changes_shell=True, reads_shell=True)
        elif name in ("export", "declare", "local", "readonly", "typeset", "read", "unset"):
            self._declare(known[1:])
        self._touch(touch)

    def _declare(self, arguments: list[str]) -> None:
        for argument in arguments:
            variable, sign, value = argument.partition("=")
            self.variables[variable] = value if sign else None

    def _script(self, script: str) -> None:
        inner = shell_effects(script, self.cwd)
        self.reads = None if self.reads is None or inner.reads is None else self.reads | inner.reads
        self.writes = None if self.writes is None or inner.writes is None else self.writes | inner.writes
        self.volatile = self.volatile or inner.volatile
        self.reads_shell = self.reads_shell or inner.reads_shell

    def _touch(self, touch: Touch) -> None:
        self.volatile = self.volatile or touch.volatile
        self.changes_shell = self.changes_shell or (touch.changes_shell and not self.inner)
        self.reads_shell = self.reads_shell or touch.reads_shell
        for path in touch.reads or ():
            self._read(path)
        for path in touch.writes or ():
            self._write(path)
        if touch.reads is None:
            self.reads = None
        if touch.writes is None:
            self.writes = None

    def _read(self, path: str) -> None:
        if path.startswith(_VOLATILE_PATHS):
            self.volatile = True
        key = resolve(path, self.cwd)
        if key is None:
            self.reads = None
        elif self.reads is not None and path not in _HARMLESS:
            self.reads.add(key)

    def _write(self, path: str) -> None:
        key = resolve(path, self.cwd)
        if key is None:
            self.writes = None
        elif self.writes is not None and path not in _HARMLESS:
            self.writes.add(key)

    def _redirect(self, operator: str, target: Word, document: Word | None) -> None:
        if document is not None:
            self._word(document)
            return
        self._word(target)
        path = expand.text(target, self)
        if operator in (">&", "<&") and (path is None or path.rstrip("-").isdigit() or path == "-"):
            return
        if path is None:
            self._touch(Touch(None) if operator == "<" else Touch((), None))
        elif operator == "<":
            self._read(path)
        else:
            self._write(path)

    def _word(self, word: Word) -> None:
        for part in word.parts:
            if isinstance(part, Variable):
                self._name(part.name)
            elif isinstance(part, Substitution):
                self._inner(Compound(Shape.GROUP, (part.script,)))
            elif isinstance(part, Opaque):
                for name in part.names:
                    self._name(name)
                for script in part.scripts:
                    self._inner(Compound(Shape.GROUP, (script,)))
                if part.names in (("`",), ("<",)):
                    self._touch(ANYTHING if part.names == ("`",) else Touch(None))
                elif "=" in part.text or "++" in part.text or "--" in part.text:
                    self.changes_shell = True

    def _name(self, name: str) -> None:
        if name in _VOLATILE_NAMES:
            self.volatile = True
        elif name not in self.variables:
            self.reads_shell = True


def _option_writes(name: str) -> bool:
    """Programs that only write where an option says so: an unknown argument may be that option."""
    return name in ("sed", "sort", "find", "awk", "uniq", "gzip", "tar", "xargs", "tee", "git", "grep_")
