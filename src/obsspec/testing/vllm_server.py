"""A vLLM server on loopback, for as long as a context."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

NAME = "m"
SLOTS = 8  # requests that run at a time; more are queued
UP_S = 300.0


@dataclass(frozen=True)
class Server:
    url: str
    log: Path

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=30).raise_for_status()

    def post(self, path: str, body: Any = None) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, timeout=120).raise_for_status()

    def requests(self) -> tuple[int, int]:
        """Running and waiting, as the engine itself counts them."""
        text = self.get("/metrics").text
        return _metric(text, "vllm:num_requests_running"), _metric(text, "vllm:num_requests_waiting")


def _metric(text: str, name: str) -> int:
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    assert found, f"the engine has no metric {name}"
    return round(sum(float(value) for value in found))


@contextmanager
def serve(
    python: str, model: Path, folder: Path, *more: str, env: Mapping[str, str] | None = None
) -> Generator[Server, None, None]:
    """`python`: of an environment with vLLM; `env`: more of the server's variables. The server is gone, with its
    workers, when the context is left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", NAME]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--max-num-seqs", str(SLOTS)]
    command += ["--scheduling-policy", "priority", "--enable-prompt-tokens-details", *more]
    here = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}
    cpu = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    env = {**os.environ, **here, **cpu, **(env or {})}
    log = folder / "vllm.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)
        server = Server(f"http://127.0.0.1:{port}", log)
        try:
            _wait(server, process)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            server.get("/health")
        except httpx2.HTTPError:
            time.sleep(1)
        else:
            return
    raise AssertionError(f"vLLM did not come up:\n{server.log.read_text()[-4000:]}")
