"""The order in which the commands of a script run, over what is determined; nothing here knows any program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from obsspec.world.rules.habits import Habits
from obsspec.world.rules.program import Run, UndeterminedError
from obsspec.world.rules.redirect import Routes, routes
from obsspec.world.rules.state import Job, State
from obsspec.world.rules.streams import SILENT, Doubt, Hole, Outcome, Piece, unknown
from obsspec.world.shell import expand
from obsspec.world.shell.effects import command_effects
from obsspec.world.shell.paths import overlap
from obsspec.world.shell.tree import (
    AndOr,
    Background,
    Command,
    Compound,
    Pipeline,
    Redirection,
    Sequence,
    Shape,
    Simple,
    Substitution,
    starts_jobs,
)

MAX_COMMANDS = 2000


class Flow(ABC):
    """Runs a script on `state`, which it changes. What is not determined may do all that its effects allow.

    `one_line`: the script has a single line. Raises `UndeterminedError` after too many commands.
    """

    def __init__(self, state: State, habits: Habits, *, one_line: bool) -> None:
        self.state = state
        self._habits = habits
        self._one_line = one_line
        self._code: int | None = None
        self._stdin: str | None = ""
        self._outputs: dict[int, str | None] = {}  # of the substitutions of one command
        self._doubt = Doubt.NONE
        self._jobs: list[Job] = []  # of the shell whose commands are evaluated
        self._left = MAX_COMMANDS

    @abstractmethod
    def _simple(self, command: Simple, *, last: bool, must: bool) -> Outcome:
        """One simple command. `last`: what it prints is the end of all output. `must`: its exit code is 0."""

    def variable(self, name: str) -> str | None:
        if name == "?":
            return None if self._code is None else str(self._code)
        if name == "PWD":
            return self.state.cwd if self.state.cwd.startswith("/") and not self.state.place else None
        return self.state.variables.get(name)

    def output(self, part: Substitution) -> str | None:
        """What `$( )` prints, run once."""
        if id(part) not in self._outputs:
            outputs, doubt = dict(self._outputs), self._doubt  # the commands inside begin their own
            outcome = self._subshell(part.script)
            self._outputs, self._doubt = outputs, doubt | outcome.doubt
            text, errors = outcome.text(error=False), outcome.text(error=True)
            self._outputs[id(part)] = None if errors != "" or text is None else text.rstrip("\n")
        return self._outputs[id(part)]

    def _sequence(self, script: Sequence, *, last: bool = False, must: bool = False) -> Outcome:
        done = SILENT
        for index, command in enumerate(script.commands):
            final = index == len(script.commands) - 1
            outcome = self._command(command, last=last and final, must=must and final)
            done = done.then(outcome)
            if self.state.strict and not final and outcome.code != 0:
                return done.then(self._lost(Compound(Shape.GROUP, (Sequence(script.commands[index + 1 :]),))))
        return done

    def _command(self, command: Command, *, last: bool = False, must: bool = False) -> Outcome:
        self._left -= 1
        if self._left < 0:
            raise UndeterminedError
        match command:
            case Simple():
                outcome = self._simple(command, last=last, must=must)
            case AndOr():
                outcome = self._and_or(command, last=last, must=must)
            case Pipeline():
                outcome = self._pipeline(command, last=last, must=must)
            case Compound():
                outcome = self._compound(command, last=last, must=must)
            case Background():
                outcome = self._background(command)
        if must and outcome.code is None:
            outcome = replace(outcome, code=0)
        self._code = outcome.code
        return outcome

    def _background(self, command: Background) -> Outcome:
        """It does not touch this shell; when it writes and prints is not known."""
        writes = command_effects(command.command, self.state.cwd, self.state.variables).writes
        self._jobs.append(writes)
        self.state.tree.start_job(writes)
        return unknown((), self.state.cwd)

    def _and_or(self, command: AndOr, *, last: bool, must: bool) -> Outcome:
        wanted = command.operator == "&&"
        left = self._command(command.left, must=must and wanted)
        if left.code is not None:
            return left.then(self._command(command.right, last=last, must=must)) if (left.code == 0) == wanted else left
        before = self.state.copy()
        right = self._command(command.right)
        self.state.merge(before)
        maybe = right if not right.pieces else Outcome((Piece(Hole()), Piece(Hole(), error=True)))
        return left.then(replace(maybe, code=None))

    def _pipeline(self, command: Pipeline, *, last: bool, must: bool) -> Outcome:
        if len(command.stages) == 1:
            outcome = self._command(command.stages[0])
            return replace(outcome, code=None if outcome.code is None else int(not outcome.code))
        if self._race(command):
            return self._lost(command)
        outer, stdin, jobs = self.state.copy(), self._stdin, self._jobs
        complaining = 0
        done, code_sure = SILENT, True
        for index, stage in enumerate(command.stages):
            final = index == len(command.stages) - 1
            self.state.cwd, self.state.variables, self._jobs = outer.cwd, dict(outer.variables), []
            outcome = self._command(stage, last=last and final, must=must and final)
            merged = not final and command.merged[index]
            complaining += any(piece.error for piece in outcome.pieces) and not merged
            passed = [piece for piece in outcome.pieces if final or (piece.error and not merged)]
            if not final:
                parts = [piece.what for piece in outcome.pieces if merged or not piece.error]
                self._stdin = None if any(isinstance(part, Hole) for part in parts) else "".join(map(str, parts))
                code_sure = code_sure and outcome.code == 0
            done = Outcome(done.pieces + tuple(passed), outcome.code, done.doubt | outcome.doubt)
        if complaining > 1:  # whose message comes first is chance
            silent = tuple(piece for piece in done.pieces if not piece.error)
            done = replace(done, pieces=(*silent, Piece(Hole(), error=True)))
        self._stdin, self._jobs = stdin, jobs
        self.state.cwd, self.state.variables, self.state.shadowed = outer.cwd, outer.variables, outer.shadowed
        code = None if done.code is None or (self.state.strict and not code_sure) else done.code
        return replace(done, code=code if not command.negated or code is None else int(not code))

    def _race(self, command: Pipeline) -> bool:
        """Whether one stage writes what another reads or writes, at the same time."""
        found = [command_effects(stage, self.state.cwd, self.state.variables) for stage in command.stages]
        return any(
            one is not two
            and one.writes != frozenset()
            and (overlap(one.writes, two.reads) or overlap(one.writes, two.writes))
            for one in found
            for two in found
        )

    def _compound(self, command: Compound, *, last: bool, must: bool) -> Outcome:
        if command.redirections:
            run = self._run()
            made = self._routes(command.redirections, run)
            if not isinstance(made, Routes):
                return made or self._lost(command)
            stdin, self._stdin = self._stdin, made.stdin if made.given else self._stdin
            inside = self._compound(replace(command, redirections=()), last=False, must=must)
            self._stdin = stdin
            return made.send(inside, run)
        match command.shape:
            case Shape.GROUP:
                return self._sequence(command.bodies[0], last=last, must=must)
            case Shape.SUBSHELL:
                return self._subshell(command.bodies[0], last=last, must=must)
            case Shape.IF:
                return self._if(command, last=last)
            case Shape.FOR:
                return self._for(command)
            case Shape.FUNCTION:
                self.state.shadowed |= {command.name}
                if starts_jobs(command):
                    self.state.tree.start_job(None)  # whenever it is called
                return SILENT
            case _:
                return self._lost(command)

    def _subshell(self, script: Sequence, *, last: bool = False, must: bool = False) -> Outcome:
        outer, jobs, self._jobs = self.state.copy(), self._jobs, []
        outcome = self._sequence(script, last=last, must=must)
        self._jobs = jobs
        outer.adopt_files(self.state)
        self.state.adopt(outer)
        return outcome

    def _if(self, command: Compound, *, last: bool) -> Outcome:
        done = SILENT
        bodies = list(command.bodies)
        while len(bodies) > 1:
            condition = self._sequence(bodies[0])
            if condition.code is None:
                return done.then(condition).then(self._lost(Compound(Shape.IF, tuple(bodies[1:]))))
            done = done.then(condition)
            if condition.code == 0:
                return done.then(self._sequence(bodies[1], last=last))
            bodies = bodies[2:]
        return done.then(self._sequence(bodies[0], last=last) if bodies else SILENT)

    def _for(self, command: Compound) -> Outcome:
        values = expand.all_fields(command.words, self) if command.words is not None else None
        if values is None:
            return self._lost(command)
        done = SILENT
        for value in values:
            self.state.variables[command.name] = value
            self._outputs.clear()
            done = done.then(self._sequence(command.bodies[0]))
        return done

    def _lost(self, command: Command, words: tuple[str, ...] = ()) -> Outcome:
        """The command may do anything that its effects allow."""
        found = command_effects(command, self.state.cwd, self.state.variables)
        cwd = self.state.cwd
        if found.writes is None:
            self.state.tree.forget_all()
        for path in found.writes or ():
            self.state.tree.forget(path)
        if found.changes_shell:
            self.state.lose_shell()
        if starts_jobs(command):
            self.state.tree.start_job(None)
        return unknown(words, cwd)

    def _run(self, *, last: bool = False) -> Run:
        return Run(self.state, self._habits, self._stdin, last=last, one_line=self._one_line)

    def _routes(self, redirections: tuple[Redirection, ...], run: Run) -> Routes | Outcome | None:
        try:
            return routes(redirections, self, run)
        except UndeterminedError:
            return None
