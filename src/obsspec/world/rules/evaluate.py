"""Symbolic execution of a shell script over a `State`: what is determined is worked out, the rest is forgotten."""

from __future__ import annotations

from dataclasses import replace

from obsspec.world.rules import scripts
from obsspec.world.rules.builtins import BUILTINS, OPAQUE
from obsspec.world.rules.checksums import CHECKSUM_PROGRAMS
from obsspec.world.rules.columns import COLUMN_PROGRAMS
from obsspec.world.rules.files import FILE_PROGRAMS, linked
from obsspec.world.rules.flow import Flow
from obsspec.world.rules.habits import Habits
from obsspec.world.rules.lines import LINE_PROGRAMS
from obsspec.world.rules.printing import PRINTING, test
from obsspec.world.rules.program import Program, Run, UndeterminedError
from obsspec.world.rules.redirect import Routes
from obsspec.world.rules.state import State
from obsspec.world.rules.streams import SILENT, Doubt, Outcome, failed, unknown
from obsspec.world.rules.text import TEXT_PROGRAMS
from obsspec.world.shell import expand
from obsspec.world.shell.tree import Literal, Sequence, Simple

PROGRAMS: dict[str, Program] = {
    **TEXT_PROGRAMS,
    **COLUMN_PROGRAMS,
    **CHECKSUM_PROGRAMS,
    **LINE_PROGRAMS,
    **FILE_PROGRAMS,
    **PRINTING,
    **BUILTINS,
}
MAX_INNER = 3  # scripts in scripts
_SHELLS = ("bash", "sh")


