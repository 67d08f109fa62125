"""500 agents at once through `obsspec serve`: nothing is lost, nothing is left, and what a call costs more.

    python benchmarks/proxy_load.py --out runs/proxy-load.json

Three processes on loopback: a fake engine whose answers are a function of the request, the proxy, and the agents. Three
arms make the same sessions: direct calls, the proxy without speculation (`--depth 0`), and with it. Every answer must
be the engine's, byte for byte, in all arms; afterwards the engine has no open request, and the proxy no early one.
Latency is of whole calls, as the agents see it; `bare` is one agent at a time against an engine that answers at once.
It ends by itself, within three minutes. All processes share the cores, so the ratios are of a full machine.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import mean, quantiles
from typing import Annotated, Any

import anyio
import httpx2
import uvicorn
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

app = App(name="proxy-load", help=__doc__)
SCRIPT = ("mkdir w", "echo {} > w/a", "cat w/a", "date", "echo b{} > w/b", "cat w/a w/b", "uptime")
Json = dict[str, Any]


# The engine ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    open: int = 0
    answered: int = 0
    given_up: int = 0


def answer(body: Json) -> Json:
    """The n-th turn gives the n-th command, the last one an answer."""
    name = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    message: Json = {"role": "assistant", "content": f"{name} done" if turn == len(SCRIPT) else None}
    if turn < len(SCRIPT):
        arguments = json.dumps({"command": SCRIPT[turn].format(body["seed"])})
        function = {"name": "bash", "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{name}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn < len(SCRIPT) else "stop"}
    return {"id": name, "choices": [choice], "usage": {"completion_tokens": 40}}


class Engine:
    """Answers after about `seconds`; gives up when the client leaves."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._counts = Counts()

    async def __call__(self, scope: Json, receive: Any, send: Any) -> None:
        if scope["path"] == "/stats":
            await _send(send, json.dumps(asdict(self._counts)).encode())
            return
        data = b""
        while True:
            message = await receive()
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        self._counts.open += 1
        try:
            done = await self._answer(json.loads(data), receive, send)
            self._counts.answered += done
            self._counts.given_up += not done
        finally:
            self._counts.open -= 1

    async def _answer(self, body: Json, receive: Any, send: Any) -> bool:
        found = json.dumps(answer(body)).encode()
        draw = random.Random(found).uniform(0.7, 1.3)
        with anyio.move_on_after(self._seconds * draw if self._seconds else 0) as waited:
            while (await receive())["type"] != "http.disconnect":
                pass
        if not waited.cancelled_caught and self._seconds:
            return False
        await _send(send, found)
        return True


