"""How a chat goes on from turn to turn: the rules by which the client's next request is expected.

A prompt is a row of numbers, one for the exact text of each message; the table of texts belongs to one conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from obsspec.integrations.proxy.asked import Asked
from obsspec.integrations.proxy.calls import Called, read_calls
from obsspec.integrations.proxy.fields import OwnFields, Step
from obsspec.integrations.proxy.habits import Habits, text_of
from obsspec.integrations.proxy.reply import Reply
from obsspec.integrations.proxy.wire import canonical
from obsspec.protocols import Followup
from obsspec.values import Completion, GenerationKey, Observation, RenderError, Sampling, Tokens, Turn


def key_of(prompt: Tokens, asked: Asked) -> GenerationKey:
    """All that the request consists of: the prompt, and every other field and header in `model`."""
    return GenerationKey(prompt, Sampling(max_tokens=0, model=asked.rest))


def next_key(key: GenerationKey, completion: Completion, prompt: Tokens, fields: OwnFields) -> GenerationKey:
    """Of the request that is expected to follow with this prompt. Raises `LookupError`."""
    step = Step(len(key.prompt) + len(completion.token_ids), len(prompt))
    return GenerationKey(prompt, replace(key.sampling, model=fields.expect(key.sampling.model, step)))


def body_with(fields: str, name: str, prompt: str) -> bytes:
    """The JSON object `fields` with one more field, whose value is the text `prompt`."""
    return f'{fields[:-1]}{"," if len(fields) > 2 else ""}"{name}":{prompt}}}'.encode()


class ChatTurns:
    """A `Continuation` of one conversation. `own`: habits seen in it; `client`: of all conversations of the client."""

    def __init__(self, own: Habits, client: Habits, fields: OwnFields) -> None:
        self._own = own
        self._client = client
        self._fields = fields
        self._habits = client
        self._texts: list[str] = []
        self._size = 0
        self._numbers: dict[str, int] = {}
        self._called: dict[int, Called] = {}
        self._messages: dict[int, Mapping[str, Any]] = {}
        self._actual: tuple[Sequence[Observation], Followup] | None = None

    # Requests and answers ------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self._size

    def key(self, asked: Asked) -> GenerationKey:
        return key_of(tuple(self._number(str(unit)) for unit in asked.units), asked)

    def body(self, key: GenerationKey) -> bytes:
        """The body of the request that this is the key of."""
        fields = key.sampling.model.partition("\n")[0]
        return body_with(fields, "messages", f"[{','.join(self._texts[number] for number in key.prompt)}]")

    def completed(self, reply: Reply) -> Completion:
        """The answer as the client is expected to repeat it; as it is, where nothing is known of that."""
        try:
            echo = canonical(self._habits.echo.fill(reply.message))
        except LookupError:
            echo = canonical(reply.message)
        number = self._number(echo)
        self._called[number] = read_calls(reply.message, reply.finish)
        self._messages[number] = reply.message
        return Completion((number,), (0.0,), reply.finish)

    def follows(self, completion: Completion, asked: Asked, turns: int) -> bool:
        """Does the request go on from this answer? `turns`: messages before it. Its calls, or its text, come again."""
        if len(asked.units) < turns + 2:
            return False
        echo, message = _loaded(str(asked.units[turns])), self._messages[completion.token_ids[0]]
        if echo.get("role") != "assistant":
            return False
        if message.get("tool_calls"):
            return _call_ids(echo) == _call_ids(message)
        return (text_of(echo) or "").strip() == (text_of(message) or "").strip()

    def observed(self, key: GenerationKey, completion: Completion, asked: Asked) -> tuple[Observation, ...] | None:
        """The client's next request: what its tools answered, None if that is not to be seen. Learns its habits."""
        (number,) = completion.token_ids
        called, message = self._called[number], self._messages[number]
        sent = [json.loads(str(unit)) for unit in asked.units[len(key.prompt) :]]
        answered = len(key.prompt) + 1
        self._fields.learn(key.sampling.model, asked.rest, Step(answered, len(asked.units)))
        self._client.learn(message, called.calls, sent)
        self._own.learn(message, called.calls, sent, self._client)
        # The client has shown more of itself than this conversation; but clients of one name may differ.
        self._habits = self._client if self._own.agrees(self._client) else self._own
        texts = [text_of(each) for each in sent[1 : 1 + len(called.calls)]]
        if len(texts) < len(called.calls) or not texts or None in texts:
            return None
        observations = tuple(Observation(text or "") for text in texts)
        real = self.key(asked)
        self._actual = observations, Followup(real.prompt, real)
        return observations

    def messages(self, prompt: Tokens, completion: Tokens) -> list[dict[str, Any]]:
        """What these numbers stand for."""
        return [json.loads(self._texts[number]) for number in (*prompt, *completion)]

    # The rules -----------------------------------------------------------------------------------------------------

    def parse(self, completion: Completion) -> Turn:
        return self._called[completion.token_ids[0]].turn

    def follow(
        self, level: int, key: GenerationKey, completion: Completion, observations: Sequence[Observation]
    ) -> Followup:
        """What the client sent, where it is known already. Raises `RenderError` where nothing can be expected."""
        if self._actual is not None and self._actual[0] is observations:
            return self._actual[1]
        try:
            called = self._called[completion.token_ids[0]]
            after = self._habits.expect(called.calls, [observation.text for observation in observations])
            prompt = (*key.prompt, *completion.token_ids, *(self._number(text) for text in after))
            return Followup(prompt, next_key(key, completion, prompt, self._fields))
        except LookupError as error:
            raise RenderError(f"what the client will send is not known: {error}") from error

    def speculable(self, level: int, turn: Turn) -> bool:
        return bool(turn.calls) and self._fields.steady and self._habits.tail is not None

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
            self._size += len(text)  # canonical texts are ASCII
        return number


@lru_cache(maxsize=16)
def _loaded(text: str) -> dict[str, Any]:
    """One request is held against many conversations, where many begin alike."""
    return json.loads(text)


def _call_ids(message: Mapping[str, Any]) -> list[Any]:
    """None stands for a call without one: a client may send anything by that name."""
    calls = message.get("tool_calls")
    found = cast("list[Any]", calls) if isinstance(calls, list) else []
    return [cast("dict[str, Any]", call).get("id") if isinstance(call, dict) else None for call in found]
