"""Starts and stops the embedded engine: llama-server as a child process on loopback."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

import anyio
from anyio.to_thread import run_sync

from obsspec.models.gguf_metadata import read_metadata
from obsspec.models.merge import ServedModel
from obsspec.values import ConfigError, EngineError

_STOP_S = 5.0


class EngineMode(StrEnum):
    """EXACT: what is sampled depends on (prompt, sampling, weights) alone. FAST: prefills about four times as fast.

    In FAST mode the batch a request shares, and what was cached of it, change logprobs by up to some tenths.
    """

    EXACT = "exact"
    FAST = "fast"


# Tokens that are decoded between two looks at the requests: how long a cancelled one still occupies the engine, and
# how long a prompt being read delays its neighbours. Below these sizes throughput falls, above them it barely grows.
_BATCH = {EngineMode.EXACT: 8, EngineMode.FAST: 32}


def cores_minus_one() -> int:
    """Of the cores this process may use."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`slots` sequences at a time, each with `context` tokens (a multiple of 256). Port 0: any free one.

    An engine's threads spin while they wait for each other, so one busy process beside them costs most of its speed:
    give all engines together at most the number of cores minus one.
    """

    mode: EngineMode = EngineMode.EXACT
    slots: int = 4
    context: int = 2048
    threads: int = 0  # 0: cores minus one
    port: int = 0
    start_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.slots < 1 or self.context < 256 or self.context % 256:
            raise ConfigError(
                f"engine needs slots >= 1 and a context that is a multiple of 256, got {self.slots} and {self.context}"
            )
        if self.threads < 0 or not 0 <= self.port < 65536:
            raise ConfigError(f"engine needs threads >= 0 and a port, got {self.threads} and {self.port}")


class LlamaServer:
    """A running engine. Ends with `stop`, and by itself when this process ends, in whatever way.

    `url`; `snapshots`: the directory that slot snapshots go to; `slots` and `context` as in the settings.
    """

    def __init__(self, model: ServedModel, settings: EngineSettings, log: Path) -> None:
        """Starts it and waits until it answers: about a second. Raises `ConfigError` or `EngineError`."""
        check_context(model.path, settings.context)
        self.weight_version = model.version
        self.slots, self.context = settings.slots, settings.context
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0  # earlier engines may have written to it
        self._process = _spawn(model.path, settings, log)
        try:
            ready = self._first_line(settings)
        except BaseException:
            self.stop()
            raise
        self.url: str = ready["url"]
        self.snapshots = Path(ready["snapshots"])

    def failure(self) -> str | None:
        """What the log ends with if the process is no longer running, else None."""
        status = self._process.poll()
        return None if status is None else f"llama-server ended with status {status}: {_last(self._messages())}"

    def stop(self) -> None:
        """Idempotent; takes at most seconds."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if hasattr(self, "snapshots"):  # a killed process leaves them
            shutil.rmtree(self.snapshots, ignore_errors=True)

    def _first_line(self, settings: EngineSettings) -> dict[str, str]:
        out: IO[bytes] | None = self._process.stdout
        assert out is not None
        deadline = time.monotonic() + settings.start_timeout_s
        while not select.select([out], [], [], 0.1)[0]:
            if time.monotonic() > deadline:
                raise EngineError(f"llama-server gave no sign in {settings.start_timeout_s:.0f} s: see {self._log}")
        line = out.readline()
        if not line:
            self._process.wait()
            raise _start_error(self._messages(), settings.port, self._log)
        return json.loads(line)

    def _messages(self) -> list[str]:
        """What this engine has written to the log."""
        with self._log.open("rb") as file:
            file.seek(self._log_start)
            return [line.strip() for line in file.read().decode(errors="replace").split("\n") if line.strip()]


@asynccontextmanager
async def open_llama_server(
    model: ServedModel, settings: EngineSettings, log: Path
) -> AsyncGenerator[LlamaServer, None]:
    """An engine that ends with the context. Cancelled while it starts: it is started, then stopped.

    `log` is the file that the engine's messages are appended to.
    """
    server = await _shielded_start(model, settings, log)
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):  # bounded by the stop time-out
            await run_sync(server.stop)


async def _shielded_start(model: ServedModel, settings: EngineSettings, log: Path) -> LlamaServer:
    with anyio.CancelScope(shield=True):  # bounded by the start time-out
        return await run_sync(LlamaServer, model, settings, log)
    raise AssertionError("a shielded scope is not cancelled")


def _spawn(model: Path, settings: EngineSettings, log: Path) -> subprocess.Popen[bytes]:
    values = {
        "port": settings.port,
        "threads": settings.threads or cores_minus_one(),
        "slots": settings.slots,
        "context": settings.context,
        "batch": max(_BATCH[settings.mode], settings.slots),  # every slot adds a token to a batch
    }
    arguments = [part for name, value in values.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "obsspec.policy.llama_process", "--model", str(model), *arguments]
    if settings.mode is EngineMode.EXACT:
        command.append("--exact")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as messages:
            return subprocess.Popen(  # a session of its own: Ctrl-C is the parent's to handle
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, start_new_session=True
            )
    except OSError as error:
        raise ConfigError(f"cannot start the engine with log {log} ({error.strerror})") from None


def check_context(model: Path, context: int) -> None:
    """Raises `ConfigError` for one that the model was not made for."""
    trained = read_metadata(model).get("llama.context_length", context)
    if context > trained:
        raise ConfigError(f"{model} has a context of {trained} tokens: give the engine at most that, not {context}")


def _start_error(messages: list[str], port: int, log: Path) -> ConfigError:
    text = "\n".join(messages)
    if "No module named 'xllamacpp'" in text:
        return ConfigError("the engine package xllamacpp is not installed: run `pip install xllamacpp`")
    if "couldn't bind HTTP server socket" in text:
        return ConfigError(f"port {port} is in use: choose another, or 0 for any free one")
    reasons = [line for line in messages if "error loading model" in line]
    return ConfigError(f"llama-server did not start ({_last(reasons or messages)}): see {log}")


def _last(messages: list[str]) -> str:
    return messages[-1] if messages else "no message"
