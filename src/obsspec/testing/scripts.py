"""What a scripted policy says: turns of the terminal format, drawn from a seeded generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from obsspec.render.terminal import TerminalRenderer
from obsspec.render.vocabulary import Vocabulary
from obsspec.testing.vocabulary import toy_vocabulary
from obsspec.values import Tokens

Script = Callable[[Tokens, Random], Tokens]
"""The turn to sample after a prompt, its stop token included; a turn without one is cut off by the length limit."""

COMMANDS = ("ls", "cat a", "cat hello", "mkdir d", "echo hello > f", "rm f", "pwd", "wc f")


@dataclass(frozen=True, slots=True)
class TerminalScript:
    """Commands, and with these probabilities something else: an answer, a malformed turn, a cut one, no token at all.

    Text is sampled in other pieces than the vocabulary would encode it, as real policies do.
    """

    vocabulary: Vocabulary
    renderer: TerminalRenderer
    commands: Sequence[str] = COMMANDS
    final: float = 0.15
    malformed: float = 0.05
    cut: float = 0.02
    empty: float = 0.01

    def __call__(self, prompt: Tokens, random: Random) -> Tokens:
        kind = random.random()
        for share, turn in (
            (self.final, self._final),
            (self.malformed, self._malformed),
            (self.cut, self._cut),
            (self.empty, self._nothing),
        ):
            if kind < share:
                return turn(random)
            kind -= share
        return self._command(random)

    def _command(self, random: Random) -> Tokens:
        code, end = self.renderer.call("")
        return (code, *self._pieces(random.choice(self.commands), random), end)

    def _final(self, random: Random) -> Tokens:
        return (*self._pieces(random.choice(("done", "42", "hello")), random), *self.renderer.answer(""))

    def _malformed(self, random: Random) -> Tokens:
        code, end = self.renderer.call("")
        start = self.vocabulary.control("<|im_start|>")
        return (code, end) if random.random() < 0.5 else (code, *self._pieces("ls", random), start, end)

    def _cut(self, random: Random) -> Tokens:
        return self._command(random)[:-1]

    def _nothing(self, random: Random) -> Tokens:
        return ()

    def _pieces(self, text: str, random: Random) -> Tokens:
        at = random.randint(0, len(text))
        return self.vocabulary.encode(text[:at]) + self.vocabulary.encode(text[at:])


@lru_cache(maxsize=1)
def toy_renderer() -> TerminalRenderer:
    """The terminal format on the toy vocabulary."""
    return TerminalRenderer(toy_vocabulary())


def terminal_script(
    commands: Sequence[str] = COMMANDS,
    *,
    final: float = 0.15,
    malformed: float = 0.05,
    cut: float = 0.02,
    empty: float = 0.01,
) -> TerminalScript:
    """A `TerminalScript` on the toy vocabulary."""
    return TerminalScript(toy_vocabulary(), toy_renderer(), commands, final, malformed, cut, empty)


def recite(*turns: Tokens) -> Script:
    """The given turns in order, by the number of stop tokens `<|im_end|>` of turns in the prompt.

    The turn number is read from the prompt alone (two ends per turn, one of the instruction), so the script is a
    function of the prompt, as a policy must be. For the terminal format.
    """
    end = toy_vocabulary().control("<|im_end|>")

    def script(prompt: Tokens, random: Random) -> Tokens:
        number = (prompt.count(end) - 1) // 2
        return turns[min(number, len(turns) - 1)]

    return script
