"""Cancelled requests at a fake vLLM on loopback: which end, what they disturb, and what happens if the engine can not
bear them."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from obsspec.policy import engine_load
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.policy.retry import Retrying
from obsspec.rollout.collector import Collector, Job, Shared, Speculation
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.decisions import GenerationEnded, Look, Why
from obsspec.speculation.gate import NEAR_S, Breaker, Gate, OpenGate
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.policy import Request as Asked
from obsspec.testing.policy import sample
from obsspec.testing.scripts import Script, toy_renderer
from obsspec.values import FinishReason, Outcome, Priority, Sampling
from tests.core.scene import Candidates, Scene, answer, call, recite, says
from tests.policy.loopback import Reply, Request, loopback
from tests.policy.test_openai import chunk

pytestmark = pytest.mark.anyio


@dataclass
class FakeEngine:
    """Samples from a script, a token each `token_s`. `deaf`: a request whose client has hung up goes on all the same.
    `dies`: it loses all others then."""

    script: Script
    token_s: float = 0.01
    deaf: bool = False
    dies: bool = False
    running: dict[str, anyio.CancelScope] = field(default_factory=dict[str, anyio.CancelScope])
    bodies: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])
    aborted: list[str] = field(default_factory=list[str])
    finished: list[str] = field(default_factory=list[str])
    lost: int = 0  # requests that ended because of others

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.path == "/metrics":
            await reply.status(200, f"vllm:num_requests_running{{}} {len(self.running)}\n")
            return
        name, body = request.headers["x-request-id"], request.body
        assert name not in self.bodies, "a name is used once"
        self.bodies[name] = body
        with anyio.CancelScope() as scope:
            self.running[name] = scope
            try:
                await self._stream(body, reply)
            except anyio.get_cancelled_exc_class():
                if not scope.cancel_called:
                    self._hung_up(name)
                raise
            if not self.deaf or name not in self.aborted:
                self.running.pop(name, None)  # it may be lost at the very moment at which it ends
        if scope.cancelled_caught:
            self.lost += 1
        else:
            self.finished.append(name)

    def _hung_up(self, name: str) -> None:
        self.aborted.append(name)
        if not self.deaf:
            self.running.pop(name, None)
        if self.dies:
            for other in list(self.running):
                self.running.pop(other).cancel()

    async def _stream(self, body: dict[str, object], reply: Reply) -> None:
        sampling = Sampling(
            int(body["max_tokens"]),  # pyright: ignore
            float(body["temperature"]),  # pyright: ignore
            int(body["seed"]),  # pyright: ignore
            tuple(body["stop_token_ids"]),  # pyright: ignore
        )
        asked = Asked(0, tuple(body["prompt"]), sampling, Priority.COMMITTED, "0")  # pyright: ignore
        completion = sample(self.script, asked)
        reason = "stop" if completion.finish_reason is FinishReason.STOP else "length"
        await reply.status(200)
        last = len(completion.token_ids) - 1
        for number, (token, logprob) in enumerate(zip(completion.token_ids, completion.logprobs, strict=True)):
            await anyio.sleep(self.token_s)
            await reply.events(chunk([token], [logprob], reason if number == last else None))


LS = recite(call("ls"), answer())


async def test_d02_of_four_branches_three_are_aborted_and_the_fourth_does_not_notice() -> None:
    engine = FakeEngine(LS, token_s=0.03)
    scene = Scene(LS, says("a"), breadth=4, tool_s=0.05)
    scene.world_model = Candidates(lambda _: ["b", "c", "a", "d"], after_s=0.0)
    async with loopback(engine) as server, TokenEndpointPolicy(server.url, "m") as policy:
        scene.policy = policy  # pyright: ignore
        played = await scene.speculative()
        await server.settled()
    assert played.outcomes == [Outcome.MATCH]
    assert len(engine.bodies) == 5, "K requests with a name each, and none of them twice"
    assert len(engine.aborted) == 3
    assert len(engine.finished) == 2
    assert not engine.running
    assert all(body.get("n", 1) == 1 for body in engine.bodies.values()), "K requests, not one with n = K"


async def test_d03_an_abort_without_effect_delays_nobody_and_is_seen_in_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine goes on with the branch for ever; the turn is made again beside it, at once."""
    monkeypatch.setattr(engine_load, "EVERY_S", 0.02)
    engine = FakeEngine(LS, token_s=0.03, deaf=True)
    scene = Scene(LS, says("a"), tool_s=0.05)
    scene.world_model = Candidates(lambda _: ["b"], after_s=0.0)
    async with loopback(engine, metrics=True) as server, TokenEndpointPolicy(server.url, "m") as policy:
        scene.policy = policy  # pyright: ignore
        played = await scene.speculative()
        assert played.outcomes == [Outcome.ROLLBACK]
        second = played.trajectory.turns[1]
        assert second.generate_end_s - second.generate_start_s < 1.0
        with anyio.fail_after(5):
            while policy.busy != 1:  # noqa: ASYNC110 - what changes is a count
                await anyio.sleep(0.01)
    assert len(engine.aborted) == 1


