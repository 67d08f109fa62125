# pyright: basic, reportMissingImports=false
"""Where in the policy's own chat template a tool's answer goes: found by rendering probes, for any model family.

Two answers with no text in common are rendered. What their tokens begin with in common is the opening, which a language
world model continues; what they end with in common is the closing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from obsspec.integrations.verl.turns import LoopRules
from obsspec.values import Observation, RenderError, Tokens

_PROBES = ("0", "Zzz")


class TemplateRenderer:
    """The part of a `Renderer` that `LanguageWorldModel` and the transition log need, for one rollout; the world model
    has its tokenizer."""

    def __init__(self, rules: LoopRules, tokenizer: Any) -> None:
        self._rules = rules
        self._tokenizer = tokenizer
        self._added = frozenset(tokenizer.get_added_vocab().values())
        self._closing: Tokens = ()  # ordinary text between an answer and the token that ends it
        self._stop: int | None = None

    @property
    def observation_stop_ids(self) -> Tokens:
        """The first token of the closing that no ordinary text has; known once an observation was opened."""
        return () if self._stop is None else (self._stop,)

    def open_observation(self, prompt: Tokens, completion: Tokens, done: Sequence[Observation]) -> Tokens:
        """Raises `RenderError` where the template shows no end of an answer."""
        texts = [observation.text for observation in done]
        one, other = (self._answered(prompt, completion, [*texts, probe]) for probe in _PROBES)
        opening = _common(one, other)
        closing = tuple(reversed(_common(one[::-1], other[::-1])))
        at = next((index for index, token in enumerate(closing) if token in self._added), None)
        if at is None:
            raise RenderError("the chat template does not end a tool's answer with a token of its own")
        self._closing, self._stop = closing[:at], closing[at]
        return opening

    def extend(self, prompt: Tokens, completion: Tokens, observations: Sequence[Observation]) -> Tokens:
        return self._answered(prompt, completion, [observation.text for observation in observations])

    def read_observation(self, token_ids: Tokens) -> str | None:
        if self._stop is None or self._stop not in token_ids:
            return None
        text = self._text(token_ids[: token_ids.index(self._stop)])
        closing = self._text(self._closing)
        return text.removesuffix(closing) if text.endswith(closing) else None

    def _answered(self, prompt: Tokens, completion: Tokens, texts: Sequence[str]) -> Tokens:
        try:
            return self._rules.answered(prompt, completion, texts)[0]
        except Exception as error:
            raise RenderError(f"the chat template does not render these answers ({error!r})") from error

    def _text(self, ids: Tokens) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _common(one: Tokens, other: Tokens) -> Tokens:
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
