"""What a scripted policy says in the Hermes format: several calls a turn, reasoning before them, broken JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from obsspec.render.hermes import HermesRenderer
from obsspec.testing.scripts import COMMANDS
from obsspec.testing.vocabulary import ToyVocabulary
from obsspec.values import Tokens

CONTROLS = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
BROKEN = ('{"name": "bash"', "[]", "null", '{"name": "frob", "arguments": {}}', '{"name": "bash", "arguments": 1}')


@lru_cache(maxsize=1)
def toy_hermes_vocabulary() -> ToyVocabulary:
    """A toy vocabulary that owns the tags of the Hermes format, as Qwen3's does."""
    return ToyVocabulary(controls=CONTROLS)


@lru_cache(maxsize=1)
def toy_hermes_renderer() -> HermesRenderer:
    """The Hermes format on the toy vocabulary."""
    return HermesRenderer(toy_hermes_vocabulary())


@dataclass(frozen=True, slots=True)
class HermesScript:
    """One to three calls, and with these probabilities something else: an answer, a malformed turn, a cut one."""

    commands: Sequence[str] = COMMANDS
    final: float = 0.1
    malformed: float = 0.1
    cut: float = 0.02

    def __call__(self, prompt: Tokens, random: Random) -> Tokens:
        vocabulary = toy_hermes_vocabulary()
        kind, end = random.random(), vocabulary.control("<|im_end|>")
        if kind < self.final:
            return (*vocabulary.encode("done"), end)
        bodies = [self._call(random) for _ in range(random.choice((1, 1, 2, 3)))]
        if kind < self.final + self.malformed:
            bodies[-1] = random.choice(BROKEN)
        opened, closed = vocabulary.control("<tool_call>"), vocabulary.control("</tool_call>")
        calls = [i for body in bodies for i in (opened, *_pieces(vocabulary, body, random), closed)]
        thought = vocabulary.encode(random.choice(("", "hello\n")))
        return (*thought, *calls) if kind > 1.0 - self.cut else (*thought, *calls, end)

    def _call(self, random: Random) -> str:
        return json.dumps({"name": "bash", "arguments": {"command": random.choice(self.commands)}})


def _pieces(vocabulary: ToyVocabulary, text: str, random: Random) -> Tokens:
    at = random.randint(0, len(text))
    return vocabulary.encode(text[:at]) + vocabulary.encode(text[at:])
