"""The rules source as a world model: cheap, sure of what it says, and silent about the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from obsspec.protocols import Emit
from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.effects import ToolKind, kind_of
from obsspec.world.format import ObservationFormat
from obsspec.world.formats import FormatLearner
from obsspec.world.rules.habits import Habits
from obsspec.world.rules.records import Records
from obsspec.world.rules.replay import MAX_STATES, Answer, Moment, advance, answer, begin
from obsspec.world.rules.state import Node
from obsspec.world.rules.streams import Doubt

Formats = dict[str, "ObservationFormat | None"]
MAX_IMAGES = 4096  # whose start is remembered
KNOWN, SILENT, LIKELY = "rules/known", "rules/silent", "rules/likely"


class Rules:
    """Evaluates shell commands over what the history determines; sources "rules/known", "rules/silent", "rules/likely".

    "known" rests on nothing but the history, "silent" on a command's success, "likely" on that or on other usual
    things. One object serves any number of rollouts, one thread. It never raises, and awaits nothing. A source with a
    program whose record has become poor stays silent: less than `least` (of "known": 0.85) would be right.
    """

    def __init__(self, formats: FormatLearner | None = None, *, least: float = 0.7) -> None:
        self._formats = formats or FormatLearner()
        self._least, self._surely = least, max(least, 0.85)
        self._habits: dict[str, Habits] = {}
        self._records = Records()
        self._roots: dict[object, Moment] = {}
        self._starts: dict[str, Mapping[str, Node]] = {}  # by image
        self.states = 0

    def start_from(self, image: str, nodes: Mapping[str, Node]) -> None:
        """All there is where rollouts of `image` start, by path relative to the shell's first directory."""
        while len(self._starts) >= MAX_IMAGES:
            del self._starts[next(iter(self._starts))]
        self._starts.setdefault(image, nodes)

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """At most one candidate, and only if every call of the turn is determined."""
        del breadth
        prediction = self.answer(context)
        if prediction is not None:
            emit(prediction)

    def answer(self, context: Context) -> Prediction | None:
        """The same without awaiting."""
        found: list[Answer] = []
        formats = self._chosen(context)
        moment = self._moment(context, formats)
        for index, call in enumerate(context.calls):
            one = self._one(moment, call, context, formats)
            if one is None:
                return None
            found.append(one)
            if index + 1 < len(context.calls):
                moment = self._advance(moment, Exchange((call,), (Observation(one.text),)), context, formats)
        return self._prediction(found) if found else None

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Takes in formats and habits of the tools, and how good the answers are."""
        formats = self._chosen(context)
        moment = self._moment(context, formats)
        for call, observation in zip(context.calls, observations, strict=False):
            if kind_of(call) is not ToolKind.SHELL:
                continue
            one = self._one(moment, call, context, formats)
            if one is not None:
                self._records.add(_source(one), one.programs, hit=one.text == observation.text)
            self._learn_habits(moment, call, observation.text, context, formats[call.name])
            self._formats.learn(call, observation.text)
            moment = self._advance(moment, Exchange((call,), (observation,)), context, formats)

    def _prediction(self, answers: Sequence[Answer]) -> Prediction | None:
        sources = [_source(one) for one in answers]
        source = next((name for name in (LIKELY, SILENT) if name in sources), KNOWN)
        confidence = 1.0
        for name, one in zip(sources, answers, strict=True):
            confidence *= self._records.confidence(name, one.programs)
        if confidence < (self._surely if source == KNOWN else self._least):
            return None
        return Prediction(tuple(Observation(one.text) for one in answers), source, confidence)

    def _chosen(self, context: Context) -> Formats:
        """The format of each tool of this turn and its history."""
        first: dict[str, ToolCall] = {}
        for exchange in (*context.history, Exchange(context.calls, ())):
            for call in exchange.calls:
                first.setdefault(call.name, call)
        return {name: self._formats.choose(call, context.history) for name, call in first.items()}

    def _one(self, moment: Moment, call: ToolCall, context: Context, formats: Formats) -> Answer | None:
        format_ = formats[call.name]
        if format_ is None or kind_of(call) is not ToolKind.SHELL:
            return None
        habits = self._of(call)
        key = (call.name, call.command, format_, habits.version)
        if key not in moment.answers:
            moment.answers[key] = answer(moment, call, format_, habits, context.image)
        return moment.answers[key]

    def _of(self, call: ToolCall) -> Habits:
        return self._habits.setdefault(call.name, Habits())

    def _moment(self, context: Context, formats: Formats) -> Moment:
        """The state before this turn, found or made step by step."""
        shell = next((call for call in context.calls if kind_of(call) is ToolKind.SHELL), None)
        habits = self._of(shell) if shell is not None else Habits()
        key = (context.image, shell.name if shell is not None else "", habits.start(context.image))
        if self.states > MAX_STATES:
            self._roots.clear()
            self.states = 0
        moment = self._roots.get(key)
        if moment is None:
            moment = self._roots[key] = begin(habits, context.image, self._starts.get(context.image, {}))
        for exchange in context.history:
            moment = self._advance(moment, exchange, context, formats)
        return moment

    def _advance(self, moment: Moment, exchange: Exchange, context: Context, formats: Formats) -> Moment:
        chosen = [formats[call.name] for call in exchange.calls]
        key = (
            tuple((call.name, call.command) for call in exchange.calls),
            tuple(observation.text for observation in exchange.observations),
            tuple(chosen),
        )
        found = moment.next.get(key)
        if found is None:
            habits = self._of(exchange.calls[0]) if exchange.calls else Habits()
            found = moment.next[key] = advance(moment, exchange, chosen, habits, context.image)
            self.states += 1
        return found

    def _learn_habits(
        self, moment: Moment, call: ToolCall, text: str, context: Context, format_: ObservationFormat | None
    ) -> None:
        habits = self._of(call)
        habits.learn(context.image, text)
        body = format_.read(text) if format_ is not None else None
        if body is None or call.command.strip() != "pwd" or not body.text.startswith("/"):
            return
        directory = body.text.rstrip("\n")
        if moment.moved_to is not None and moment.moved_to.startswith("/"):
            habits.learn_directory(kept=moment.moved_to == directory)
        if moment.state.cwd == moment.initial or not context.history:
            habits.learn_start(context.image, directory)


def _source(one: Answer) -> str:
    if one.doubt == Doubt.NONE:
        return KNOWN
    return SILENT if one.doubt == Doubt.SUCCESS and one.empty else LIKELY
