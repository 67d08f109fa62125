"""The terminal suite as a source of training rollouts: engines that take new weights, sandboxes, world model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import anyio

from obsspec.compare.world import QUICK_TOOL_S
from obsspec.models.adapter import read_adapter
from obsspec.models.base import base_model_path
from obsspec.models.remerge import Merger
from obsspec.models.tokenizer import load_vocabulary
from obsspec.policy.llama_server import EngineSettings, check_context, cores_minus_one
from obsspec.policy.retry import Retrying
from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.accounting import Account
from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.collector import Environment, Job, Speculation, TurnLog
from obsspec.rollout.rules import RolloutRules
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.profile import parse_profile
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.session import SpeculationSettings
from obsspec.tasks.environment import TaskEnvironment, TerminalSandboxes
from obsspec.tasks.families import FAMILIES
from obsspec.tasks.suite import make_task
from obsspec.tasks.task import Difficulty, Task
from obsspec.train.live import LivePolicy, open_live_policy
from obsspec.train.rollout_settings import Flow, RolloutSettings
from obsspec.train.rollouts import Kept, Rollouts
from obsspec.train.versions import VersionFolder, follow
from obsspec.train.weights import EmbeddedServing
from obsspec.values import ConfigError
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.language import LanguageWorldModel
from obsspec.world.memory import Memory, Store
from obsspec.world.replica import Replicas, ReplicaSettings
from obsspec.world.rules.model import Rules
from obsspec.world.rules.starts import StartingRules
from obsspec.world.stages import Price

_BLOCK = 256  # the engine's contexts are multiples of this


def task_of(task_id: str) -> Task:
    """The task of the suite that has this id. Raises `ConfigError` for an id that no task has."""
    try:
        family, difficulty, seed = task_id.rsplit("-", 2)
        task = _made(family, int(seed), Difficulty(difficulty))
    except ValueError:
        raise ConfigError(f"{task_id!r} is no task of the terminal suite: give FAMILY-DIFFICULTY-SEED") from None
    return task


@lru_cache(maxsize=4096)
def _made(family: str, seed: int, difficulty: Difficulty) -> Task:
    return make_task(family, seed, difficulty)


def known_families(text: str) -> tuple[str, ...]:
    """Families by name, comma-separated, or 'all'. Raises `ConfigError`."""
    names = tuple(FAMILIES) if text == "all" else tuple(name.strip() for name in text.split(","))
    unknown = sorted(set(names) - set(FAMILIES))
    if unknown:
        raise ConfigError(f"--families: unknown {', '.join(unknown)}; known: {', '.join(sorted(FAMILIES))}")
    return names


def check_rollouts(settings: RolloutSettings) -> None:
    """Raises `ConfigError` for a context or a world model that cannot be, before anything is begun."""
    model = base_model_path()
    try:
        check_context(model, _context(settings))
    except ConfigError as error:
        raise ConfigError(f"--max-context: {error}") from None
    if settings.own_engine:
        _check_world_model(Path(settings.world_model))


def _check_world_model(path: Path) -> None:
    if path.is_dir():
        try:
            VersionFolder(path, "world").check()
        except ConfigError as error:
            raise ConfigError(f"--world-model: {error}") from None
        return
    if path.suffix != ".safetensors":
        raise ConfigError(f"--world-model: {path} is no folder of versions: give 'same', an adapter, or such a folder")
    read_adapter(path)


@asynccontextmanager
async def open_rollouts(
    settings: RolloutSettings,
    adapter: Path,
    name: str,
    folder: Path,
    seed: int,
    *,
    kept: Kept | None = None,
    log: TurnLog | None = None,
    account: Account | None = None,
    flow: Flow | None = None,
) -> AsyncGenerator[Rollouts, None]:
    """Everything it takes to make rollouts of the suite, beginning with the policy `adapter` as version `name`.

    `folder`: for logs and files in passing. `seed`: of the sampling. `log`: where turns go.
    `account`: what keeps the books. `flow`: further limits of the collector. Raises `ConfigError`.
    """
    check_rollouts(settings)
    async with AsyncExitStack() as stack:
        renderer = TerminalRenderer(load_vocabulary())
        sandboxes = await _sandboxes(settings, stack)
        merger = Merger()
        serving = EmbeddedServing(_engine(settings), folder, "policy", merger)
        live = await stack.enter_async_context(open_live_policy(serving.open(adapter, name)))
        speculation = None
        if settings.speculate:
            engine = await _world(settings, adapter, folder, merger, stack) if settings.own_engine else live
            language = LanguageWorldModel(engine, renderer, max_context=settings.max_context)
            speculation = _speculation(settings, live, language)

        def job(prompt: str, label: str, step: int) -> Job:
            task = task_of(prompt)
            limits = replace(settings.limits, max_turns=min(settings.max_turns, task.max_turns))
            rules = RolloutRules(renderer, limits, seed=f"{seed}/{label}")
            return Job(TaskEnvironment(task, sandboxes), rules, group=f"{step}/{prompt}", step=step)

        flow = flow or Flow()
        collector = AsyncCollector(
            Retrying(live),
            settings.concurrency,
            flow.sandboxes,
            speculation,
            max_staleness=flow.max_staleness,
            strict_version=flow.strict_version,
            retries=flow.retries,
            reward=flow.reward,
            log=log,
        )
        yield Rollouts(live, serving, collector, job, kept=kept, account=account)


@asynccontextmanager
async def _following(folder: VersionFolder, live: LivePolicy, serving: EmbeddedServing) -> AsyncGenerator[None, None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, folder, live, serving)
        yield
        tasks.cancel_scope.cancel()


async def _world(
    settings: RolloutSettings, start: Path, folder: Path, merger: Merger, stack: AsyncExitStack
) -> LivePolicy:
    """The world model's own engine; on a folder of versions that is still empty it begins with the policy's adapter."""
    path = Path(settings.world_model)
    serving = EmbeddedServing(_engine(settings), folder, "world", merger)
    if path.suffix == ".safetensors":
        return await stack.enter_async_context(open_live_policy(serving.open(path, "world-frozen")))
    versions = VersionFolder(path, "world")
    first = versions.latest()
    opened = serving.open(first.adapter, first.name) if first else serving.open(start, "world-start")
    live = await stack.enter_async_context(open_live_policy(opened))
    await stack.enter_async_context(_following(versions, live, serving))
    return live


def _engine(settings: RolloutSettings) -> EngineSettings:
    engines = 2 if settings.own_engine else 1
    return EngineSettings(
        mode=settings.mode,
        slots=settings.slots,
        context=_context(settings),
        threads=max(1, (settings.threads or cores_minus_one()) // engines),
    )


def _context(settings: RolloutSettings) -> int:
    return -(-settings.max_context // _BLOCK) * _BLOCK


async def _sandboxes(settings: RolloutSettings, stack: AsyncExitStack) -> TerminalSandboxes:
    if settings.latency:
        return await stack.enter_async_context(serve_sandboxes(latency=settings.latency, determinism="standard"))
    return LocalSandboxes(profile=parse_profile("standard"))


def _speculation(settings: RolloutSettings, live: LivePolicy, language: LanguageWorldModel) -> Speculation:
    spare = max(0, settings.slots - settings.concurrency)
    gate = ExpectedValueGate(
        GateSettings(slots=spare, shared_engine=not settings.own_engine, guarded=settings.guarded),
        load=lambda: live.busy,
    )
    replicas = Replicas(_spec_of, ReplicaSettings(profile=parse_profile("standard")))
    known = {
        "rules": Source("rules", StartingRules(Rules(), _spec_of)),
        "memory": Source("memory", Memory(Store())),
        "replica": Source("replica", replicas, pays=partial(gate.tools_take, QUICK_TOOL_S)),
        "lm": Source("lm", language, Price.EXPENSIVE),
    }
    models = CascadeModels([known[name] for name in settings.source_names], gate)
    return Speculation(models, SpeculationSettings(depth=settings.depth, guarded=settings.guarded), gate)


def _spec_of(environment: Environment) -> SandboxSpec | None:
    return environment.task.spec if isinstance(environment, TaskEnvironment) else None