async def _send(send: Any, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@app.command
def engine(port: int, seconds: float) -> None:
    """Run the fake engine (the benchmark starts it by itself)."""
    uvicorn.run(
        Engine(seconds),
        port=port,
        log_level="warning",
        lifespan="off",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )  # type: ignore[arg-type]


# The agents ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Arm:
    name: str
    latencies_s: list[float] = field(default_factory=list[float])
    sessions_s: list[float] = field(default_factory=list[float])
    answers: dict[int, str] = field(default_factory=dict[int, str])  # digest of all that a session was answered
    bare_s: list[float] = field(default_factory=list[float])
    left: Json = field(default_factory=dict[str, Any])


async def session(client: httpx2.AsyncClient, url: str, seed: int, tool_s: float, arm: Arm) -> None:
    files: dict[str, str] = {}
    draw = random.Random(seed)
    messages: list[Json] = [{"role": "user", "content": f"task {seed // 4}"}]
    seen = sha256()
    began_s = time.perf_counter()
    while True:
        sent_s = time.perf_counter()
        got = await client.post(url, json={"model": "m", "seed": seed, "messages": messages})
        arm.latencies_s.append(time.perf_counter() - sent_s)
        seen.update(f"{got.status_code}".encode() + got.content)
        message = got.json()["choices"][0]["message"]
        if "tool_calls" not in message:
            break
        call = message["tool_calls"][0]
        await anyio.sleep(tool_s * draw.uniform(0.5, 1.5))
        shown = run_command(files, json.loads(call["function"]["arguments"])["command"], draw)
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": shown}]
    arm.sessions_s.append(time.perf_counter() - began_s)
    arm.answers[seed] = seen.hexdigest()


def run_command(files: dict[str, str], command: str, draw: random.Random) -> str:
    match command.split():
        case ["echo", text, ">", name]:
            files[name] = f"{text}\n"
            return ""
        case ["cat", *names]:
            return "".join(files[name] for name in names)
        case ["mkdir", _]:
            return ""
        case _:
            return f"{draw.random()}\n"


async def play(arm: Arm, url: str, sessions: int, tool_s: float) -> None:
    """All sessions at once; they begin within one tool call's time."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=sessions)
    async with httpx2.AsyncClient(timeout=120, limits=limits, trust_env=False) as client:

        async def one(seed: int) -> None:
            await anyio.sleep(random.Random(~seed).random() * tool_s)
            await session(client, f"{url}/v1/chat/completions", seed, tool_s, arm)

        async with anyio.create_task_group() as tasks:
            for seed in range(sessions):
                tasks.start_soon(one, seed)


async def bare(arm: Arm, url: str, calls: int) -> None:
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        for number in range(calls):
            body = {"model": "m", "seed": number, "messages": [{"role": "user", "content": "x" * 2000}]}
            sent_s = time.perf_counter()
            await client.post(f"{url}/v1/chat/completions", json=body)
            arm.bare_s.append(time.perf_counter() - sent_s)


# The arms -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def process(command: Sequence[str], url: str) -> AsyncGenerator[int, None]:
    """A server in a process of its own; yields its id as soon as it answers."""
    running = await anyio.open_process([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=None)
    try:
        with anyio.fail_after(60):
            async with httpx2.AsyncClient(trust_env=False) as client:
                while True:
                    try:
                        await client.get(url)
                        break
                    except httpx2.HTTPError:
                        await anyio.sleep(0.1)
        yield running.pid
    finally:
        running.send_signal(signal.SIGINT)
        with anyio.move_on_after(20, shield=True):
            await running.wait()
        await running.aclose()


async def arm_of(
    name: str, options: Sequence[str], ports: tuple[int, int], sessions: int, times: tuple[float, float]
) -> Arm:
    arm = Arm(name)
    upstream, url = (f"http://127.0.0.1:{port}" for port in ports)
    for seconds in (0.0, times[0]):
        async with process([__file__, "engine", str(ports[0]), str(seconds)], f"{upstream}/stats"):
            serve = ["-m", "obsspec.cli", "serve", "--upstream", upstream, "--port", str(ports[1]), *options]
            if name == "direct":
                await (play(arm, upstream, sessions, times[1]) if seconds else bare(arm, upstream, 300))
                arm.left = await _stats(upstream)
                continue
            async with process(serve, f"{url}/obsspec/report") as pid:
                if not seconds:
                    await bare(arm, url, 300)
                    continue
                before = _memory(pid)
                await play(arm, url, sessions, times[1])
                arm.left = {**await _stats(upstream), **await _proxy(url), "memory_mib": [before, _memory(pid)]}
    return arm


async def _stats(url: str) -> Json:
    """Once the engine has seen all clients leave."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        for _ in range(50):
            found = (await client.get(f"{url}/stats")).json()
            if not found["open"]:
                break
            await anyio.sleep(0.1)
    return found


async def _proxy(url: str) -> Json:
    async with httpx2.AsyncClient(trust_env=False) as client:
        report = (await client.get(f"{url}/obsspec/report")).json()
        metrics = (await client.get(f"{url}/obsspec/metrics")).text
    gauges = {name: float(value) for name, value in re.findall(r"^obsspec_(\w+) ([\d.e+]+)$", metrics, re.MULTILINE)}
    names = ("branches", "held_bytes", "upstream_requests", "sessions")
    return {"report": report, **{name: gauges[name] for name in names}}


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


def is_clean(arm: Arm, direct: Arm, sessions: int) -> bool:
    """Every answer is the engine's, and nothing is left."""
    left = [arm.left["open"], *(arm.left.get(name, 0) for name in ("branches", "held_bytes", "upstream_requests"))]
    return len(arm.answers) == sessions and arm.answers == direct.answers and not any(left)


def table(arms: Sequence[Arm], sessions: int) -> Table:
    shown = Table(title=f"{sessions} sessions at once, {len(SCRIPT) + 1} calls each")
    for column in ("", *(arm.name for arm in arms)):
        shown.add_column(column, justify="left" if not column else "right")
    direct = arms[0]
    for name, of in (("call", "latencies_s"), ("bare call", "bare_s")):
        base = percentiles(getattr(direct, of))
        cells = [percentiles(getattr(arm, of)) for arm in arms]
        for i, which in enumerate(("p50", "p99")):
            ratios = [f"{cell[i] * 1000:.1f} ms ({cell[i] / base[i]:.2f})" for cell in cells]
            shown.add_row(f"{name}, {which} (ratio)", *ratios)
    shown.add_row("session, mean", *(f"{mean(arm.sessions_s):.2f} s" for arm in arms))
    early = [arm.left.get("report", {}).get("requests", {}).get("answered_early", 0) for arm in arms]
    shown.add_row(
        "answered early", *(f"{each / len(arm.latencies_s):.1%}" for each, arm in zip(early, arms, strict=True))
    )
    shown.add_row(
        "lost, changed or left behind", *("none" if is_clean(arm, direct, sessions) else "YES" for arm in arms)
    )
    shown.add_row("memory of the proxy", *(" to ".join(map(str, arm.left.get("memory_mib", ["-"]))) for arm in arms))
    return shown


@app.default
def main(
    *,
    sessions: int = 500,
    engine_s: Annotated[float, Parameter(help="Seconds that the engine takes, on average.")] = 2.0,
    tool_s: Annotated[float, Parameter(help="Seconds that a tool takes, on average.")] = 3.0,
    port: Annotated[int, Parameter(help="Of the engine; the proxy has the next one.")] = 18700,
    out: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> int:
    """Run the three arms. Exit status 1 if a request was lost or changed, or anything was left behind."""
    arms: list[Arm] = []
    for name, options in (("direct", ()), ("proxy", ("--depth", "0")), ("speculative", ())):
        arms.append(anyio.run(arm_of, name, options, (port, port + 1), sessions, (engine_s, tool_s)))
    Console(width=120).print(table(arms, sessions))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"name": a.name, "calls": percentiles(a.latencies_s), "bare": percentiles(a.bare_s), **a.left} for a in arms
        ]
        out.write_text(json.dumps(rows, indent=2))
    return 0 if all(is_clean(arm, arms[0], sessions) for arm in arms) else 1


if __name__ == "__main__":
    sys.exit(app())
