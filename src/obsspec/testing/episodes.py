"""Random episodes: one rollout or two, made by both pipelines, with everything that may go wrong going wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from random import Random

from obsspec.protocols import Renderer
from obsspec.rollout.rules import Limits
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.speculation.gate import Breaker, Gate, OpenGate
from obsspec.testing.delays import choice, constant
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.gates import RandomGate
from obsspec.testing.hermes_script import HermesScript, toy_hermes_renderer
from obsspec.testing.policy import Fault, Request, ScriptedPolicy, Spoil
from obsspec.testing.sandbox import Answer, Mishap, oracle, seeded_answers
from obsspec.testing.scripts import Script, terminal_script, toy_renderer
from obsspec.testing.world_model import ScriptedWorldModel, mixture
from obsspec.values import Completion, Context, EngineError, Observation, Priority, SandboxError
from obsspec.world.cascade import CascadeSettings
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.stages import Price

TICK = 0.25  # all delays are multiples: events often fall on the same instant
FAST = ((0.0,), (TICK,), (0.0, TICK, 2 * TICK))
MAX_TURNS = (1, 3, 6, 8, 12)
SLOW = ((4 * TICK, 8 * TICK, 16 * TICK), (0.0, 2 * TICK, 40 * TICK))


class GateKind(StrEnum):
    OPEN = "open"
    BREAKER = "breaker"
    EXPECTED = "expected value"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Episode:
    """Everything of an episode that both arms share, and how its speculative arm is disturbed."""

    seed: int
    depth: int
    breadth: int
    rollouts: int
    limits: Limits
    renderer: Renderer
    script: Script
    right: float  # how often a prediction is right
    trouble: float  # how often the world model does something no one asked for
    engine_faults: int  # of 1,000 prompts, how many the engine fails on, or answers badly
    speculative_faults: int  # of 1,000 speculative requests, the same, in addition
    broken_call: int  # the number of the call at which the sandbox fails; far away in most episodes
    strict_version: bool
    cancel_after_s: float | None  # a first try of the speculative arm is cancelled then
    impatience_s: float | None  # the loop gives each of its calls up after this long, and makes it again
    gate: GateKind
    stages: int  # world models: one as it is, several as a cascade, every second of them expensive
    guarded: bool  # calls are sent ahead
    mishaps: float  # how often the wire to the sandbox does something to a guarded call
    jobs: float  # how often a command leaves processes behind
    tells: float  # how often a command tells how its answer begins, half-way

    def answer(self, rollout: int) -> Answer:
        return seeded_answers(f"{self.seed}/{rollout}")


def draw_episode(seed: int) -> Episode:
    """The same seed gives the same episode. D and K are 0 to 4."""
    random = Random(seed)
    sometimes = random.random
    limits, renderer, script = _hermes(random) if sometimes() < 0.2 else _terminal(random)
    return Episode(
        seed=seed,
        depth=seed % 5,
        breadth=seed // 5 % 5,
        rollouts=2 if sometimes() < 0.1 else 1,
        limits=limits,
        renderer=renderer,
        script=script,
        right=random.choice((0.0, 0.5, 0.9, 1.0)),
        trouble=random.choice((0.0, 0.0, 0.2)),
        engine_faults=random.choice((0, 0, 0, 0, 30)),
        speculative_faults=random.choice((0, 0, 200)),
        broken_call=random.choice((random.randint(0, 5), *[1000] * 5)),
        strict_version=sometimes() < 0.2,
        cancel_after_s=random.randint(0, 60) * TICK if sometimes() < 0.15 else None,
        impatience_s=random.randint(1, 12) * TICK if sometimes() < 0.15 else None,
        gate=random.choice((GateKind.OPEN, *GateKind)),
        stages=random.choice((1, 1, 2, 3)),
        guarded=random.random() < 0.6,
        mishaps=random.choice((0.0, 0.0, 0.3)),
        jobs=random.choice((0.0, 0.0, 0.2)),
        tells=random.choice((0.0, 0.5, 1.0)),
    )


def _terminal(random: Random) -> tuple[Limits, Renderer, Script]:
    limits = Limits(random.choice(MAX_TURNS), random.choice((8, 40, 40, 40, 40)), random.choice((100, 600, 600, 600)))
    script = terminal_script(
        final=random.choice((0.02, 0.15)),
        malformed=random.choice((0.0, 0.1)),
        cut=random.choice((0.0, 0.02)),
        empty=random.choice((0.0, 0.01)),
    )
    return limits, toy_renderer(), script


def _hermes(random: Random) -> tuple[Limits, Renderer, Script]:
    """Turns with several calls."""
    limits = Limits(random.choice(MAX_TURNS), random.choice((60, 400, 400, 400)), random.choice((400, 4000, 4000)))
    script = HermesScript(final=random.choice((0.02, 0.15)), cut=random.choice((0.0, 0.02)))
    return limits, toy_hermes_renderer(), script


def make_policy(episode: Episode, arm: str) -> ScriptedPolicy:
    """The same engine in both arms, at another pace."""
    random = Random(f"{episode.seed}/{arm}/policy")
    return ScriptedPolicy(
        episode.script,
        first_s=choice(random.random(), random.choice((*FAST, *FAST, *SLOW))),
        token_s=constant(random.choice((0.0, TICK / 4))),
        chunk=4 if episode.renderer is toy_renderer() else 40,
        fault=_faults(episode, random),
        spoil=_spoils(episode, random),
    )


def make_world_models(episode: Episode, arm: str) -> list[ScriptedWorldModel]:
    return [_make_world_model(episode, f"{arm}/world{stage or ''}") for stage in range(episode.stages)]


def make_cascade(episode: Episode, models: Sequence[ScriptedWorldModel], gate: Gate) -> CascadeModels | None:
    if len(models) == 1:
        return None
    prices = (Price.CHEAP, Price.EXPENSIVE, Price.CHEAP)
    sources = [Source(f"stage-{i}", model, prices[i]) for i, model in enumerate(models)]
    random = Random(f"{episode.seed}/cascade")
    settings = CascadeSettings(
        sure=random.choice((0.3, 0.6, 0.9)), min_confidence=random.choice((0.0, 0.15)), wait_s=TICK
    )
    return CascadeModels(sources, gate, settings)


def make_gate(episode: Episode, arm: str) -> Gate:
    match episode.gate:
        case GateKind.OPEN:
            return OpenGate()
        case GateKind.BREAKER:
            return Breaker(2, 3)
        case GateKind.EXPECTED:
            return ExpectedValueGate(failures=3, pause=4)
        case GateKind.RANDOM:
            return RandomGate(f"{episode.seed}/{arm}/gate", 0.7)


def _make_world_model(episode: Episode, name: str) -> ScriptedWorldModel:
    random = Random(f"{episode.seed}/{name}")
    oracles = {str(i): oracle(episode.answer(i)) for i in range(episode.rollouts)}

    def truth(context: Context) -> tuple[Observation, ...]:
        return oracles[context.task_id](context)

    plan = mixture(random.random(), episode.right, episode.trouble)
    return ScriptedWorldModel(truth, plan, delay_s=choice(random.random(), random.choice((*FAST, *FAST, *SLOW))))


def make_environment(episode: Episode, arm: str, rollout: int) -> ScriptedEnvironment:
    random = Random(f"{episode.seed}/{arm}/{rollout}/sandbox")
    delay = choice(random.random(), random.choice((*FAST, *SLOW, *SLOW)))

    def fault(number: int) -> SandboxError | None:
        return SandboxError("planned") if number == episode.broken_call else None

    way = choice(random.random(), random.choice(((0.0,), (0.0,), *SLOW)))
    return ScriptedEnvironment(
        str(rollout),
        episode.answer(rollout),
        delay_s=lambda _: delay(),
        fault=fault,
        way_s=lambda _: way(),
        mishap=lambda _: random.choice(list(Mishap)) if random.random() < episode.mishaps else None,
        jobs=lambda _: random.random() < episode.jobs,
        tells=lambda _: random.random() if random.random() < episode.tells else 0.0,
    )


def _chance(request: Request, salt: int) -> int:
    """0..999, a function of the prompt alone: the sequential arm meets the same engine fault."""
    digest = blake2b(f"{salt}/{request.prompt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 1000


def _struck(episode: Episode, random: Random, salt: int) -> Callable[[Request], bool]:
    def struck(request: Request) -> bool:
        if request.priority is Priority.SPECULATIVE and random.randrange(1000) < episode.speculative_faults:
            return True
        return bool(episode.engine_faults) and _chance(request, salt) < episode.engine_faults

    return struck


def _faults(episode: Episode, random: Random) -> Fault:
    struck = _struck(episode, random, episode.seed)
    return lambda request: EngineError("planned") if struck(request) else None


def _spoils(episode: Episode, random: Random) -> Spoil:
    struck = _struck(episode, random, episode.seed + 1)

    def spoil(request: Request, completion: Completion) -> Completion:
        if not struck(request) or not completion.token_ids:
            return completion
        bad = random.choice((float("-inf"), float("nan")))
        return Completion(completion.token_ids, (bad, *completion.logprobs[1:]), completion.finish_reason)

    return spoil
