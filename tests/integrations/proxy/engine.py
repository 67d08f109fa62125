"""A fake engine on loopback whose answers are a function of the request's body alone, and agents that talk to it.

The engine plays both roles of a policy: as long as its script has a next command it calls a tool, then it answers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import anyio
import httpx2
import uvicorn

from obsspec.integrations.proxy.app import application
from obsspec.integrations.proxy.server import listen
from obsspec.integrations.proxy.service import Service, open_service
from obsspec.integrations.proxy.settings import ServeSettings
from tests.policy.loopback import Loopback, Reply, Request, loopback

Json = dict[str, Any]
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
COMMANDS = ("mkdir out", "echo one > out/a", "cat out/a", "echo two > out/b", "cat out/b", "ls out")


def digest(body: Json) -> str:
    """Of all that is sampled from: how urgent a request is does not change its answer."""
    said = {name: value for name, value in body.items() if name != "priority"}
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(slots=True)
class Engine:
    """`commands`: what the policy does, one a turn. `first_s` before an answer, `token_s` between its events."""

    commands: Sequence[str | Sequence[str]] = COMMANDS
    finish: str = ""  # instead of the right reason
    arguments: str = ""  # instead of well-formed ones
    first_s: float = 0.0
    token_s: float = 0.0
    lingers_s: float = 0.0  # before the connection is closed
    text_protocol: bool = False
    fence: str = "bash"
    fault: Callable[[Request, Reply], Awaitable[bool]] | None = None  # True: it has answered
    bodies: list[Json] = field(default_factory=list[Json])

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.body is not None:
            self.bodies.append(request.body)
        if self.fault is not None and await self.fault(request, reply):
            return
        if request.path.endswith("/models"):
            await reply.status(200, json.dumps({"data": [{"id": "m"}]}), content_type="application/json")
            return
        await anyio.sleep(self.first_s)
        if request.path.endswith("/chat/completions"):
            await self._chat(request.body, reply)
        else:
            await self._ids(request.path, request.body, reply)

    def message(self, body: Json) -> Json:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        name = digest(body)
        if turn >= len(self.commands):
            return {"role": "assistant", "content": f"done {name}", "refusal": None}
        commands = self.commands[turn]
        made = [commands] if isinstance(commands, str) else commands
        if self.text_protocol:
            return {"role": "assistant", "content": f"I go on, {name}.\n\n```{self.fence}\n{made[0]}\n```"}
        calls = [
            {
                "id": f"call_{name}_{number}",
                "type": "function",
                "function": {"name": "bash", "arguments": self.arguments or json.dumps({"command": command})},
            }
            for number, command in enumerate(made)
        ]
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}

    async def _chat(self, body: Json, reply: Reply) -> None:
        message = self.message(body)
        finish = self.finish or ("tool_calls" if "tool_calls" in message else "stop")
        about = {"id": f"chatcmpl-{digest(body)}", "object": "chat.completion", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8}
            text = json.dumps({**about, "choices": [choice], "usage": usage})
            await reply.status(200, text, content_type="application/json", x_engine=digest(body))
            return
        about["object"] = "chat.completion.chunk"
        await reply.status(200, content_type="text/event-stream", x_engine=digest(body))
        for delta in deltas(message):
            await reply.events({**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            await anyio.sleep(self.token_s)
        await reply.events({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}, "[DONE]")
        await anyio.sleep(self.lingers_s)

    async def _ids(self, path: str, body: Json, reply: Reply) -> None:
        prompt = body["prompt"] if path.endswith("/completions") else body["token_ids"]
        draw = int(digest(body), 16)
        ids = [100 + draw % 5, 200 + len(prompt) % 7, 99]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "text": ""}
        await reply.status(200, json.dumps({"choices": [choice]}), content_type="application/json")


def deltas(message: Json) -> list[Json]:
    """The message in small pieces, as an engine streams it."""
    parts: list[Json] = [{"role": "assistant", "content": "" if message["content"] is None else None}]
    text = message["content"] or ""
    parts += [{"content": text[i : i + 9]} for i in range(0, len(text), 9)]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        head = {"name": function["name"], "arguments": ""}
        parts.append({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": head}]})
        arguments = function["arguments"]
        for i in range(0, len(arguments), 5):
            parts.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[i : i + 5]}}]})
    return parts


def run_command(files: dict[str, str], command: str) -> str:
    """A shell that knows just what the engine asks for."""
    match command.split():
        case ["echo", *words, ">", name]:
            files[name] = " ".join(words) + "\n"
            return ""
        case ["cat", name]:
            return files.get(name, f"cat: {name}: No such file or directory\n")
        case ["ls", folder]:
            return "".join(sorted(f"{name.removeprefix(folder + '/')}\n" for name in files if name.startswith(folder)))
        case _:
            return ""


Echo = Callable[[Json], Json]
Show = Callable[[Json, str], Json]


def plain_echo(message: Json) -> Json:
    return {key: value for key, value in message.items() if value is not None or key == "content"}


def tool_message(call: Json, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(slots=True)
class Agent:
    """A client as people write them. `tool_s`: how long its tools take; `tool` runs one."""

    url: str
    task: str = "do it"
    stream: bool = False
    tool_s: float = 0.05
    echo: Echo = plain_echo
    show: Show = tool_message
    tool: Callable[[dict[str, str], str], str] = run_command
    command: Callable[[Json], str] = lambda call: json.loads(call["function"]["arguments"])["command"]
    fields: Json = field(default_factory=lambda: {"model": "m", "temperature": 1.0, "seed": 7, "tools": TOOLS})
    headers: dict[str, str] = field(default_factory=dict[str, str])
    answers: list[Answer] = field(default_factory=list[Answer])
    retries: int = 0  # after an answer that is an error
    turns: int = 100
    client: httpx2.AsyncClient | None = None

    async def run(self) -> list[Answer]:
        files: dict[str, str] = {}
        messages: list[Json] = [{"role": "user", "content": self.task}]
        async with _client(self.client) as client:
            while True:
                message = await self.ask(client, messages)
                calls = calls_of(message)
                if not calls or len(self.answers) >= self.turns:
                    return self.answers
                messages.append(self.echo(message))
                for call in calls:
                    await anyio.sleep(self.tool_s)
                    messages.append(self.show(call, self.tool(files, self.command(call))))

    async def ask(self, client: httpx2.AsyncClient, messages: list[Json]) -> Json:
        body = {**self.fields, "messages": messages, **({"stream": True} if self.stream else {})}
        answer = await self.post(client, body)
        for _ in range(self.retries):
            if answer.status == 200:
                break
            answer = await self.post(client, body)
        self.answers.append(answer)
        return join(answer.body) if self.stream else json.loads(answer.body)["choices"][0]["message"]

    async def post(self, client: httpx2.AsyncClient, body: Json) -> Answer:
        url = f"{self.url}/v1/chat/completions"
        async with client.stream("POST", url, json=body, headers=self.headers) as response:
            data = b"".join([chunk async for chunk in response.aiter_raw()])
        dropped = ("connection", "transfer-encoding", "date")
        headers = tuple((k, v) for k, v in response.headers.multi_items() if k not in dropped)
        return Answer(response.status_code, headers, data)


@asynccontextmanager
async def _client(given: httpx2.AsyncClient | None) -> AsyncGenerator[httpx2.AsyncClient, None]:
    if given is not None:
        yield given
        return
    async with httpx2.AsyncClient(timeout=20, trust_env=False, verify=False) as client:
        yield client


def calls_of(message: Json) -> list[Json]:
    if "tool_calls" in message:
        return message["tool_calls"]
    _, fence, rest = (message["content"] or "").partition("```bash\n")
    return [{"function": {"arguments": json.dumps({"command": rest.partition("\n```")[0]})}}] if fence else []


def join(data: bytes) -> Json:
    """A client's own way to put a stream together."""
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for line in data.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        delta = json.loads(line[6:])["choices"][0]["delta"]
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls", ()):
            call = calls.setdefault(
                part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            )
            call["id"] += part.get("id", "")
            call["function"]["name"] += part["function"].get("name", "")
            call["function"]["arguments"] += part["function"]["arguments"]
    return {**message, "tool_calls": list(calls.values())} if calls else message


