"""Learns which observation format each tool has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from obsspec.values import Exchange, ToolCall
from obsspec.world.effects import ToolKind, effects, kind_of, script_of
from obsspec.world.format import OURS, ExitLine, ObservationFormat, Plain, ReturnCode
from obsspec.world.frames import Frame
from obsspec.world.framing import find_frame
from obsspec.world.shell.names import names
from obsspec.world.shell.paths import resolve

_EMPTY_TEXTS = (
    "(no output)",
    "(empty)",
    "No output",
    "Your command ran successfully and did not produce any output.",
    "Command executed successfully with no output.",
    "Tool ran without output or errors",
)
_SILENT = names("cd mkdir touch rm cp mv chmod chown ln export")
_AGREE = 0.8  # the share of observations that must have a frame: time limits and errors may come without
_EXIT_LINE, _RETURN_CODE = ExitLine(), ReturnCode()
_SAMPLES = 16  # observations of a tool that are compared to find its frame
_LONG = 4_000  # characters; longer ones are not
_EARLY = 32  # observations after each of which a frame is looked for
_CD = re.compile(r"\s*cd\s+([\w./+-]+)\s*(?:;|&&|\n|\Z)")


@dataclass(slots=True)
class _Evidence:
    """Counts of what was seen of one tool. All of it adds up, so that one rollout's is cheap to put beside the rest."""

    framed: Counter[str] = field(default_factory=Counter[str])
    total: int = 0
    ended: int = 0  # plain ones that end with a line end
    unended: int = 0
    blank: int = 0  # plain ones without any text
    silent: Counter[str] = field(default_factory=Counter[str])  # texts after commands that print nothing
    texts: list[str] = field(default_factory=list[str])  # the last ones without a known frame
    frame: Frame | None = None  # of these

    def add(self, call: ToolCall, text: str) -> None:
        self.total += 1
        before = self.framed.total()
        self._count(call, text)
        if self.framed.total() == before and len(text) < _LONG:
            self.texts = [*self.texts[1 - _SAMPLES :], text]

    def learn_frame(self) -> None:
        """Looks for a frame where none is known that explains what was seen lately; less often as time passes."""
        due = self.total <= _EARLY or self.total % _SAMPLES == 0
        if due and self.framed.total() < self.total * _AGREE and not self._explains(self.frame):
            self.frame = find_frame(self.texts)

    def _explains(self, frame: Frame | None) -> bool:
        """Of no texts, any does."""
        read = sum(frame.read(text) is not None for text in self.texts) if frame is not None else -1
        return read >= len(self.texts) * _AGREE

    def _count(self, call: ToolCall, text: str) -> None:
        if _EXIT_LINE.read(text) is not None:
            self.framed["exit-line"] += 1
        elif _RETURN_CODE.read(text) is not None:
            self.framed["return-code"] += 1
            self.unended += text.endswith("\n\n</output>")  # an empty last line would have gone, were it trimmed
        elif not text:
            self.blank += 1
        elif text in _EMPTY_TEXTS or (len(text) < 200 and "\n" not in text and _is_silent(call)):
            self.silent[text] += 1
        else:
            self.ended += text.endswith("\n")
            self.unended += not text.endswith("\n")

    def decide(self, frame: Frame | None = None) -> ObservationFormat | None:
        """None if what was seen does not agree. `frame`: one that other rollouts have shown."""
        for format_ in (_EXIT_LINE, _RETURN_CODE):
            share = self.framed[format_.name] / self.total
            if share:
                return format_ if share >= _AGREE else None
        found = frame or self.frame
        if found is not None and self._explains(found):
            return found if found.determined else None
        return Plain(trimmed=self.unended > 0 and not self.ended, empty=self._empty())

    def _empty(self) -> str:
        likely = [text for text, count in self.silent.most_common(1) if text in _EMPTY_TEXTS or count > 1]
        return likely[0] if likely and self.silent[likely[0]] > self.blank else ""


class FormatLearner:
    """The format of each tool, from its observations so far.

    Not for several threads. Without any evidence a shell has our format and other tools show their output as it is.
    """

    def __init__(self, default: ObservationFormat = OURS) -> None:
        self._default = default
        self._seen: dict[str, _Evidence] = {}

    def learn(self, call: ToolCall, text: str) -> None:
        """Take in what the policy saw of `call`."""
        seen = self._seen.setdefault(call.name, _Evidence())
        seen.add(call, text)
        seen.learn_frame()

    def choose(self, call: ToolCall, history: Iterable[Exchange] = ()) -> ObservationFormat | None:
        """The format of the tool of `call` in a rollout with this history; None if the evidence does not agree."""
        history = tuple(history)
        chosen = self._choose(call, history)
        if isinstance(chosen, Frame) and chosen.shows_directory:
            return _located(chosen, call, history)
        return chosen

    def _choose(self, call: ToolCall, history: tuple[Exchange, ...]) -> ObservationFormat | None:
        evidence = _Evidence()
        for exchange in history:
            for before, observation in zip(exchange.calls, exchange.observations, strict=False):
                if before.name == call.name:
                    evidence.add(before, observation.text)
        seen = self._seen.get(call.name)
        frame = seen.frame if seen is not None else None
        own = evidence.decide(frame) if evidence.total else None
        if own is None and evidence.total:
            return None
        if seen is None:
            return own or (self._default if kind_of(call) is ToolKind.SHELL else Plain())
        general = seen.decide()
        if own is None or (isinstance(own, Plain) and isinstance(general, Plain)):
            return general  # both plain: the larger evidence tells more of line ends and empty output
        return own


def _located(frame: Frame, call: ToolCall, history: tuple[Exchange, ...]) -> ObservationFormat | None:
    """With the directory that the shell is going to be in; None if that is not known."""
    shown = (
        frame.directory_in(observation.text)
        for exchange in reversed(history)
        for before, observation in reversed(list(zip(exchange.calls, exchange.observations, strict=False)))
        if before.name == call.name
    )
    directory = next((each for each in shown if each is not None), None)
    script = script_of(call) or ""
    moved = _CD.match(script)
    if moved is not None and "cd " not in script[moved.end() :]:
        directory = resolve(moved[1], directory)
    return None if directory is None else replace(frame, directory=directory)


def _is_silent(call: ToolCall) -> bool:
    """Whether the call most likely printed nothing: it changes files or the shell, by a program that does not talk."""
    words = (script_of(call) or "").split(maxsplit=1)
    if not words or words[0] not in _SILENT:
        return False
    found = effects(call)
    return found.changes_shell or found.writes != frozenset()
