# pyright: basic, reportMissingImports=false
"""verl's tool agent with a speculative server client: the loop is verl's own, run step by step as it is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from obsspec.integrations.verl.client import ending_at_the_engine
from obsspec.integrations.verl.origin import remember_origins
from obsspec.integrations.verl.policy import ServerPolicy, SessionClient
from obsspec.integrations.verl.settings import VerlSettings
from obsspec.integrations.verl.statistics import FIELD, statistics
from obsspec.integrations.verl.template import TemplateRenderer
from obsspec.integrations.verl.transitions import LoopLog, logged, observed
from obsspec.integrations.verl.turns import LoopRules
from obsspec.integrations.verl.versions import check_verl
from obsspec.integrations.verl.world import shared, task_of
from obsspec.protocols import Renderer, Sandbox
from obsspec.speculation.session import Session, SpeculationSettings, open_session
from obsspec.speculation.trace import SpeculationReport
from obsspec.values import ConfigError, Observation

check_verl()

from verl.experimental.agent_loop.agent_loop import (  # noqa: E402 - after the sentence on versions
    AgentLoopWorker,
    register,
)
from verl.experimental.agent_loop.tool_agent_loop import AgentState, ToolAgentLoop  # noqa: E402

from obsspec.integrations.verl.tool import AheadSandbox, SandboxTool, place  # noqa: E402

remember_origins(AgentLoopWorker)

NAME = "obsspec_tool_agent"
_THEIRS = frozenset(
    ("trainer_config", "server_manager", "tokenizer", "processor", "dataset_cls", "data_config", "hf_model_type")
)


@register(NAME)
class SpeculativeToolAgentLoop(ToolAgentLoop):
    """A `ToolAgentLoop` whose next generation may already be under way when its tools have answered.

    What it collects is what verl's own loop collects: a generation is handed over only if it was started on the very
    prompt ids and sampling parameters that the loop sends. Cancelled, or ended by an error: no request is left at a
    server. Fields: `VerlSettings`.
    """

    def __init__(self, *args: Any, tools: Any = None, name: str = "", **fields: Any) -> None:
        """`name`: that of the YAML entry. Raises `ConfigError` for a wrong field."""
        del name
        theirs = {key: fields.pop(key) for key in _THEIRS & fields.keys()}
        self._settings = VerlSettings.from_fields(fields)
        super().__init__(*args, tools=tools, **theirs)
        self._session: Session | None = None
        self._log: LoopLog | None = None
        self._rules = LoopRules(self)
        self._executes: Sandbox | None = None  # of the tool, if that is ours
        self._answers: dict[int, Observation | None] = {}  # of the turn's calls, None for one that is more than text

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **sample: Any) -> Any:
        with logged(self._settings.transitions, sample, self._rules, self.tokenizer) as self._log:
            async with self._sandbox(sample) as sandbox:
                self._executes = sandbox
                if not self._settings.speculate:
                    return await super().run(sampling_params, priority=priority, **sample)
                async with self._speculating(sample, sandbox) as session:
                    output = await super().run(sampling_params, priority=priority, **sample)
                    session.check_committed()
        output.extra_fields[FIELD] = statistics(session.report)
        return output

    @asynccontextmanager
    async def _speculating(self, sample: Mapping[str, Any], sandbox: Sandbox | None) -> AsyncGenerator[Session, None]:
        """Inside, this loop's server client is the session's, and so is its sandbox if calls are sent ahead."""
        servers, parts, settings = self.server_manager, shared(self._settings), self._settings
        policy = ServerPolicy(ending_at_the_engine(servers), self._rules.read, priorities=self._takes_priorities)
        renderer = cast("Renderer", TemplateRenderer(self._rules, self.tokenizer))  # all of it that is used
        depths = SpeculationSettings(
            settings.depth, settings.breadth, settings.predict_timeout_s, guarded=settings.guarded
        )
        session_of_rollout = open_session(
            policy,
            parts.world_model(renderer),
            self._rules,
            settings=depths,
            gate=parts.gate,
            task_id=task_of(sample),
        )
        try:
            async with session_of_rollout as session:
                self._session, self.server_manager = session, SessionClient(session)
                if sandbox is not None and settings.guarded:
                    session.sandbox(sandbox)
                    self._executes = AheadSandbox(session, sandbox)
                yield session
        finally:
            self._session, self.server_manager = None, servers

    @asynccontextmanager
    async def _sandbox(self, sample: Mapping[str, Any]) -> AsyncGenerator[Sandbox | None, None]:
        """The rollout's own, if it has the tool for it."""
        ours = [tool for tool in self.tools.values() if isinstance(tool, SandboxTool)]
        if self._settings.guarded and len(ours) != len(self.tools):
            raise ConfigError("agent loop field guarded: SandboxTool must be the only tool")
        if self._settings.guarded and ours:
            ours[0].check_length(self.max_tool_response_length)
        if not ours:
            yield None
            return
        made = (sample.get("tools_kwargs") or {}).get(ours[0].name, {}).get("create_kwargs") or {}
        async with ours[0].open(made) as sandbox:
            yield sandbox

    @property
    def _takes_priorities(self) -> bool:
        rollout = self.rollout_config
        return rollout.name == "vllm" and rollout.get("scheduling_policy") == "priority"

    async def _handle_pending_state(self, agent_data: Any, sampling_params: dict[str, Any]) -> Any:
        state = await super()._handle_pending_state(agent_data, sampling_params)
        self._rules.begin(agent_data)
        if self._log is not None:
            self._log.begin(agent_data)
        if self._executes is not None:
            place(agent_data, self._executes)
        return state

    async def _handle_generating_state(
        self, agent_data: Any, sampling_params: dict[str, Any], ignore_termination: bool = False
    ) -> Any:
        prompt = tuple(agent_data.prompt_ids)
        self._answers.clear()
        self._rules.note(prompt, agent_data.assistant_turns, agent_data.messages)
        state = await super()._handle_generating_state(agent_data, sampling_params, ignore_termination)
        if self._log is not None:
            tools_run = state is AgentState.PROCESSING_TOOLS
            await self._log.generated(prompt, agent_data, self._report, tools_run=tools_run)
        return state

    async def _handle_processing_tools_state(self, agent_data: Any) -> Any:
        state = await super()._handle_processing_tools_state(agent_data)
        if self._log is not None:
            answers = [self._answers[index] for index in range(len(self._answers))]
            self._log.answered(answers, agent_data, self._report, seen=state is AgentState.GENERATING)
        return state

    @property
    def _report(self) -> SpeculationReport | None:
        return self._session.report if self._session is not None else None

    async def _call_tool(self, tool_call: Any, tools_kwargs: dict[str, Any], agent_data: Any) -> Any:
        answer = await super()._call_tool(tool_call, tools_kwargs, agent_data)
        if isinstance(self._executes, AheadSandbox) and self._executes.error is not None:
            raise self._executes.error
        self._answered(agent_data.tool_calls[: self.max_parallel_calls], tool_call, answer)
        return answer

    def _answered(self, calls: list[Any], call: Any, answer: Any) -> None:
        """verl runs the calls of a turn side by side; the session is told when all are done, in their order."""
        number = next(index for index, each in enumerate(calls) if each is call)
        self._answers[number] = observed(answer, self.max_tool_response_length)
        if self._session is not None and len(self._answers) == len(calls):
            texts = [self._answers[index] for index in range(len(calls))]
            for text in texts if None not in texts else []:
                assert text is not None
                self._session.executed(text)
