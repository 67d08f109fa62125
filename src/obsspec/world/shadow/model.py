"""The world model: runs the command where the files are as far as transcripts tell, and says what it printed there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import anyio

from obsspec.protocols import Emit
from obsspec.sandbox.fork import ForkError
from obsspec.speculation.classes import command_class
from obsspec.values import Context, Observation, Prediction, SandboxError, ToolCall
from obsspec.world.formats import FormatLearner
from obsspec.world.shadow.coverage import Coverage, coverage
from obsspec.world.shadow.doubts import Doubts
from obsspec.world.shadow.facts import Exists, Fact, NoProgram, Ordered, StartsIn
from obsspec.world.shadow.harness import Harness
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.images import Images
from obsspec.world.shadow.keeping import Keeping
from obsspec.world.shadow.kinds import OutputKind, output_kind, shows_filler, shows_nothing
from obsspec.world.shadow.layout import VARIANTS
from obsspec.world.shadow.past import Command, Past, read_command, read_past, shell_text
from obsspec.world.shadow.reading import read_facts
from obsspec.world.shadow.rewrites import Rewrites
from obsspec.world.shadow.rooms import Place, Printed, Rooms
from obsspec.world.shadow.trust import Changes, Signs, Trust
from obsspec.world.shadow.turns import Tried, Turns, run_of
from obsspec.world.shell.names import names

SOURCE = "shadow"
LEAST = 0.5
_MACHINE = names("uname hostname df free uptime lscpu nproc mount lsblk dmesg ps top")  # they tell of the machine
_HIDDEN = frozenset({Coverage.CLOSED, Coverage.PARTIAL})  # nothing was found, but made-up content was searched
_PATHS = 2  # names of files that tell one place from another

_models = itertools.count()


@dataclass(slots=True)
class ShadowKnowledge:
    """All that shadows have learnt; it belongs to one model."""

    harness: Harness = field(default_factory=Harness)
    images: Images = field(default_factory=Images)
    rewrites: Rewrites = field(default_factory=Rewrites)
    trust: Trust = field(default_factory=Trust)
    formats: FormatLearner = field(default_factory=FormatLearner)
    keeping: Keeping = field(default_factory=Keeping)


class ShadowWorldModel:
    """Shared by all rollouts; the state of one is a function of its image and history. Say nothing of turns with
    several calls.

    `least`: what is less sure is not said. Trouble in the sandbox makes it silent and is counted in `statistics`.
    Cancelling `predict` kills what it runs. Not for several threads.
    """

    def __init__(self, rooms: Rooms, *, least: float = LEAST) -> None:
        self._rooms = rooms
        self._least = least
        self._known = ShadowKnowledge()
        self._turns = Turns()
        self._doubts = Doubts(rooms, self._known.harness, self._known.rewrites)
        self._counts: Counter[str] = Counter()
        self._name = f"model {next(_models)}"

    def statistics(self) -> Mapping[str, int]:
        """How often it ran, said something, was right when it did, and could not run and why."""
        return dict(self._counts)

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """At most one candidate, from `shadow/` and the kind of output."""
        del breadth
        text = shell_text(context.calls[0]) if len(context.calls) == 1 else None
        if text is None or "\0" in text:
            return
        try:
            tried = await self._try(context, text)
        except SandboxError as error:
            self._trouble(error)
            return
        if tried is None:
            return
        self._turns.keep(context, tried)
        confidence = self._known.trust.mean(tried.signs)
        if confidence >= self._least and not shows_filler(tried.text):
            shown = self._render(context, tried)
            if shown is not None:
                self._counts["said"] += 1
                emit(Prediction((Observation(shown),), f"{SOURCE}/{tried.signs.kind}", confidence))
        try:
            await self._doubts.settle()
            await self._rooms.prepare()
        except SandboxError as error:
            self._trouble(error)

    async def _try(self, context: Context, text: str) -> Tried | None:
        known = self._known
        knowledge = known.images.know(context.image or context.task_id, text)
        image = knowledge.image
        past, kept = self._past(context, image, text)
        if past is None:
            return None
        command = read_command(text, known.harness, past.directory)
        if command.arguments is None or not command.script.strip():
            return None
        if command.effects.volatile or _MACHINE & set(command.script.split()):
            self._counts["volatile"] += 1
            return None
        place = Place(f"{self._name} {knowledge.name}", 0, tuple(run_of(each, image) for each in past.changes))
        printed, other = await self._print_both(image, place, command)
        self._counts["ran"] += 1
        if not printed.usable:
            self._counts["unusable"] += 1
            return None
        raw = printed.text
        shown = known.rewrites.apply(raw, command.script, command.shell)
        kind = output_kind(shown)
        covered = coverage(image, command.script, command.effects, command.directory)
        steady = other.text == raw and not (covered in _HIDDEN and shows_nothing(raw) and command.effects.read_only)
        family = command_class((ToolCall("bash", {"command": command.script}),))
        named = " ".join(sorted(command.effects.reads or ())[:_PATHS])
        signs = Signs(kind, steady, covered, knowledge.link, self._changes(context, past), family, named)
        return Tried(command, raw, shown, printed.exit_code, signs, place, knowledge, kept)

    def _past(self, context: Context, image: Image, text: str) -> tuple[Past | None, bool | None]:
        """Also whether that rests on a shell that lives on, or on one that does not; None if it makes no difference."""
        known = self._known
        living = read_past(context, known.harness, image.starts_in, keeps=True)
        if living is None or (living.directory == image.starts_in and not living.shell):
            return living, None
        format_ = known.formats.choose(context.calls[0], context.history)
        stateful = None if format_ is None else format_.stateful
        keeps = known.keeping.likely if stateful is None else stateful
        past = living if keeps else read_past(context, known.harness, image.starts_in, keeps=False)
        if image.starts_in == "/" or text.strip() == "pwd":
            return past, keeps if text.strip() == "pwd" else None
        places = (image.starts_in, living.directory)
        reads = {read_command(text, known.harness, place).effects.reads for place in places}
        return past, keeps if len(reads) > 1 else None

    def _changes(self, context: Context, past: Past) -> Changes:
        if past.changes and self._turns.is_refuted(context, past):
            return Changes.REFUTED
        if past.shell:
            return Changes.SHELL
        return Changes.REPLAYED if past.changes else Changes.NONE

    async def _print_both(self, image: Image, place: Place, command: Command) -> tuple[Printed, Printed]:
        """In both variants at once."""
        run = run_of(command, image)
        if command.effects.writes is None and "\n" not in command.script:
            # a line that the shell cannot even parse changes nothing: that is cheaper to find out than to make a copy
            checked = replace(run, arguments=(run.arguments[0], "-n", *run.arguments[1:]))
            printed = await self._rooms.run(image, place, checked, changes=False)
            if printed.exit_code and output_kind(printed.text) is OutputKind.SYNTAX:
                return printed, printed
        changes = command.effects.writes != frozenset()
        found: dict[int, Printed] = {}
        failed: list[SandboxError] = []

        async def one(variant: int) -> None:
            try:
                at = replace(place, variant=variant)
                found[variant] = await self._rooms.run(image, at, run, changes=changes)
            except SandboxError as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            for variant in range(VARIANTS):
                tasks.start_soon(one, variant)
        if failed:
            raise failed[0]
        return found[0], found[1]

    def _render(self, context: Context, tried: Tried) -> str | None:
        format_ = self._known.formats.choose(context.calls[0], context.history)
        return None if format_ is None else format_.render(tried.text, "", tried.code)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Compares, and takes in what the output says of the image."""
        text = shell_text(context.calls[0]) if len(context.calls) == 1 else None
        if text is None or not observations:
            return
        known = self._known
        known.formats.learn(context.calls[0], observations[0].text)
        format_ = known.formats.choose(context.calls[0], context.history)
        body = None if format_ is None else format_.read(observations[0].text)
        if body is None or body.cut:
            return
        truth = body.text
        tried = self._turns.take(context)
        if tried is not None:
            shown = self._render(context, tried)
            right = shown == observations[0].text
            self._counts["right"] += right
            known.trust.record(tried.signs, right)
            if tried.kept is not None and truth.strip():
                known.keeping.record(tried.kept, right=right, sure=tried.command.script.strip() == "pwd")
            if not right:
                self._turns.refute(context)
            if tried.signs.steady and tried.signs.kind is not OutputKind.SYNTAX:
                known.images.vouch(context.image or context.task_id, tried.knowledge, truth, right)
            known.rewrites.learn(tried.raw, tried.command.script, tried.command.shell, truth)
            self._doubts.add(tried, truth, right=right)
        self._learn_facts(context, text, truth + "\n" if body.trimmed and truth else truth)

    def _learn_facts(self, context: Context, text: str, truth: str) -> None:
        known = self._known
        image_id = context.image or context.task_id
        image = known.images.know(image_id, text).image
        past, _ = self._past(context, image, text)
        command = read_command(text, known.harness, past.directory if past is not None else "/")
        if past is None or command.arguments is None:
            return
        facts = read_facts(command.script, truth, past.directory)
        if past.directory != image.starts_in:
            facts = [fact for fact in facts if not isinstance(fact, StartsIn)]
        if past.changes or past.directory != image.starts_in:
            facts = [fact for fact in facts if _of_the_start(fact, past)]
            known.images.add(image_id, facts)
        else:
            known.images.learn(image_id, command.script, truth, facts)

    def _trouble(self, error: SandboxError) -> None:
        why = error.refusal if isinstance(error, ForkError) else "sandbox"
        self._counts[f"trouble: {why}"] += 1


def _of_the_start(fact: Fact, past: Past) -> bool:
    """Whether it also holds before the changes. What is not there may have been removed, so paths decide."""
    match fact:
        case NoProgram() | StartsIn():
            return past.touched is not None
        case Ordered():
            return all(map(past.spared, fact.paths))
        case Exists():
            return past.spared(fact.path)
        case _:
            return past.spared(fact.path)
