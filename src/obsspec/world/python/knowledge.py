"""What replicas know of the tools they predict: how code is run and shown, and how far a guess can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from obsspec.values import ToolCall
from obsspec.world.python.beliefs import Duels, Reliability, Votes
from obsspec.world.python.calls import shown_number, volatile_names
from obsspec.world.python.framed import Framed
from obsspec.world.python.histories import Cell
from obsspec.world.python.outcomes import Engine, Kind, Outcome
from obsspec.world.python.styles import Style, write_down
from obsspec.world.python.surface import Surface

UNPROVEN = 0.6  # the most that output that depends on chance or clocks is believed before it was right


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run code: in which interpreter, by which engine, and whether a call sees what those before it did."""

    interpreter: int
    engine: Engine
    stateful: bool


@dataclass(frozen=True, slots=True)
class Guess:
    """What one mode and style make of a call. `text` None: nothing to say yet, but something to learn from."""

    mode: Mode
    style: Style
    kind: Kind
    core: str  # the text before it is dressed
    text: str | None
    paths: tuple[str, ...]  # where the interpreter has its modules
    classes: tuple[object, ...]  # from the general to the special


@dataclass(slots=True)
class ToolKnowledge:
    """What is known of one tool. Holds no recorded output but what every run shares: words for silence, frames."""

    surface: Surface = field(default_factory=Surface)
    reliability: Reliability = field(default_factory=Reliability)
    modes: Duels[Mode] = field(default_factory=lambda: Duels[Mode]())
    offsets: Votes[int] = field(default_factory=lambda: Votes[int]())
    tries: int = 0
    hits: int = 0

    def number(self, codes: Sequence[str], shown: Sequence[str]) -> tuple[Cell, ...]:
        """Each code with the number of its cell: counted on from the last one that one of the outputs `shown` tells."""
        offset = self.offsets.best() or 0
        for index in range(len(shown) - 1, -1, -1):
            number = shown_number(shown[index])
            if number is not None:
                offset = number - index - 1
                break
        return tuple(Cell(code, max(1, index + 1 + offset)) for index, code in enumerate(codes))

    def describe(
        self, mode: Mode, outcome: Outcome, cell: Cell, paths: tuple[str, ...], *, drifted: bool
    ) -> list[Guess]:
        """A guess for each style. `drifted`: an earlier guess of this rollout was wrong, so the state may be too."""
        if outcome.late or outcome.clipped:
            return []
        kind = outcome.kind
        detail = f"{outcome.error}: {outcome.message[:60]}" if kind is Kind.ERROR else volatile_names(cell.code)
        return [
            Guess(
                mode,
                style,
                kind,
                core,
                self.surface.dress(style, core, paths),
                paths,
                ((mode, style), kind, drifted, detail),
            )
            for style, core in write_down(outcome, cell.code, cell.number).items()
        ]

    def rank(self, guesses: Sequence[Guess]) -> list[tuple[float, str]]:
        """The different texts with their probabilities, the most likely first."""
        best: dict[str, float] = {}
        for guess in guesses:
            far_fetched = guess.style is Style.ASSIGNED and guess.kind is Kind.SILENT
            if guess.text is None or (far_fetched and not self.reliability.known(guess.classes[:2])):
                continue
            best[guess.text] = max(self._mean(guess), best.get(guess.text, 0.0))
        return sorted(((mean, text) for text, mean in best.items()), key=lambda item: -item[0])

    def _mean(self, guess: Guess) -> float:
        mean = self.reliability.mean(guess.classes)
        volatile = guess.kind is not Kind.ERROR and bool(guess.classes[-1])
        return min(mean, UNPROVEN) if volatile and not self.reliability.known(guess.classes) else mean

    def learn(self, guesses: Sequence[Guess], shown: str) -> bool:
        """What the tool showed where these were the guesses. True if the best of them was right."""
        ranked = self.rank(guesses)
        right: dict[Mode, bool] = {}
        for guess in guesses:
            if guess.text is not None:
                hit = guess.text == shown
                right[guess.mode] = right.get(guess.mode, False) or hit
                self.reliability.add(guess.classes, right=hit)
        for guess in guesses:
            if guess.core.strip() or guess.kind is Kind.SILENT:
                self.surface.learn(guess.style, guess.core, guess.paths, shown)
        self.modes.add(right)
        self.tries += 1
        self.hits += any(right.values())
        if not ranked:
            return False
        said = ranked[0][1] == shown
        self.reliability.add_said(right=said)
        return said


@dataclass(slots=True)
class Knowledge:
    """What replicas have learnt, by tool. Shared by rollouts."""

    tools: dict[str, ToolKnowledge] = field(default_factory=lambda: {})
    framed: Framed = field(default_factory=Framed)

    def of(self, tool: str) -> ToolKnowledge:
        return self.tools.setdefault(tool, ToolKnowledge())

    def learn_frame(self, call: ToolCall, shown: str) -> None:
        """Guesses that were wrong for want of the frame tell nothing."""
        if self.framed.learn(call, shown):
            self.tools.pop(call.name, None)
