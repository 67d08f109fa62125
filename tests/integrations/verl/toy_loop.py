"""A tool-agent loop as verl's is, with a toy vocabulary and template and without verl: what the log is told of."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from obsspec.integrations.verl.transitions import LoopLog, logged
from obsspec.integrations.verl.turns import LoopRules
from obsspec.testing.vocabulary import CONTROLS, ToyVocabulary
from obsspec.values import Observation, Tokens

VOCABULARY = ToyVocabulary()
START, END, OPENING = (VOCABULARY.control(name) for name in CONTROLS)


class ToyTokenizer:
    def get_added_vocab(self) -> dict[str, int]:
        return {name: VOCABULARY.control(name) for name in CONTROLS}

    def decode(self, ids: Sequence[int], **_: bool) -> str:
        return "".join(CONTROLS[i - START] if VOCABULARY.is_control(i) else VOCABULARY.decode([i]) for i in ids)


class ToyLoop:
    """The parts of a `ToolAgentLoop` that `LoopRules` uses. `takes_away`: its builder drops a turn's last token."""

    def __init__(self, *, response_length: int = 1000, max_turns: int = 0, takes_away: bool = False) -> None:
        self.tool_parser = self.continuous_token_builder = self
        self.max_parallel_calls = 2
        self.max_assistant_turns, self.max_user_turns = max_turns, 0
        self.response_length = response_length
        self._kept = -1 if takes_away else None

    async def extract_tool_calls(self, ids: Sequence[int], schemas: Any) -> tuple[str, list[Any]]:
        """One call for each line, of the form NAME:COMMAND."""
        del schemas
        lines = [line.partition(":") for line in VOCABULARY.decode(list(ids)[:-1]).splitlines() if ":" in line]
        made = [(name, json.dumps({"command": command})) for name, _, command in lines]
        return "", [SimpleNamespace(name=name, arguments=text, tool_call_id=None) for name, text in made]

    def _build_assistant_message(self, content: str, agent: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": content, "tool_calls": agent.tool_calls}

    def merge_assistant_tokens(self, prompt: list[int], sampled: list[int]) -> Any:
        return SimpleNamespace(token_ids=[*prompt, *sampled[: self._kept], *VOCABULARY.encode("\n")])

    def merge_context_tokens(self, before: list[Any], after: list[Any], ids: list[int], tools: Any) -> Any:
        del tools
        frames = [_frame(message["content"]) for message in after[len(before) :]]
        return SimpleNamespace(token_ids=[*ids, *(i for frame in frames for i in frame), START])


def _frame(text: str) -> Tokens:
    return (OPENING, *VOCABULARY.encode(text), END)


@dataclass
class Toy:
    """Plays rollouts: `says` are the policy's turns, `answers` those of the tools (None: a picture)."""

    loop: ToyLoop = field(default_factory=ToyLoop)
    answers: Callable[[str], str | None] = lambda command: f"hello {command}"
    version: Callable[[int], int] = lambda turn: 4

    async def play(self, folder: str, says: Sequence[str], sample: dict[str, Any]) -> Any:
        """verl's agent data as it is at the end."""
        rules = LoopRules(self.loop)
        with logged(folder, sample, rules, ToyTokenizer()) as log:
            agent = self._agent(sample)
            rules.begin(agent)
            if log is not None:
                log.begin(agent)
            for turn, text in enumerate(says):
                if not await self._turn(turn, text, agent, rules, log):
                    break
        return agent

    def _agent(self, sample: dict[str, Any]) -> Any:
        prompt = [START, *VOCABULARY.encode(sample["raw_prompt"]), END, START]
        media = dict.fromkeys(("image_data", "video_data", "audio_data"), sample.get("picture"))
        tools = {"shell": SimpleNamespace(tool_schema=None)}
        state = {"prompt_ids": prompt, "_active_tools": tools, "_active_tool_schemas": [], "messages": []}
        counts = {"assistant_turns": 0, "user_turns": 0, "response_mask": [], "extra_fields": {}}
        return SimpleNamespace(**state, **counts, **media)

    async def _turn(self, turn: int, text: str, agent: Any, rules: LoopRules, log: LoopLog | None) -> bool:
        prompt = tuple(agent.prompt_ids)
        rules.note(prompt, agent.assistant_turns, agent.messages)
        agent.response_ids = [*VOCABULARY.encode(text), END]
        agent.extra_fields["max_global_steps"] = self.version(turn)
        agent.prompt_ids = self.loop.merge_assistant_tokens(list(prompt), agent.response_ids).token_ids
        agent.response_mask += [1] * (len(agent.prompt_ids) - len(prompt))
        agent.assistant_turns += 1
        _, calls = await self.loop.extract_tool_calls(agent.response_ids, None)
        limited = 0 < self.loop.max_assistant_turns <= agent.assistant_turns
        goes_on = bool(calls) and not limited and len(agent.response_mask) < self.loop.response_length
        if log is not None:
            await log.generated(prompt, agent, None, tools_run=goes_on)
        return goes_on and self._tools(calls, agent, log)

    def _tools(self, calls: Sequence[Any], agent: Any, log: LoopLog | None) -> bool:
        said = {"role": "assistant", "content": ""}
        texts = [self.answers(json.loads(call.arguments)["command"]) for call in calls]
        messages = [{"role": "tool", "content": text or "[a picture]"} for text in texts]
        before, agent.messages = agent.messages, [*agent.messages, said, *messages]
        grown = self.loop.merge_context_tokens([*before, said], agent.messages, agent.prompt_ids, None).token_ids
        added = len(grown) - len(agent.prompt_ids)
        seen = len(agent.response_mask) + added < self.loop.response_length
        if seen:
            agent.prompt_ids = grown
            agent.response_mask += [0] * added
        if log is not None:
            log.answered([None if text is None else Observation(text) for text in texts], agent, None, seen=seen)
        return seen
