"""A world-model server for the tests: it reads the last tool calls in a prompt's text, and says what it is told to."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.from_thread import start_blocking_portal
from tokenizers import Tokenizer

from tests.integrations.verl.tools import answer
from tests.policy.loopback import Reply, Request, loopback

_COMMAND = re.compile(r'"command": "([^"]*)"')
_OPENING = "\n<tool_response>\n"


@dataclass(slots=True)
class Oracle:
    """`mode`: right, wrong, huge (right, but for one command), down, hang, endless, empty, or garbage. `models`: those
    that it lists."""

    tokenizer: Tokenizer
    url: str = ""
    mode: str = "right"
    models: tuple[str, ...] = ("oracle",)
    asked: int = 0
    openings: set[str] = field(default_factory=set)

    async def script(self, request: Request, reply: Reply) -> None:
        if request.path == "/v1/models":
            return await reply.status(200, json.dumps({"data": [{"id": name} for name in self.models]}))
        self.asked += 1
        text = self.tokenizer.decode(request.body["prompt"], skip_special_tokens=False)
        self.openings.add(text[-len(_OPENING) :])
        match self.mode:
            case "down":
                return await reply.status(500, "no")
            case "hang":
                return await anyio.sleep(60)
            case "garbage":
                return await reply.status(200, "<html>")
        await reply.status(200)
        await reply.events(self._chunk(text, request.body["max_tokens"]))
        return None

    def _chunk(self, text: str, max_tokens: int) -> dict[str, object]:
        """Cut where the request says so, as a server does."""
        ids = [] if self.mode == "empty" else self.tokenizer.encode(self._answer(text)).ids[:max_tokens]
        stopped = bool(ids) and ids[-1] == self.tokenizer.token_to_id("</tool_response>")
        logprobs = {"token_logprobs": [-0.01] * len(ids)}
        reason = "stop" if stopped else "length"
        return {"choices": [{"text": "x", "token_ids": ids, "logprobs": logprobs, "finish_reason": reason}]}

    def _answer(self, text: str) -> str:
        if self.mode == "wrong":
            return "nothing of the sort\n</tool_response>"
        if self.mode == "endless":
            return "and so on " * 1000
        calls = _COMMAND.findall(text.rpartition("<|im_start|>assistant\nStep")[2])
        done = text.rpartition("</tool_call>")[2].count("</tool_response>")
        big = self.mode == "huge" and calls[done] == "mkdir big"
        return f"{'z' * 80 if big else answer(calls[done])}\n</tool_response>"


@contextmanager
def world_model_server(folder: Path) -> Generator[Oracle, None, None]:
    oracle = Oracle(Tokenizer.from_file(str(folder / "tokenizer.json")))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(loopback(oracle.script)) as server:
        oracle.url = server.url
        yield oracle
