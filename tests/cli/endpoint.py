"""A token endpoint without a model: a process that answers `/v1/completions` as vLLM does, from a script.

The policy makes two tool calls and answers; the world model predicts silence. `--forgetful`: the second time it sees a
long prompt it samples something else, as an engine does whose numerics depend on what else is running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from obsspec.models.tokenizer import load_vocabulary
from obsspec.render.terminal import TerminalRenderer

VOCABULARY = load_vocabulary()
RENDERER = TerminalRenderer(VOCABULARY)
END = VOCABULARY.control("<|im_end|>")
OUTPUT = VOCABULARY.control("<jupyter_output>")
TURNS = (RENDERER.call("mkdir d"), RENDERER.call("pwd"), RENDERER.answer("done"))
SILENCE = (*VOCABULARY.encode("(no output)\n(exit_code=0)"), END)


class Endpoint:
    def __init__(self, token_s: float, forgetful: bool) -> None:
        self._token_s = token_s
        self._forgetful = forgetful
        self._seen: Counter[tuple[int, ...]] = Counter()

    async def models(self, request: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": "scripted"}]})

    async def completions(self, request: Request) -> StreamingResponse:
        body = await request.json()
        return StreamingResponse(self._stream(tuple(body["prompt"]), body), media_type="text/event-stream")

    def _sample(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        if prompt[-1] == OUTPUT:
            return SILENCE
        self._seen[prompt] += 1
        if self._forgetful and len(prompt) > 26 and self._seen[prompt] > 1:
            return RENDERER.answer("other")
        return TURNS[min((prompt.count(END) - 1) // 2, 2)] if END in prompt else RENDERER.answer("short")

    async def _stream(self, prompt: tuple[int, ...], body: dict[str, Any]) -> AsyncIterator[str]:
        tokens = self._sample(prompt)[: body["max_tokens"]]
        for number, token in enumerate(tokens, 1):
            await asyncio.sleep(self._token_s)
            last = number == len(tokens)
            choice: dict[str, Any] = {"index": 0, "text": "", "token_ids": [token]}
            choice["logprobs"] = {"token_logprobs": [-0.25]}
            choice["finish_reason"] = ("stop" if token == END else "length") if last else None
            yield f"data: {json.dumps({'choices': [choice], 'usage': {'completion_tokens': number}})}\n\n"
        yield "data: [DONE]\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--token-s", type=float, default=0.005)
    parser.add_argument("--forgetful", action="store_true")
    arguments = parser.parse_args()
    endpoint = Endpoint(arguments.token_s, arguments.forgetful)
    routes = [
        Route("/v1/models", endpoint.models),
        Route("/v1/completions", endpoint.completions, methods=["POST"]),
    ]
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201 - the address is the output
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error")).run([listener])


if __name__ == "__main__":
    main()
