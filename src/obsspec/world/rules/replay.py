"""The state of a machine after a history: as the evaluation of each call says and its observation confirms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from obsspec.values import Exchange, ToolCall
from obsspec.world.effects import ToolKind, kind_of, script_of
from obsspec.world.format import ObservationFormat
from obsspec.world.rules.evaluate import Evaluation
from obsspec.world.rules.habits import Habits
from obsspec.world.rules.program import UndeterminedError
from obsspec.world.rules.reading import shown, take_in
from obsspec.world.rules.state import Node, State
from obsspec.world.rules.streams import Doubt, Outcome
from obsspec.world.shell.parse import Unparsed, parse
from obsspec.world.shell.paths import START
from obsspec.world.shell.tree import Sequence, Simple, starts_jobs

MAX_STATES = 20_000
_JOBS = re.compile(r"(?<![&>|])&[ \t]*$", re.MULTILINE)  # in a script that is not understood


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call will show: the text, what it rests on, and the programs that were evaluated."""

    text: str
    doubt: Doubt
    programs: tuple[str, ...]
    empty: bool


@dataclass(slots=True)
class Moment:
    """The state after some history, and what was worked out from there."""

    state: State
    initial: str = START  # where the shell was at the start
    moved_to: str | None = None  # a directory that the last call went to
    answers: dict[object, Answer | None] = field(default_factory=dict[object, "Answer | None"])
    refuted: frozenset[tuple[str, str]] = frozenset()  # commands and what they were wrongly said to show
    next: dict[object, Moment] = field(default_factory=dict[object, "Moment"])


def begin(habits: Habits, image: str, nodes: Mapping[str, Node]) -> Moment:
    """The moment before the first call. `nodes`: what is known to be there, by path relative to the first directory."""
    state = State()
    known = habits.start(image)
    if known is not None:
        state.cwd = known
        state.place = Doubt.NONE if image in habits.starts else Doubt.PLACE
    for path, node in nodes.items():
        state.tree.nodes[f"{state.cwd}/{path}".rstrip("/")] = node
    return Moment(state, state.cwd)


def answer(moment: Moment, call: ToolCall, format_: ObservationFormat, habits: Habits, image: str) -> Answer | None:
    """What `call` will show; None if that is not determined."""
    script = _script(call)
    if script is None:
        return None
    outcome, evaluation = _evaluated(script, call, moment.state.copy(), format_, habits, image)
    text = _rendered(outcome, format_)
    if text is None or (call.command, text) in moment.refuted:
        return None
    used = (*evaluation.used, '"') if '"' in call.command else tuple(evaluation.used)  # harnesses may lose quotes
    return Answer(text, outcome.doubt, used, not outcome.pieces)


def advance(
    moment: Moment, exchange: Exchange, formats: list[ObservationFormat | None], habits: Habits, image: str
) -> Moment:
    """The moment after `exchange`."""
    state, moved, refuted = moment.state.copy(), None, moment.refuted
    for call, observation, format_ in zip(exchange.calls, exchange.observations, formats, strict=False):
        if kind_of(call) is not ToolKind.SHELL:
            continue  # what other tools do to the files is not known, and rarely anything
        before = state.cwd
        wrong = _step(state, call, observation.text, format_, habits, image)
        if wrong is not None:
            refuted |= {(call.command, wrong)}
        moved = _after_call(state, moment, before, format_, habits)
    return Moment(state, state.roots.get(moment.initial, moment.initial), moved, refuted=refuted)


def _after_call(
    state: State, moment: Moment, before: str, format_: ObservationFormat | None, habits: Habits
) -> str | None:
    """A shell that lives for one call only starts again where it started; if that is not known, it may be anywhere."""
    stateful = format_.stateful if format_ is not None else None
    stateful = habits.stateful() if stateful is None else stateful
    moved = state.cwd if state.cwd != before else None
    if stateful is False:
        state.cwd = state.roots.get(moment.initial, moment.initial)
        state.variables, state.strict, state.shadowed = {}, False, frozenset()
    elif stateful is None:
        if moved is not None:
            state.lose_directory()
        state.variables = {}
    return moved


def _step(
    state: State, call: ToolCall, text: str, format_: ObservationFormat | None, habits: Habits, image: str
) -> str | None:
    """Takes one call into the state. Returns what had been determined instead of the text that came."""
    script, body = _script(call), format_.read(text) if format_ is not None else None
    if script is None or format_ is None or body is None:
        if script is None and "syntax error" in text:
            return None
        state.tree.forget_all()
        state.lose_shell()
        if _JOBS.search(script_of(call) or "") if script is None else any(map(starts_jobs, script.commands)):
            state.tree.start_job(None)
        return None
    trial = state.copy()
    outcome, _ = _evaluated(script, call, trial, format_, habits, image)
    expected = _rendered(outcome, format_)
    if expected == text:
        state.adopt(trial)
        return None
    told = body.exit_code not in (0, None) or (expected is not None and not outcome.pieces and bool(body.text))
    alone = len(script.commands) == 1 and isinstance(script.commands[0], Simple)
    careful = Evaluation(
        state, habits, image, trusting=False, trims=body.trimmed, failed=told and alone, one_line=_one_line(call)
    )
    try:
        outcome = careful.run(script, succeeded=body.exit_code == 0)
    except (UndeterminedError, RecursionError):
        outcome = Outcome(code=None)
        if any(map(starts_jobs, script.commands)):
            state.tree.start_job(None)
    if outcome.known:  # what was sure turned out wrong: so may be what it rests on
        state.tree.forget_all()
    found = shown(outcome, body)
    if found is not None:
        hole, part = found
        names = take_in(state, hole, part, body, final=_ends(outcome))
        if names:
            habits.learn_listing([name for name in names if name not in (".", "..")])
    return expected


def _ends(outcome: Outcome) -> bool:
    """Whether nothing known comes after the unknown part."""
    return not (outcome.pieces and isinstance(outcome.pieces[-1].what, str))


def _evaluated(
    script: Sequence, call: ToolCall, state: State, format_: ObservationFormat, habits: Habits, image: str
) -> tuple[Outcome, Evaluation]:
    trims = format_.render("x\n", "", 0) == format_.render("x", "", 0)
    evaluation = Evaluation(state, habits, image, trims=trims, one_line=_one_line(call))
    try:
        return evaluation.run(script), evaluation
    except (UndeterminedError, RecursionError):
        state.tree.forget_all()
        state.lose_shell()
        return Outcome(code=None), evaluation


def _rendered(outcome: Outcome, format_: ObservationFormat) -> str | None:
    if not outcome.known:
        return None
    if outcome.code is None and format_.render("", "", 0) != format_.render("", "", 1):
        return None
    code = outcome.code if outcome.code is not None else 0
    out, error = outcome.text(error=False) or "", outcome.text(error=True) or ""
    if out and error and format_.merges:
        return None  # which comes first depends on how programs buffer
    return format_.render(out, error, code)


def _script(call: ToolCall) -> Sequence | None:
    text = script_of(call) if kind_of(call) is ToolKind.SHELL else None
    tree = parse(text) if text is not None else None
    return None if tree is None or isinstance(tree, Unparsed) else tree


def _one_line(call: ToolCall) -> bool:
    return "\n" not in (script_of(call) or "").strip()
