# pyright: basic, reportMissingImports=false
"""What verl's tool agent does between two generations, as pure rules: made of its own parser and its own builder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from obsspec.integrations.verl.requests import Message, ServerCompletion, Spoken
from obsspec.protocols import Followup
from obsspec.values import Completion, GenerationKey, Observation, StopReason, Tokens, ToolCall, Turn


class LoopRules:
    """A `Continuation` of one rollout of `loop`, a `ToolAgentLoop`.

    Prompts are built by the loop's continuous-token builder, so they are the ones that the loop will send; where the
    builder takes tokens away at a boundary, nothing is predicted. A wrong guess about the loop costs speed only.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._start = 0
        self._tools: dict[str, Any] = {}
        self._schemas: list[Any] = []
        self._known: dict[Tokens, tuple[int, list[Message]]] = {}
        self._spoken: dict[tuple[Tokens, Tokens], Spoken] = {}

    def begin(self, agent: Any) -> None:
        """Before the first generation. `agent`: verl's `AgentData`, with the first prompt built."""
        self._start = len(agent.prompt_ids)
        self._tools = agent._active_tools
        self._schemas = agent._active_tool_schemas

    def note(self, prompt: Tokens, level: int, messages: Sequence[Message]) -> None:
        """The loop is about to ask for generation number `level` on this prompt, which these messages led to."""
        self._known = {known: value for known, value in self._known.items() if len(known) > len(prompt)}
        self._known[prompt] = level, list(messages)
        self._spoken = {known: value for known, value in self._spoken.items() if len(known[0]) >= len(prompt)}

    async def read(self, prompt: Tokens, ids: Tokens) -> Spoken:
        if self._ends(prompt, ids):
            return Spoken()
        schemas = [tool.tool_schema for tool in self._tools.values()]
        content, calls = await self._loop.tool_parser.extract_tool_calls(list(ids), schemas)
        calls = calls[: self._loop.max_parallel_calls]
        parsed = [self._call(call) for call in calls]
        if not parsed or None in parsed:  # what is refused is answered at once: there is nothing to hide
            return Spoken()
        message = self._loop._build_assistant_message(content, SimpleNamespace(tool_calls=calls))
        turn = Turn(calls=tuple(call for call in parsed if call is not None))
        spoken = Spoken(turn, message, tuple(call.tool_call_id for call in calls))
        self._spoken[prompt, ids] = spoken
        return spoken

    async def called(self, prompt: Tokens, ids: Tokens) -> tuple[ToolCall, ...]:
        """The calls of a turn on the prompt that was noted last, as `read` read or reads them."""
        spoken = self._spoken.get((prompt, ids)) or await self.read(prompt, ids)
        return spoken.turn.calls

    def stop(self, agent: Any) -> StopReason:
        """Why the loop ends after a generation whose tools it does not run, in the order in which it looks."""
        if len(agent.response_mask) >= self._loop.response_length:
            return StopReason.CONTEXT_LIMIT
        turns = ((self._loop.max_assistant_turns, agent.assistant_turns), (self._loop.max_user_turns, agent.user_turns))
        return StopReason.TURN_LIMIT if any(limit and made >= limit for limit, made in turns) else StopReason.FINAL

    def _call(self, call: Any) -> ToolCall | None:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, TypeError):
            return None
        known = call.name in self._tools and isinstance(arguments, Mapping)
        return ToolCall(call.name, arguments) if known else None

    def parse(self, completion: Completion) -> Turn:
        assert isinstance(completion, ServerCompletion)
        return completion.spoken.turn

    def follow(
        self, level: int, key: GenerationKey, completion: Completion, observations: Sequence[Observation]
    ) -> Followup:
        texts = [observation.text for observation in observations]
        prompt, messages = self.answered(key.prompt, completion.token_ids, texts)
        self._known[prompt] = self._known[key.prompt][0] + 1, messages
        if len(prompt) - self._start >= self._loop.response_length:
            return Followup(prompt, None, StopReason.CONTEXT_LIMIT)
        return Followup(prompt, GenerationKey(prompt, key.sampling))

    def answered(self, prompt: Tokens, sampled: Tokens, texts: Sequence[str]) -> tuple[Tokens, list[Message]]:
        """Prompt and messages after a turn that was read, with what its calls, or the first ones of them, answered.

        Raises `KeyError` for a turn that was not read.
        """
        spoken = self._spoken[prompt, sampled]
        before = [*self._known[prompt][1], spoken.message]
        after = before + _tool_messages(spoken.call_ids, texts)
        builder = self._loop.continuous_token_builder
        grown = builder.merge_assistant_tokens(list(prompt), list(sampled)).token_ids
        return tuple(builder.merge_context_tokens(before, after, grown, tools=self._schemas).token_ids), after

    def speculable(self, level: int, turn: Turn) -> bool:
        """A turn with calls is one whose tools run, and after its tools the loop always asks again."""
        return bool(turn.calls)

    def _ends(self, prompt: Tokens, ids: Tokens) -> bool:
        """The loop ends after this generation, without looking for calls in it."""
        loop, level = self._loop, self._known[prompt][0]
        return (
            len(prompt) + len(ids) - self._start >= loop.response_length
            or bool(loop.max_assistant_turns and level + 1 >= loop.max_assistant_turns)
            or bool(loop.max_user_turns and level >= loop.max_user_turns)
        )


def _tool_messages(call_ids: Sequence[str | None], texts: Sequence[str]) -> list[Message]:
    """As verl's loop appends them."""
    messages: list[Message] = []
    for call_id, text in zip(call_ids, texts, strict=False):
        message: Message = {"role": "tool", "content": text}
        if call_id is not None:
            message["tool_call_id"] = call_id
        messages.append(message)
    return messages