@asynccontextmanager
async def proxied(upstream: str, **options: Any) -> AsyncGenerator[tuple[str, Service], None]:
    """A proxy before `upstream`. Afterwards nothing is left of it: no branch, no byte, no request."""
    settings = replace(ServeSettings(upstream, gate=False, max_lag_s=60), **options)
    listener = listen("127.0.0.1", 0)
    async with open_service(settings) as service:
        config = uvicorn.Config(
            application(service),
            lifespan="off",
            ws="none",
            log_level="warning",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        with listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", service
                server.should_exit = True
    limits = service.parts.limits
    assert (limits.branches, limits.held, service.parts.upstream.open, len(service.conversations)) == (0, 0, 0, 0)


@asynccontextmanager
async def running(engine: Engine, **options: Any) -> AsyncGenerator[tuple[Loopback, str, Service], None]:
    """An engine and a proxy before it. Afterwards the engine has no open request."""
    async with loopback(engine) as server:
        async with proxied(server.url, **options) as (url, service):
            yield server, url, service
        await server.settled()


async def both(make: Callable[[str], Agent], server: Loopback, url: str) -> tuple[list[Answer], list[Answer]]:
    """The same agent, once directly and once through the proxy."""
    return await make(server.url).run(), await make(url).run()


async def wait_for(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await anyio.sleep(0.005)
