"""Symbolic execution of a shell script over a `State`: what is determined is worked out, the rest is forgotten."""

from __future__ import annotations

import re
from dataclasses import replace

from obsspec.world.rules.builtins import BUILTINS, OPAQUE
from obsspec.world.rules.files import FILE_PROGRAMS
from obsspec.world.rules.habits import Habits
from obsspec.world.rules.lines import LINE_PROGRAMS
from obsspec.world.rules.printing import PRINTING, test
from obsspec.world.rules.program import Program, Run, UndeterminedError
from obsspec.world.rules.redirect import Routes, routes
from obsspec.world.rules.state import File, Job, State
from obsspec.world.rules.streams import SILENT, Doubt, Hole, Outcome, Piece, failed, unknown
from obsspec.world.rules.text import TEXT_PROGRAMS
from obsspec.world.shell import expand
from obsspec.world.shell.effects import command_effects
from obsspec.world.shell.parse import Unparsed, parse
from obsspec.world.shell.paths import overlap
from obsspec.world.shell.tree import (
    AndOr,
    Background,
    Command,
    Compound,
    Literal,
    Pipeline,
    Redirection,
    Sequence,
    Shape,
    Simple,
    Substitution,
    starts_jobs,
)

PROGRAMS: dict[str, Program] = {**TEXT_PROGRAMS, **LINE_PROGRAMS, **FILE_PROGRAMS, **PRINTING, **BUILTINS}
MAX_COMMANDS = 2000
_SHELLS = ("bash", "sh")
_SHEBANG = re.compile(r"#!\s*/(?:usr/)?bin/(?:env )?(?:ba)?sh\n")


class Evaluation:
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
        self.state = state
        self.used: list[str] = []  # the programs that were evaluated, for the record
        self._habits = habits
        self._image = image
        self._trusting = trusting
        self._trims = trims
        self._failed = failed
        self._one_line = one_line
        self._code: int | None = None
        self._stdin: str | None = ""
        self._outputs: dict[int, str | None] = {}
        self._doubt = Doubt.NONE
        self._left = MAX_COMMANDS
        self._inner = 0
        self._jobs: list[Job] = []  # of the shell whose commands are evaluated

    def run(self, script: Sequence, *, succeeded: bool = False) -> Outcome:
        """What the script prints. `succeeded`: it is known that its exit code is 0."""
        return self._sequence(script, last=self._trims, must=succeeded)

    # what words can see

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

    # commands

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

    # simple commands

    def _run(self, *, last: bool = False) -> Run:
        return Run(self.state, self._habits, self._stdin, last=last, one_line=self._one_line)

    def _routes(self, redirections: tuple[Redirection, ...], run: Run) -> Routes | Outcome | None:
        try:
            return routes(redirections, self, run)
        except UndeterminedError:
            return None

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
        if name in _SHELLS:
            return self._script(command, words, run)
        if "/" in name:
            return self._executable(command, words, run)
        return self._lost(command, words)

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

    def _script(self, command: Simple, words: tuple[str, ...], run: Run) -> Outcome:
        """`bash FILE`, where the content of the file is known, or `bash -c TEXT`."""
        if self._inner >= 3:
            return self._lost(command, words)
        try:
            direct = words[1:2] == ("-c",) and len(words) == 3
            text = words[2] if direct else run.text(words[1]) if len(words) > 1 else None
        except UndeterminedError:
            text = None
        tree = (
            parse(text)
            if text is not None and not (len(words) > 1 and words[1].startswith("-") and words[1] != "-c")
            else None
        )
        if tree is None or isinstance(tree, Unparsed) or not tree.commands:
            return self._lost(command, words)
        return self._child(tree, words, run)

    def _executable(self, command: Simple, words: tuple[str, ...], run: Run) -> Outcome:
        """`./FILE`, where that is known to be a shell script that may be run."""
        try:
            node = run.node(words[0])
        except UndeterminedError:
            node = None
        text = node.text if isinstance(node, File) and node.runs and not node.doubt else None
        tree = parse(text) if text is not None and _SHEBANG.match(text) and self._inner < 3 else None
        if tree is None or isinstance(tree, Unparsed) or not tree.commands:
            return self._lost(command, words)
        return self._child(tree, ("bash", *words), run)

    def _child(self, tree: Sequence, words: tuple[str, ...], run: Run) -> Outcome:
        outer, one_line, stdin, jobs = self.state.copy(), self._one_line, self._stdin, self._jobs
        positional = {str(i): value for i, value in enumerate(words[2:], 1)}
        self.state.variables = {**positional, "#": str(len(positional))}
        self.state.shadowed, self.state.strict = frozenset(), False
        self._one_line, self._stdin, self._inner, self._jobs = False, run.stdin, self._inner + 1, []
        outcome = self._sequence(tree)
        self._one_line, self._stdin, self._inner, self._jobs = one_line, stdin, self._inner - 1, jobs
        outer.adopt_files(self.state)
        self.state.adopt(outer)
        return outcome
