"""How a conversation of token ids goes on: with a tokenizer by the template's rules, without one from what was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import cast

from obsspec.integrations.proxy.asked import Asked, Route
from obsspec.integrations.proxy.chat import body_with, key_of, next_key
from obsspec.integrations.proxy.fields import OwnFields, Step
from obsspec.integrations.proxy.reply import Reply
from obsspec.protocols import Followup
from obsspec.render.hermes import HermesRenderer
from obsspec.render.vocabulary import Vocabulary
from obsspec.speculation.completions import extends
from obsspec.values import Completion, FinishReason, GenerationKey, Observation, RenderError, Tokens, ToolCall, Turn

_ID_BYTES = 36  # of an int and of the place where it stands
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_RESPONSE = re.compile(r"<tool_response>\n(.*?)\n?</tool_response>", re.DOTALL)


class IdFrames:
    """Observations as ids and back. Pure."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.renderer = HermesRenderer(vocabulary)
        self._vocabulary = vocabulary

    def parse(self, completion: Completion) -> Turn:
        """Every tool that is named is known: which ones there are is the client's affair."""
        names = _NAME.findall(self._spell(completion.token_ids))
        return HermesRenderer(self._vocabulary, tools=names).parse(completion)

    def read(self, prompt: Tokens, completion: Tokens, after: Tokens, count: int) -> tuple[Observation, ...] | None:
        """The `count` observations that the ids `after` say; None if they are not what the template makes of them."""
        texts = _RESPONSE.findall(self._spell(after))
        observations = tuple(Observation(text) for text in texts)
        if len(texts) != count:
            return None
        again = self.renderer.extend(prompt, completion, observations)
        return observations if again == (*prompt, *completion, *after) else None

    def _spell(self, ids: Tokens) -> str:
        tags = {self._id(tag): tag for tag in ("<tool_response>", "</tool_response>")}
        parts: list[str] = []
        run: list[int] = []
        for i in ids:
            if not self._vocabulary.is_control(i):
                run.append(i)
                continue
            parts += [self._vocabulary.decode(run), tags.get(i, "")]
            run = []
        return "".join((*parts, self._vocabulary.decode(run)))

    def _id(self, tag: str) -> int:
        try:
            return self._vocabulary.control(tag)
        except KeyError:
            return -1


class IdTurns:
    """A `Continuation` of one conversation. `frames` None: an answer is a call, and what follows it are its results,
    both as rows of numbers; only what has been seen before can be expected then."""

    def __init__(self, route: Route, frames: IdFrames | None, fields: OwnFields) -> None:
        self._route = route
        self._frames = frames
        self._fields = fields
        self._actual: tuple[Sequence[Observation], Followup] | None = None
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def key(self, asked: Asked) -> GenerationKey:
        self._size = _ID_BYTES * len(asked.units)
        return key_of(cast("Tokens", asked.units), asked)

    def body(self, key: GenerationKey) -> bytes:
        return body_with(
            key.sampling.model.partition("\n")[0], self._route.prompt, f"[{','.join(map(str, key.prompt))}]"
        )

    def completed(self, reply: Reply) -> Completion:
        self._size += _ID_BYTES * len(reply.token_ids)
        return Completion(reply.token_ids, (0.0,) * len(reply.token_ids), reply.finish)

    def follows(self, completion: Completion, asked: Asked, turns: int) -> bool:
        end = turns + len(completion.token_ids)
        return len(asked.units) > end and asked.units[turns:end] == completion.token_ids

    def observed(self, key: GenerationKey, completion: Completion, asked: Asked) -> tuple[Observation, ...] | None:
        real = self.key(asked)
        answered = len(key.prompt) + len(completion.token_ids)
        self._fields.learn(key.sampling.model, asked.rest, Step(answered, len(real.prompt)))
        if not extends(real.prompt, key.prompt, completion.token_ids):
            return None
        after = real.prompt[len(key.prompt) + len(completion.token_ids) :]
        calls = self.parse(completion).calls
        if self._frames is None:
            observations: tuple[Observation, ...] | None = (Observation(" ".join(map(str, after))),)
        else:
            observations = self._frames.read(key.prompt, completion.token_ids, after, len(calls))
        if observations is not None:
            self._actual = observations, Followup(real.prompt, real)
        return observations

    def parse(self, completion: Completion) -> Turn:
        if self._frames is not None:
            return self._frames.parse(completion)
        if completion.finish_reason is FinishReason.LENGTH or not completion.token_ids:
            return Turn()
        said = " ".join(map(str, completion.token_ids))
        return Turn(calls=(ToolCall("ids", MappingProxyType({"ids": said})),))

    def follow(
        self, level: int, key: GenerationKey, completion: Completion, observations: Sequence[Observation]
    ) -> Followup:
        if self._actual is not None and self._actual[0] is observations:
            return self._actual[1]
        if self._frames is not None:
            prompt = self._frames.renderer.extend(key.prompt, completion.token_ids, observations)
        else:
            prompt = (*key.prompt, *completion.token_ids, *_numbers(observations[0].text))
        try:
            return Followup(prompt, next_key(key, completion, prompt, self._fields))
        except LookupError as error:
            raise RenderError(f"what the client will send is not known: {error}") from error

    def speculable(self, level: int, turn: Turn) -> bool:
        return bool(turn.calls) and self._fields.steady


def _numbers(text: str) -> Tokens:
    try:
        return tuple(int(word) for word in text.split())
    except ValueError as error:
        raise RenderError("these are no token ids") from error
