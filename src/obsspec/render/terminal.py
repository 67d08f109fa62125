"""The terminal format: one shell command a turn, with so small a frame that a turn costs few tokens.

    <|im_start|>user\n{instruction}<|im_end|>\n
    ${command}<|im_end|>                       sampled: a tool call, by its first token
    <jupyter_output>{observation}<|im_end|>    the frame of its observation
    {answer}<|im_end|>                         sampled: the final answer

Nothing is ever re-rendered: a prompt is the previous prompt, the sampled ids, and one frame. What a policy has to
sample is ordinary text and `<|im_end|>`: SmolLM2 never learnt most of its control tokens, they share one embedding
vector, and with tied embeddings no output layer can tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from obsspec.render.vocabulary import Vocabulary
from obsspec.values import Completion, FinishReason, Observation, StopReason, Tokens, ToolCall, Turn

TOOL_NAME = "bash"


class TerminalRenderer:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._start = vocabulary.control("<|im_start|>")
        self._end = vocabulary.control("<|im_end|>")
        (self._call,) = vocabulary.encode("$")
        self._output = vocabulary.control("<jupyter_output>")

    @property
    def stop_token_ids(self) -> Tokens:
        return (self._end,)

    @property
    def observation_stop_ids(self) -> Tokens:
        return (self._end,)

    def start(self, instruction: str) -> Tokens:
        encode = self._vocabulary.encode
        return (self._start, *encode(f"user\n{instruction}"), self._end, *encode("\n"))

    def call(self, command: str) -> Tokens:
        """The ids of a turn that runs `command`, as a policy would sample them: for training data."""
        return (self._call, *self._vocabulary.encode(command), self._end)

    def answer(self, text: str) -> Tokens:
        """The ids of a final turn, as a policy would sample them: for training data."""
        return (*self._vocabulary.encode(text), self._end)

    def parse(self, completion: Completion) -> Turn:
        ids = completion.token_ids
        if not ids:
            return Turn(stop=StopReason.EMPTY)
        if completion.finish_reason is FinishReason.LENGTH or ids[-1] != self._end:
            return Turn(stop=StopReason.CUT)
        is_call = ids[0] == self._call
        body = ids[1 if is_call else 0 : -1]
        if any(map(self._vocabulary.is_control, body)):
            return Turn(error="malformed turn: control token inside")
        text = self._vocabulary.decode(body)
        if not is_call:
            return Turn(answer=text, stop=StopReason.FINAL)
        if not text.strip():
            return Turn(error="malformed turn: empty command")
        return Turn(calls=(ToolCall(TOOL_NAME, MappingProxyType({"command": text})),))

    def extend(self, prompt: Tokens, completion: Tokens, observations: Sequence[Observation]) -> Tokens:
        added = (*completion, *self._frames(observations))
        return prompt + added  # one copy of a prompt that may be long

    def open_observation(self, prompt: Tokens, completion: Tokens, done: Sequence[Observation]) -> Tokens:
        added = (*completion, *self._frames(done), self._output)
        return prompt + added

    def read_observation(self, token_ids: Tokens) -> str | None:
        if not token_ids or token_ids[-1] != self._end:
            return None
        body = token_ids[:-1]
        if any(map(self._vocabulary.is_control, body)):
            return None
        return self._vocabulary.decode(body)

    def _frames(self, observations: Sequence[Observation]) -> Tokens:
        frames: Tokens = ()
        for observation in observations:
            frames += (self._output, *self._vocabulary.encode(observation.text), self._end)
        return frames
