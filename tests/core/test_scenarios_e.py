"""Weight versions and sampling parameters: pinned, frozen, never read again."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, replace

import anyio
import pytest

from obsspec.protocols import OnTokens
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import Limits
from obsspec.rollout.trajectory import TurnRecord
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.testing import Move, ScriptedPolicy, always, terminal_script
from obsspec.testing.delays import constant
from obsspec.testing.world_model import Plan
from obsspec.values import Completion, Priority, Sampling, Tokens
from tests.core.scene import Played, Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio


async def play_with_update(scene: Scene, at_s: float) -> Played:
    """The scene, with new weights at this time."""
    policy = scene.policy = scene.make_policy()
    played: list[Played] = []

    async def run() -> None:
        played.append(await scene.speculative())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.sleep(at_s)
        policy.weight_version = "1"
    return played[0]


class PrefixCached:
    """An engine with a prefix cache: a prompt it has read is answered by the weights that read it, until it forgets."""

    def __init__(self, *, forgets: bool) -> None:
        self.weight_version = "0"
        self._forgets = forgets
        self.answered: list[tuple[Tokens, Sampling, Completion]] = []
        self._read: dict[Tokens, str] = {}
        self._weights = {version: weights(version) for version in ("0", "1")}

    def publish(self, version: str) -> None:
        self.weight_version = version
        if self._forgets:
            self._read.clear()

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        sent = self.weight_version
        engine = self._weights[self._read.setdefault(prompt, sent)]
        completion = await engine.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
        completion = replace(completion, weight_version=sent)
        self.answered.append((prompt, sampling, completion))
        return completion


def weights(version: str) -> ScriptedPolicy:
    return ScriptedPolicy(different().script, first_s=constant(1.0), weight_version=version)


async def play_on(engine: PrefixCached, scene: Scene, at_s: float, *, strict: bool) -> list[tuple[str, bool]]:
    """Version of each committed turn, and whether it is what the weights of that version sample there."""
    settings = SpeculationSettings(2, 1, strict_version=strict)
    turns: list[TurnRecord] = []
    async with anyio.create_task_group() as tasks:

        async def update() -> None:
            await anyio.sleep(at_s)
            engine.publish("1")

        tasks.start_soon(update)
        async with open_session(engine, scene.make_world_model(), scene.rules, settings=settings) as session:
            sandbox = session.sandbox(scene.make_sandbox())
            turns += (await run_loop("say hello", scene.rules, session.policy, sandbox)).turns
    found: list[tuple[str, bool]] = []
    for turn in turns:
        prompt, sampling, _ = next(each for each in engine.answered if each[2] is turn.completion)
        honest = await weights(turn.completion.weight_version).generate(prompt, sampling)
        found.append((turn.completion.weight_version, honest == turn.completion))
    return found


def different() -> Scene:
    """Commands for ever, other ones with other weights."""
    script = terminal_script([f"echo {n}" for n in range(1000)], final=0, malformed=0, cut=0, empty=0)
    return Scene(script, says("a"), limits=Limits(3, 60, 4000))


# Mid-branch (the first is sampled from 2 to 3 s), and when two branches wait for the tool that ends at 11 s.
@pytest.mark.parametrize("at_s", [2.5, 8.0])
@pytest.mark.parametrize("strict", [False, True])
async def test_e01_a_branch_that_spans_an_update_is_kept_or_dropped_whole_and_says_its_version(
    at_s: float, strict: bool
) -> None:
    found = await play_on(PrefixCached(forgets=True), different(), at_s, strict=strict)
    assert all(honest for _, honest in found), "each turn was sampled by the weights it names"
    assert [version for version, _ in found] == (["0", "1", "1"] if strict else ["0", "0", "1" if at_s < 3 else "0"])


async def test_e01_a_prefix_cache_that_survives_an_update_is_seen() -> None:
    found = await play_on(PrefixCached(forgets=False), different(), 8.0, strict=True)
    assert [honest for _, honest in found] == [True, False, False], "both branches were read by the old weights"


# The first turn runs from 0 to 1 s, its tool to 11 s, the prediction to 2 s, the branch to 3 s.
@pytest.mark.parametrize(
    ("at_s", "plan", "versions"),
    [
        (0.5, always(Move.RIGHT), ["0", "1"]),
        (1.5, always(Move.RIGHT), ["0", "1"]),
        (2.5, always(Move.RIGHT), ["0", "0"]),
        (5.0, always(Move.RIGHT), ["0", "0"]),
        (5.0, always(Move.WRONG), ["0", "1"]),
        (11.5, always(Move.WRONG), ["0", "0"]),
    ],
)
async def test_e04_every_turn_carries_the_version_it_was_sent_with(
    at_s: float, plan: Plan, versions: list[str]
) -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), plan=plan)
    played = await play_with_update(scene, at_s)
    assert played.trajectory.versions == versions


async def test_e04_a_branch_on_other_weights_is_refused_when_asked() -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), strict_version=True)
    played = await play_with_update(scene, 5.0)
    assert played.trajectory.versions == ["0", "1"]
    assert played.report.discarded_policy_tokens == len(answer())
    assert len(scene.requests) == 3


async def test_e04_without_an_update_the_strict_option_costs_nothing() -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), strict_version=True)
    _, played = await scene.both()
    assert len(scene.requests) == 2
    assert played.report.discarded_policy_tokens == 0


async def test_e05_sampling_is_frozen_and_the_same_for_all_branches_of_a_turn() -> None:
    scene = Scene(recite(call("ls"), call("ls"), answer()), says("a"), depth=3, breadth=4)
    scene.plan = always(Move.WRONG, Move.NEAR, Move.RIGHT)
    first = scene.rules.first("say hello").key
    assert first is not None
    before = asdict(first.sampling)
    await scene.both()
    assert asdict(first.sampling) == before
    by_turn: dict[int, set[Sampling]] = {}
    for request in scene.requests:
        by_turn.setdefault(request.sampling.seed, set()).add(request.sampling)
    assert all(len(same) == 1 for same in by_turn.values()), "D x K branches, one sampling per turn"
    with pytest.raises(FrozenInstanceError):
        first.sampling.seed = 1  # pyright: ignore