class Evaluation(Flow):
    """One script on one state, which it changes.

    `trusting`: commands that are not sure to succeed are taken to succeed, which the doubt of the outcome says; without
    it their effects are forgotten. `failed`: the script is one command, and did not succeed. `trims`: the observation
    format drops what is blank at the end of all output. `one_line`: the script has a single line.
    """

    def __init__(
        self,
        state: State,
        habits: Habits,
        image: str = "",
        *,
        trusting: bool = True,
        trims: bool = False,
        failed: bool = False,
        one_line: bool = False,
    ) -> None:
        super().__init__(state, habits, one_line=one_line)
        self.used: list[str] = []  # the programs that were evaluated, for the record
        self._image = image
        self._trusting = trusting
        self._trims = trims
        self._failed = failed
        self._inner = 0

    def run(self, script: Sequence, *, succeeded: bool = False) -> Outcome:
        """What the script prints. `succeeded`: it is known that its exit code is 0."""
        return self._sequence(script, last=self._trims, must=succeeded)

    def _simple(self, command: Simple, *, last: bool, must: bool) -> Outcome:
        self._doubt = Doubt.NONE
        self._outputs.clear()
        words = self._words(command)
        if words is None:
            return self._lost(command)
        if not words:
            return self._assign(command)
        if words[0] in self.state.shadowed or command.assignments:
            return self._lost(command, words)
        if words == ("wait",) and self._jobs and not command.redirections:
            return self._wait()
        before = None if self._trusting or must else self.state.copy()
        run = self._run(last=last and not command.redirections)
        made = self._routes(command.redirections, run)
        if not isinstance(made, Routes):
            return made or self._lost(command, words)
        run.stdin = made.stdin
        outcome = self._program(command, words, run)
        if words[0] == "ln":
            self.state.tree.start_job(linked(words[1:], self.state.cwd))  # whoever writes to one of them writes to both
        if run.unseen and outcome.doubt & Doubt.SUCCESS:
            self.used.append("?")  # success where nothing of the paths is known has a record of its own
        outcome = made.send(replace(outcome, doubt=outcome.doubt | run.doubt | self._doubt), run)
        if before is not None and outcome.doubt & Doubt.SUCCESS:
            self.state.merge(before)
            if self._failed:
                self.state.cwd, self.state.variables = before.cwd, before.variables
            return unknown(words, before.cwd)
        return outcome

    def _wait(self) -> Outcome:
        """For the jobs of this shell."""
        for job in self._jobs:
            self.state.tree.end_job(job)
        self._jobs = []
        return SILENT

    def _words(self, command: Simple) -> tuple[str, ...] | None:
        if not command.words or command.words[0].parts != (Literal("[["),):
            return expand.all_fields(command.words, self)
        texts = [expand.text(word, self) for word in command.words]  # nothing is split between these brackets
        return None if None in texts else tuple(map(str, texts))

    def _assign(self, command: Simple) -> Outcome:
        for assignment in command.assignments:
            value = expand.text(assignment.value, self) if assignment.value is not None else None
            if assignment.append:
                old = self.state.variables.get(assignment.name)
                value = None if value is None or old is None else old + value
            self.state.variables[assignment.name] = value
        if self._outputs:  # the exit code is that of the last substitution
            if None in self._outputs.values():
                return unknown((), self.state.cwd)
            return Outcome(code=None, doubt=self._doubt)
        if command.redirections:
            run = self._run()
            made = self._routes(command.redirections, run)
            return made.send(SILENT, run) if isinstance(made, Routes) else made or self._lost(command)
        return SILENT

    def _program(self, command: Simple, words: tuple[str, ...], run: Run) -> Outcome:
        name, arguments = words[0], list(words[1:])
        self.used.append(name)
        if (self._image, name) in self._habits.missing and name not in BUILTINS:
            return self._missing(name, run)
        if name == "[[":
            return self._brackets(command, arguments, run)
        backup = self.state.copy()
        for table in (PROGRAMS, OPAQUE):
            program = table.get(name)
            outcome = self._tried(program, arguments, run, backup)
            if outcome is not None:
                if table is OPAQUE and outcome.code == 0:
                    self._lost(replace(command, redirections=()), words)
                return outcome
        tree = self._script(words, run)
        return self._lost(command, words) if tree is None else self._child(tree, words, run)

    def _script(self, words: tuple[str, ...], run: Run) -> Sequence | None:
        if self._inner >= MAX_INNER:
            return None
        if words[0] in _SHELLS:
            return scripts.given(words, run)
        return scripts.executable(words[0], run) if "/" in words[0] else None

    def _brackets(self, command: Simple, arguments: list[str], run: Run) -> Outcome:
        """`[[ ... ]]` of one test, whose words are not patterns."""
        plain = not any(set(word) & set("*?[]\\") for word in arguments[:-1])
        try:
            value = test(arguments[:-1], run) if plain and not set(arguments) & {"&&", "||", "=~", "(", ")"} else None
        except UndeterminedError:
            value = None
        return self._lost(command) if value is None else Outcome(code=int(not value))

    def _tried(self, program: Program | None, arguments: list[str], run: Run, backup: State) -> Outcome | None:
        if program is None:
            return None
        doubt = run.doubt
        try:
            outcome = program(arguments, run)
        except UndeterminedError:
            outcome = None
        if outcome is None:
            self.state.adopt(backup.copy())
            run.doubt = doubt
        return outcome

    def _missing(self, name: str, run: Run) -> Outcome:
        try:
            return run.complain(f"{name}: command not found", 127)
        except UndeterminedError:
            return failed("", 127) if not self._habits.shell else unknown((name,), self.state.cwd)

    def _child(self, tree: Sequence, words: tuple[str, ...], run: Run) -> Outcome:
        """Another shell, which gets the last `words`."""
        outer, one_line, stdin, jobs = self.state.copy(), self._one_line, self._stdin, self._jobs
        arguments = words[1:] if words[0] not in _SHELLS else words[2:] if words[1] != "-c" else ()
        positional = {str(i): value for i, value in enumerate(arguments, 1)}
        self.state.variables = {**positional, "#": str(len(positional))}
        self.state.shadowed, self.state.strict = frozenset(), False
        self._one_line, self._stdin, self._inner, self._jobs = False, run.stdin, self._inner + 1, []
        outcome = self._sequence(tree)
        self._one_line, self._stdin, self._inner, self._jobs = one_line, stdin, self._inner - 1, jobs
        outer.adopt_files(self.state)
        self.state.adopt(outer)
        return outcome
