"""The two pipelines on one episode."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import anyio

from obsspec.protocols import OnTokens, Policy
from obsspec.rollout.collector import Collector, Job, RolloutResult, Speculation, Verdict
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import RolloutRules
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.speculation.trace import SpeculationReport
from obsspec.testing.arm import Arm
from obsspec.testing.audit import audit, audit_cancelled
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.episodes import (
    Episode,
    draw_episode,
    make_cascade,
    make_environment,
    make_gate,
    make_policy,
    make_world_models,
)
from obsspec.values import Completion, Outcome, Priority, Sampling, StopReason, Tokens

STALLED_S = 1e6  # in virtual time; episodes last minutes


@dataclass(slots=True)
class Report:
    """What one episode was, and everything in which it broke a promise."""

    episode: Episode
    turns: int
    stops: list[StopReason]
    outcomes: Counter[Outcome]
    realized_depth: int
    branches: int
    guarded: Counter[str]
    problems: list[str]


async def run_episode(seed: int) -> Report:
    """Both arms of the episode, and the cancelled try of the speculative one if it has one.

    Whatever is wrong is in `problems`: a broken promise, an error that no contract names, or no end.
    """
    return await run_drawn(draw_episode(seed))


async def run_drawn(episode: Episode) -> Report:
    """The same for an episode as it is."""
    try:
        with anyio.fail_after(STALLED_S):
            return await _both_arms(episode)
    except TimeoutError:
        problem = "stalled: no end in sight"
    except Exception as error:  # noqa: BLE001 - typed: a problem of this episode, the others go on
        problem = f"crash: {error!r}"
    return Report(episode, 0, [], Counter(), 0, 0, Counter(), [problem])


async def _both_arms(episode: Episode) -> Report:
    sequential = await run_sequential(episode)
    problems: list[str] = []
    if episode.cancel_after_s is not None:
        cancelled = make_speculative(episode, "cancelled")
        with anyio.move_on_after(episode.cancel_after_s):
            await run_speculative(episode, cancelled)
        problems += audit_cancelled(sequential, cancelled)
    speculative = make_speculative(episode, "speculative")
    await run_speculative(episode, speculative)
    problems += audit(episode, sequential, speculative)
    reports = [result.speculation for result in speculative.results if result.speculation is not None]
    attempts = [attempt for report in reports for attempt in report.attempts]
    return Report(
        episode=episode,
        turns=sum(len(result.trajectory.turns) for result in sequential.results),
        stops=[result.trajectory.stop for result in sequential.results],
        outcomes=Counter(attempt.outcome for attempt in attempts),
        realized_depth=max((report.realized_depth for report in reports), default=0),
        branches=max((attempt.branches for attempt in attempts), default=0),
        guarded=_guarded(reports),
        problems=problems,
    )


def _guarded(reports: list[SpeculationReport]) -> Counter[str]:
    """What became of the calls that were sent ahead."""
    counts = Counter[str]()
    for report in reports:
        counts["sent"] += report.guarded_sent
        counts["ran"] += report.guarded_ran
        counts["refused"] += report.guarded_refused
    return counts


# Running -----------------------------------------------------------------------------------------------------------


async def run_sequential(episode: Episode) -> Arm:
    arm = Arm(make_policy(episode, "sequential"), _environments(episode, "sequential"))
    arm.results = await Collector(arm.policy, concurrency=2).run(_jobs(episode, arm))
    return arm


def make_speculative(episode: Episode, name: str) -> Arm:
    models, gate = make_world_models(episode, name), make_gate(episode, name)
    opener = make_cascade(episode, models, gate)
    return Arm(make_policy(episode, name), _environments(episode, name), models, opener, gate)


async def run_speculative(episode: Episode, arm: Arm) -> None:
    settings = SpeculationSettings(episode.depth, episode.breadth, 20.0, episode.strict_version)
    if episode.impatience_s is None:
        settings = replace(settings, guarded=episode.guarded)
        speculation = Speculation(arm.models, settings, arm.gate)
        arm.results = await Collector(arm.policy, 2, speculation).run(_jobs(episode, arm))
        return
    for job, environment in zip(_jobs(episode, arm), arm.environments, strict=True):
        arm.results.append(await _impatient(episode, arm, job, environment, settings))


async def _impatient(
    episode: Episode, arm: Arm, job: Job, environment: ScriptedEnvironment, settings: SpeculationSettings
) -> RolloutResult:
    """A loop of one's own on the session's clients, whose calls are cancelled and made again: no guarded ones."""
    assert episode.impatience_s is not None
    async with environment.open() as sandbox:
        async with (
            arm.models.open(environment, job.rules.seed) as world_model,
            open_session(
                arm.policy, world_model, job.rules, settings=settings, gate=arm.gate, task_id=environment.task_id
            ) as session,
        ):
            policy = ImpatientPolicy(session.policy, episode.impatience_s, Random(episode.seed))
            trajectory = await run_loop(environment.instruction, job.rules, policy, session.sandbox(sandbox))
        verdict = await environment.verify(sandbox, trajectory)
        broken = (StopReason.SANDBOX_ERROR, StopReason.ENGINE_ERROR, StopReason.RENDER_ERROR)
        verdict = verdict if trajectory.stop not in broken else Verdict(0.0)
    return RolloutResult(environment.task_id, job.rules.seed, job.group, trajectory, verdict, session.report)


class ImpatientPolicy:
    """Gives a call up after a while, up to twice, and makes it again."""

    def __init__(self, inner: Policy, patience_s: float, random: Random) -> None:
        self._inner = inner
        self._patience_s = patience_s
        self._random = random

    @property
    def weight_version(self) -> str:
        return self._inner.weight_version

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        for _ in range(self._random.randint(0, 2)):
            with anyio.move_on_after(self._patience_s):
                return await self._inner.generate(prompt, sampling)
        return await self._inner.generate(prompt, sampling)


def _environments(episode: Episode, arm: str) -> list[ScriptedEnvironment]:
    return [make_environment(episode, arm, rollout) for rollout in range(episode.rollouts)]


def _jobs(episode: Episode, arm: Arm) -> list[Job]:
    return [
        Job(environment, RolloutRules(episode.renderer, episode.limits, f"{episode.seed}/{i}"))
        for i, environment in enumerate(arm.environments)
    ]
