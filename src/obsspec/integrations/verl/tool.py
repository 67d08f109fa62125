# pyright: basic, reportMissingImports=false
"""A shell in a sandbox of ours as a verl tool: one sandbox for each rollout, guarded calls where they are wanted."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

from obsspec.integrations.verl.transitions import OBSERVATION
from obsspec.protocols import Sandbox
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.remote import RemoteSandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.speculation.session import Session
from obsspec.values import ConfigError, Observation, SandboxError, ToolCall

NOTICES = 200  # characters of notices that an observation may have beyond its limit
_KEY = "obsspec_sandbox"  # where the loop leaves a rollout's sandbox, on verl's `AgentData`


class SandboxTool(BaseTool):
    """Its one parameter is `command`. `config`: `url` of a sandbox server (`python -m obsspec.sandbox.server`), or
    `timeout_s` and `max_characters` of sandboxes on the worker's own machine.

    A sample's `tools_kwargs[NAME].create_kwargs` says what its sandbox starts with: `files` (text by path), `setup`
    (commands), `image` (a name of that state). verl makes and releases a tool for each call, so it is the agent loop
    that opens and closes the sandbox: the tool works in `SpeculativeToolAgentLoop` only, in both of its arms.
    """

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        super().__init__(config, tool_schema)
        known = {"type", "url", "timeout_s", "max_characters"}
        if config.keys() - known:
            raise ConfigError(f"SandboxTool: unknown field {min(config.keys() - known)}; there are {sorted(known)}")
        self._url = str(config.get("url", ""))
        self._timeout_s = float(config.get("timeout_s", 30.0))
        self._max_characters = int(config.get("max_characters", 4000))

    def open(self, create_kwargs: dict[str, Any]) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox. Raises `ConfigError`, `SandboxError`."""
        spec = SandboxSpec(
            files=tuple(FileSpec(path, text.encode()) for path, text in create_kwargs.get("files", {}).items()),
            setup=tuple(create_kwargs.get("setup", ())),
            image=create_kwargs.get("image", ""),
        )
        if self._url:
            return RemoteSandboxes(self._url).open(spec)
        return LocalSandboxes(self._timeout_s, self._max_characters).open(spec)

    def check_length(self, limit: int) -> None:
        """Raises `ConfigError` if verl would cut an answer: a guard is about what the sandbox itself answers."""
        if self._max_characters + NOTICES > limit:
            raise ConfigError(
                f"guarded calls: multi_turn.max_tool_response_length is {limit}, SandboxTool answers up to "
                f"{self._max_characters} characters: it must be at least {self._max_characters + NOTICES}"
            )

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> Any:
        sandbox: Sandbox | None = getattr(kwargs.get("agent_data"), _KEY, None)
        if sandbox is None:
            raise ConfigError("SandboxTool needs the agent loop obsspec_tool_agent")
        observation = await sandbox.execute(ToolCall(self.name, parameters))
        return ToolResponse(text=observation.text), 0.0, {OBSERVATION: observation}


def place(agent_data: Any, sandbox: Sandbox) -> None:
    """Give a rollout's tool its sandbox."""
    setattr(agent_data, _KEY, sandbox)


@dataclass(slots=True)
class AheadSandbox:
    """Runs what was not run ahead. The loop tells the session what the turn's calls answered.

    `error`: a call ran that the loop did not make. verl would show that to the policy; the rollout must end with it.
    """

    session: Session
    inner: Sandbox
    error: SandboxError | None = None

    async def execute(self, call: ToolCall) -> Observation:
        try:
            observation = await self.session.take(call)
        except SandboxError as error:
            self.error = error
            raise
        return await self.inner.execute(call) if observation is None else observation