def jobs(count: int) -> list[Job]:
    return [
        Job(
            ScriptedEnvironment(str(i), says("a"), delay_s=lambda _, seconds=0.03 + 0.007 * i: seconds),
            RolloutRules(toy_renderer(), Limits(10, 40, 4000), str(i)),
        )
        for i in range(count)
    ]


async def crashes(gate: Gate) -> tuple[FakeEngine, list[object]]:
    """Six rollouts on an engine that loses all requests whenever one is aborted, and every prediction is wrong."""
    script = recite(*[call("ls")] * 9, answer("all is well"))
    engine = FakeEngine(script, token_s=0.02, dies=True)
    speculation = Speculation(Shared(Candidates(lambda _: ["b"], after_s=0.0)), SpeculationSettings(), gate)
    async with loopback(engine) as server, TokenEndpointPolicy(server.url, "m") as policy:
        retrying = Retrying(policy, attempts=50, first_wait_s=0.01, longest_wait_s=0.02)
        results = await Collector(retrying, 6, speculation).run(jobs(6))
        await server.settled()
        engine.dies = False
        sequential = await Collector(policy, 6).run(jobs(6))
    return engine, [differences(a, b) for a, b in zip(sequential, results, strict=True)]


async def test_d07_an_engine_that_fails_when_requests_are_aborted_is_used_sequentially() -> None:
    open_engine, different = await crashes(OpenGate())
    assert different == [[]] * 6, "slow, but right"
    engine, different = await crashes(Breaker(failures=3, pause=1000))
    assert different == [[]] * 6
    assert len(engine.aborted) < 0.7 * len(open_engine.aborted)
    assert engine.lost < 0.7 * open_engine.lost


def ended(now_s: float, *, finished: bool = False, failed: bool = False) -> GenerationEnded:
    return GenerationEnded(0, now_s, 1, finished, failed)


async def test_d07_the_breaker_opens_after_failures_near_aborts_only() -> None:
    look = Look(0, "bash:ls")
    breaker = Breaker(failures=3, pause=4)
    for now in range(0, 100, 10):  # failures, but not after aborts; and aborts that nothing follows
        breaker.saw(ended(now, failed=True))
        breaker.saw(ended(now + 3 * NEAR_S, finished=True))
        breaker.saw(ended(now + 3 * NEAR_S))
    assert breaker.predicts(look).allowed
    for now in range(200, 230, 10):
        assert breaker.predicts(look).allowed
        breaker.saw(ended(now))
        breaker.saw(ended(now + 0.1, finished=True))  # of a request that had been answered
        breaker.saw(ended(now + 0.2, failed=True))
        breaker.saw(ended(now + 0.2, failed=True))  # of the same blow
    answers = [breaker.predicts(look) for _ in range(5)]
    assert [decision.allowed for decision in answers] == [False] * 4 + [True]
    assert answers[0].why is Why.BROKEN
