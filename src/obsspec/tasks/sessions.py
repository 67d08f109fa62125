"""Recorded sessions of agents on tasks: how to make them, and one JSON object per line to keep them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from obsspec.sandbox.spec import TerminalSandbox
from obsspec.tasks.scripted import Final, ScriptedAgent
from obsspec.tasks.task import Task, verify
from obsspec.values import ConfigError, Exchange, Observation, ToolCall


@dataclass(frozen=True, slots=True)
class Session:
    """One finished session. `answer` is None when the turn limit ended it."""

    task_id: str
    agent: str
    instruction: str
    exchanges: tuple[Exchange, ...]
    answer: str | None
    reward: float


async def record(task: Task, agent: ScriptedAgent, sandbox: TerminalSandbox) -> Session:
    """Let `agent` work on `task` in a fresh `sandbox` of the task's spec. A cancelled recording leaves no session."""
    exchanges: list[Exchange] = []
    answer: str | None = None
    for _ in range(task.max_turns + 1):
        move = agent.next(exchanges)
        if isinstance(move, Final):
            answer = move.answer
            break
        if len(exchanges) == task.max_turns:
            break
        call = ToolCall("bash", {"command": move})
        exchanges.append(Exchange((call,), (await sandbox.execute(call),)))
    verdict = verify(task, await sandbox.tree(), answer)
    return Session(task.id, agent.name, task.instruction, tuple(exchanges), answer, verdict.reward)


def to_json(session: Session) -> dict[str, Any]:
    return {
        "task_id": session.task_id,
        "agent": session.agent,
        "instruction": session.instruction,
        "exchanges": [_exchange_to_json(exchange) for exchange in session.exchanges],
        "answer": session.answer,
        "reward": session.reward,
    }


def from_json(record: dict[str, Any]) -> Session:
    return Session(
        task_id=record["task_id"],
        agent=record["agent"],
        instruction=record["instruction"],
        exchanges=tuple(_exchange_from_json(exchange) for exchange in record["exchanges"]),
        answer=record["answer"],
        reward=record["reward"],
    )


def save_sessions(path: Path, sessions: Iterable[Session]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for session in sessions:
            file.write(json.dumps(to_json(session), ensure_ascii=False) + "\n")


def load_sessions(path: Path) -> list[Session]:
    """Those of the whole lines: behind the last newline, one may just be written. Raises `ConfigError`."""
    with path.open("rb") as file:
        return [_read(path, number, line) for number, line in enumerate(file, 1) if line.endswith(b"\n")]


def _read(path: Path, number: int, line: bytes) -> Session:
    try:
        return from_json(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"line {number} of {path} is no session: give a file of `obsspec train record`") from None


def _exchange_to_json(exchange: Exchange) -> dict[str, Any]:
    observations = [asdict(observation) for observation in exchange.observations]
    for observation in observations:
        observation["raw"] = observation["raw"].decode("latin-1")  # one character per byte
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in exchange.calls]
    return {"calls": calls, "observations": observations}


def _exchange_from_json(record: dict[str, Any]) -> Exchange:
    return Exchange(
        calls=tuple(ToolCall(call["name"], call["arguments"]) for call in record["calls"]),
        observations=tuple(
            Observation(**{**observation, "raw": observation["raw"].encode("latin-1")})
            for observation in record["observations"]
        ),
    )
