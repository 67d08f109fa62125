# pyright: basic, reportMissingImports=false
"""Training rollouts of verl in the transition log: each turn as soon as the policy has seen what its tools answered.

Both arms are written, in the policy's own token ids, as `obsspec train world` follows them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import anyio

from obsspec.integrations.verl.origin import Origin, origin_of
from obsspec.integrations.verl.template import TemplateRenderer
from obsspec.integrations.verl.turns import LoopRules
from obsspec.integrations.verl.world import task_of
from obsspec.protocols import Renderer
from obsspec.rollout.collector import Environment, Job, RolloutResult, Verdict
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory, TurnRecord
from obsspec.speculation.completions import extends
from obsspec.speculation.trace import SpeculationReport
from obsspec.tasks.task import Split
from obsspec.train.segments import TakenError
from obsspec.train.transition_log import TransitionWriter
from obsspec.values import Completion, FinishReason, Observation, SandboxError, StopReason, Tokens, ToolCall

OBSERVATION = "obsspec_observation"  # what a tool of ours answered, beside the response that verl makes of it
_REWARD = Verdict(math.nan)  # is computed after the loop
_writers: dict[Path, TransitionWriter] = {}


def writer_of(folder: Path, name: str) -> TransitionWriter:
    """This process's writer in a log, opened once: `name`, or where another process still has that, with a number."""
    if folder not in _writers:
        _writers[folder] = _open(folder, name)
    return _writers[folder]


def _open(folder: Path, name: str) -> TransitionWriter:
    for number in count(2):
        try:
            return TransitionWriter(folder, name)
        except TakenError:
            name = f"{name.partition('.')[0]}.{number}"
    raise AssertionError("unreachable")


def worker_name() -> str:
    """The same for worker number N of every run: verl calls it agent_loop_worker_N_ID, with another ID each time."""
    import ray

    context = ray.get_runtime_context()
    named = context.get_actor_name() if context.worker.mode == ray.WORKER_MODE else ""
    return (named or "").rpartition("_")[0] or "agent_loop_worker"


@dataclass(frozen=True, slots=True)
class _Task:
    """What the log wants to know of an environment. The state a rollout starts from is a function of the task."""

    task_id: str
    split: Split = Split.TRAIN

    @property
    def image(self) -> str:
        return self.task_id


@contextmanager
def logged(
    folder: str, sample: Mapping[str, Any], rules: LoopRules, tokenizer: Any
) -> Generator[LoopLog | None, None, None]:
    """The log of one rollout; None if there is none, or the rollout is of validation. Its end is written in any case.

    Raises `ConfigError` if the log can not be written.
    """
    origin = origin_of(sample) if folder else None
    if origin is None or origin.validate:
        yield None
        return
    writer = writer_of(Path(folder), worker_name())
    log = LoopLog(writer, _job(origin, task_of(sample), rules, tokenizer), rules)
    try:
        yield log
    except anyio.get_cancelled_exc_class():
        log.ended(StopReason.CANCELLED)
        raise
    except Exception as error:
        part = StopReason.SANDBOX_ERROR if isinstance(error, SandboxError) else StopReason.ENGINE_ERROR
        said = str(error).strip().rpartition("\n")[2]  # Ray puts the server's whole traceback before it
        log.ended(part, f"{type(error).__name__}: {said}")
        raise
    log.ended(log.stop)


def _job(origin: Origin, task: str, rules: LoopRules, tokenizer: Any) -> Job:
    renderer = cast("Renderer", TemplateRenderer(rules, tokenizer))  # all of it that is used
    name = f"{origin.step}/{origin.index}/{origin.number}"
    of_rollout = RolloutRules(renderer, Limits(), seed=name)
    return Job(cast("Environment", _Task(task)), of_rollout, group=f"{origin.step}/{task}", step=origin.step)


class LoopLog:
    """One rollout in the log. `agent` is verl's `AgentData`, after the state that is told of.

    From the first picture, video or sound on, and where a token builder takes sampled tokens away, token ids no longer
    say what the policy saw: nothing more of the rollout is written but its end.
    """

    def __init__(self, writer: TransitionWriter, job: Job, rules: LoopRules) -> None:
        self._writer, self._job, self._rules = writer.begin(job), job, rules
        self._trajectory = Trajectory("")
        self._turn: tuple[Completion, tuple[ToolCall, ...]] | None = None  # whose tools run
        self._begun = self._lost = False
        self.stop = StopReason.FINAL

    def begin(self, agent: Any) -> None:
        self._begun, self._lost = True, _has_media(agent)
        self._trajectory.append_prompt(tuple(agent.prompt_ids))

    async def generated(self, prompt: Tokens, agent: Any, report: SpeculationReport | None, *, tools_run: bool) -> None:
        """A generation on `prompt`; unless its tools run, the turn is over, and with it the rollout."""
        ids = tuple(agent.response_ids)
        version = agent.extra_fields.get("max_global_steps")
        logprobs = (0.0,) * len(ids)  # the real ones are in verl's batch
        completion = Completion(ids, logprobs, FinishReason.STOP, "" if version is None else str(version))
        if tools_run:
            self._turn = completion, await self._rules.called(prompt, ids)
        else:
            self.stop = self._rules.stop(agent)
            self._commit(completion, (), (), agent, report)

    def answered(
        self, observations: Sequence[Observation | None], agent: Any, report: SpeculationReport | None, *, seen: bool
    ) -> None:
        """All tools of the turn have answered, None where it is more than text. Not `seen`: there was no room."""
        assert self._turn is not None
        self.stop = StopReason.FINAL if seen else StopReason.CONTEXT_LIMIT
        self._lost = self._lost or None in observations
        self._commit(*self._turn, tuple(o for o in observations if o is not None), agent, report)

    def _commit(
        self,
        completion: Completion,
        calls: tuple[ToolCall, ...],
        observations: tuple[Observation, ...],
        agent: Any,
        report: SpeculationReport | None,
    ) -> None:
        trajectory, now = self._trajectory, tuple(agent.prompt_ids)
        self._lost = self._lost or not extends(now, tuple(trajectory.ids), completion.token_ids)
        if self._lost:
            return
        trajectory.append_turn(completion)
        trajectory.turns.append(TurnRecord(len(trajectory.turns), completion, calls, observations, 0.0, 0.0))
        trajectory.append_prompt(now[len(trajectory.ids) :])
        self._writer.committed(trajectory, report)

    def ended(self, stop: StopReason, error: str = "") -> None:
        """Nothing is written of a rollout that had no prompt."""
        job, self._trajectory.stop, self._trajectory.error = self._job, stop, error
        if self._begun:
            seed = job.rules.seed
            self._writer.ended(RolloutResult(job.environment.task_id, seed, job.group, self._trajectory, _REWARD))


def observed(answer: Any, limit: int) -> Observation | None:
    """What a tool answered, from the result of verl's `_call_tool`; None if it is more than text.

    `limit`: of characters. verl cuts what is longer, and then writes more than that.
    """
    response, _, facts = answer
    if response.image or response.video:
        return None
    text = response.text or ""
    known = facts.get(OBSERVATION) if isinstance(facts, Mapping) else None
    known = known if isinstance(known, Observation) else Observation(text)
    return replace(known, text=text, truncated=known.truncated or len(text) > limit)


def _has_media(agent: Any) -> bool:
    return any(getattr(agent, name) for name in ("image_data", "video_data", "audio_data"))
