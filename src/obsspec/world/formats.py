"""Learns which observation format each tool has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from obsspec.values import Exchange, ToolCall
from obsspec.world.effects import ToolKind, effects, kind_of, script_of
from obsspec.world.format import OURS, ExitLine, ObservationFormat, Plain, ReturnCode
from obsspec.world.shell.names import names

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


@dataclass(slots=True)
class _Evidence:
    """Counts of what was seen of one tool. All of it adds up, so that one rollout's is cheap to put beside the rest."""

    framed: Counter[str] = field(default_factory=Counter[str])
    total: int = 0
    ended: int = 0  # plain ones that end with a line end
    unended: int = 0
    blank: int = 0  # plain ones without any text
    silent: Counter[str] = field(default_factory=Counter[str])  # texts after commands that print nothing

    def add(self, call: ToolCall, text: str) -> None:
        self.total += 1
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

    def decide(self) -> ObservationFormat | None:
        """None if what was seen does not agree."""
        for format_ in (_EXIT_LINE, _RETURN_CODE):
            share = self.framed[format_.name] / self.total
            if share:
                return format_ if share >= _AGREE else None
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
        self._seen.setdefault(call.name, _Evidence()).add(call, text)

    def choose(self, call: ToolCall, history: Iterable[Exchange] = ()) -> ObservationFormat | None:
        """The format of the tool of `call` in a rollout with this history; None if the evidence does not agree."""
        evidence = _Evidence()
        for exchange in history:
            for before, observation in zip(exchange.calls, exchange.observations, strict=False):
                if before.name == call.name:
                    evidence.add(before, observation.text)
        seen = self._seen.get(call.name)
        own = evidence.decide() if evidence.total else None
        if own is None and evidence.total:
            return None
        if seen is None:
            return own or (self._default if kind_of(call) is ToolKind.SHELL else Plain())
        general = seen.decide()
        if own is None or (isinstance(own, Plain) and isinstance(general, Plain)):
            return general  # both plain: the larger evidence tells more of line ends and empty output
        return own


def _is_silent(call: ToolCall) -> bool:
    """Whether the call most likely printed nothing: it changes files or the shell, by a program that does not talk."""
    words = (script_of(call) or "").split(maxsplit=1)
    if not words or words[0] not in _SILENT:
        return False
    found = effects(call)
    return found.changes_shell or found.writes != frozenset()
