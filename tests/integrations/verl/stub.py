"""A token server without a model, as a Ray actor: what it samples is a function of the prompt ids and the sampling."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ray
from tokenizers import Tokenizer
from verl.workers.rollout.replica import TokenOutput

from obsspec.integrations.verl.policy import BEHIND

COMMANDS = ("ls", "cat notes.txt", "cat plan.txt", "mkdir out", "wc -l notes.txt")


@dataclass(slots=True)
class Seen:
    """One request, for the tests to look at."""

    request_id: str
    prompt_ids: tuple[int, ...]
    priority: int
    seconds: float
    end: str = "running"


class Stub:
    """`fault`: what happens to speculative requests: error, nan, abort, empty, version; or deaf, which takes a while to
    end a request that is cancelled. An instruction may say what to do: one turn a line after "run:"; at "crash" the
    server fails.
    """

    def __init__(self, folder: str, token_s: float = 0.004) -> None:
        self._tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.token_s = token_s
        self.seen: list[Seen] = []
        self.running: set[str] = set()
        self.global_steps = 3
        self.fault = ""

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
        priority: int = 0,
    ) -> TokenOutput:
        assert request_id not in self.running, "two requests of one name"
        seen = Seen(request_id, tuple(prompt_ids), priority, asyncio.get_running_loop().time())
        self.seen.append(seen)
        self.running.add(request_id)
        try:
            output = await self._sample(prompt_ids, sampling_params, self.fault if priority >= BEHIND else "")
            seen.end = "done"
            return output
        except asyncio.CancelledError:
            seen.end = "cancelled"
            if self.fault == "deaf":
                await asyncio.sleep(0.3)
            raise
        finally:
            seen.seconds = asyncio.get_running_loop().time() - seen.seconds
            self.running.discard(request_id)

    async def _sample(self, prompt_ids: list[int], sampling_params: dict[str, Any], fault: str) -> TokenOutput:
        named = json.dumps([list(prompt_ids), sampling_params], sort_keys=True)
        draw = random.Random(blake2b(named.encode()).digest())
        ids = self._tokenizer.encode(self._say(prompt_ids, draw)).ids
        await asyncio.sleep(len(ids) * self.token_s)
        if fault == "error":
            raise RuntimeError("out of memory")
        logprobs = [-draw.random() for _ in ids]
        if fault == "nan":
            logprobs[0] = float("nan")
        if fault in ("abort", "empty"):
            ids, logprobs = ids[: fault == "abort"], logprobs[: fault == "abort"]
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs if sampling_params.get("logprobs") else None,
            stop_reason="aborted" if fault == "abort" else "completed",
            num_preempted=0,
            extra_fields={"global_steps": 99 if fault == "version" else self.global_steps, "num_cached_tokens": 0},
        )

    def _say(self, prompt_ids: Sequence[int], draw: random.Random) -> str:
        text = self._tokenizer.decode(list(prompt_ids), skip_special_tokens=False)
        done = text.count("<|im_start|>assistant\n") - 1  # spoken turns, if no tool answer spells the words
        script = text.partition("run:\n")[2].partition("<|im_end|>")[0].splitlines()
        if script:
            calls = script[done].split(" && ") if done < len(script) else []
            if calls == ["crash"]:
                raise RuntimeError("the engine is gone")
        else:
            calls = [draw.choice(COMMANDS) for _ in range(draw.choice((1, 1, 2)))] if done < 4 else []
        if not calls:
            return f"That is all, {draw.randrange(1000)}.<|im_end|>"
        said = "".join(f"\n<tool_call>\n{_call(command)}\n</tool_call>" for command in calls)
        return f"Step {draw.randrange(1000)}: I will look.{said}<|im_end|>"

    async def set(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    async def report(self) -> tuple[list[Seen], int]:
        """What was asked since the last report, and how many requests run now."""
        seen, self.seen = self.seen, []
        return seen, len(self.running)


def _call(command: str) -> str:
    if command == "broken":
        return '{"name": "shell", "arguments": {"command": '
    if command == "unknown":
        return json.dumps({"name": "browser", "arguments": {"url": "x"}})
    return json.dumps({"name": "shell", "arguments": {"command": command}})


StubServer = ray.remote(Stub)
