"""Several engines as one: requests go where their prefix is, unless that one is overloaded; cancels go there too."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.policy.prefix_homes import BLOCK, KEPT, PrefixHomes
from obsspec.policy.replicated import Replicated, open_endpoints
from obsspec.policy.retry import Retrying
from obsspec.protocols import OnTokens
from obsspec.rollout.collector import Collector, Job, Shared, Speculation
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing import ScriptedPolicy, ScriptedWorldModel, oracle, seeded_answers
from obsspec.testing.delays import constant
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.scripts import toy_renderer
from obsspec.testing.virtual_clock import Backend, backend_options
from obsspec.testing.world_model import Forecast, Move
from obsspec.values import Completion, ConfigError, EngineError, Priority, Sampling, Tokens
from tests.policy.loopback import Reply, Request, loopback
from tests.policy.test_openai import chunk

TURN = 120  # tokens


class Replica:
    """A scripted engine with a prefix cache: it knows how much of each prompt it had read before."""

    def __init__(self, weight_version: str = "0") -> None:
        self.inner = ScriptedPolicy(_say, first_s=constant(1.0), weight_version=weight_version)
        self.held: list[Tokens] = []
        self.read = self.cached = 0
        self.prompts: list[Tokens] = []
        self.elsewhere = 0  # requests of others

    @property
    def busy(self) -> int:
        return len(self.inner.open) + self.elsewhere

    @property
    def weight_version(self) -> str:
        return self.inner.weight_version

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        self.prompts.append(prompt)
        self.read += len(prompt)
        self.cached += max((_common(held, prompt) for held in self.held), default=0)
        self.held.append(prompt)
        completion = await self.inner.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
        self.held.append((*prompt, *completion.token_ids))
        return completion


def _say(prompt: Tokens, random: Random) -> Tokens:
    text = "ls " + "x" * TURN
    return toy_renderer().answer(text) if random.random() < 0.02 else toy_renderer().call(text)


def _common(left: Tokens, right: Tokens) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


async def collect(replicas: list[Replica], spread: int, rollouts: int = 16) -> None:
    """Half of the predictions are wrong, so that branches are dropped and turns made again."""
    oracles = {str(i): oracle(seeded_answers(str(i))) for i in range(rollouts)}
    random = Random("plan")

    def plan(context: object, breadth: int) -> Forecast:
        return Forecast((Move.WRONG, Move.RIGHT) if random.random() < 0.5 else (Move.WRONG,))

    model = ScriptedWorldModel(lambda c: oracles[c.task_id](c), plan, delay_s=constant(0.1))
    speculation = Speculation(Shared(model), SpeculationSettings(depth=2, breadth=2))
    jobs = [
        Job(
            ScriptedEnvironment(
                str(i), seeded_answers(str(i)), delay_s=lambda _: 2.0, instruction="go " * 100 + str(i)
            ),
            RolloutRules(toy_renderer(), Limits(8, 700, 20_000), str(i)),
        )
        for i in range(rollouts)
    ]
    policy = Replicated(replicas, spread=spread)
    results = await Collector(policy, rollouts, speculation).run(jobs)
    assert policy.busy == sum(replica.elsewhere for replica in replicas)
    assert not any(result.trajectory.stop.is_error for result in results)


@pytest.mark.parametrize("anyio_backend", [(Backend.ASYNCIO, backend_options(Backend.ASYNCIO))])
@pytest.mark.anyio
async def test_h03_turns_branches_and_what_is_made_again_stay_where_their_history_is() -> None:
    replicas = [Replica() for _ in range(4)]
    await collect(replicas, spread=200)
    homes: dict[Tokens, set[int]] = {}
    for number, replica in enumerate(replicas):
        for prompt in replica.prompts:
            if len(prompt) > 600:  # beyond what all rollouts share, and the first turn
                homes.setdefault(prompt[:600], set()).add(number)
    assert len(homes) >= 8
    assert all(len(numbers) == 1 for numbers in homes.values())
    assert sum(r.cached for r in replicas) > 0.8 * sum(r.read for r in replicas)


@pytest.mark.parametrize("anyio_backend", [(Backend.ASYNCIO, backend_options(Backend.ASYNCIO))])
@pytest.mark.anyio
async def test_h03_rollouts_are_spread_over_the_replicas() -> None:
    replicas = [Replica() for _ in range(4)]
    await collect(replicas, spread=8)
    shares = [replica.read / sum(r.read for r in replicas) for replica in replicas]
    assert max(shares) < 0.45
    assert min(shares) > 0.1


@pytest.mark.parametrize("anyio_backend", [(Backend.ASYNCIO, backend_options(Backend.ASYNCIO))])
@pytest.mark.anyio
async def test_h03_an_overloaded_home_is_left() -> None:
    replicas = [Replica() for _ in range(2)]
    policy = Replicated(replicas, spread=8)
    prompt = tuple(range(2000))
    first = await policy.generate(prompt, Sampling(1))
    home = next(replica for replica in replicas if replica.prompts)
    other = next(replica for replica in replicas if replica is not home)
    home.elsewhere = 8
    await policy.generate((*prompt, *first.token_ids, 1), Sampling(1))
    assert len(home.prompts) == 2, "busier, but it has the prefix"
    home.elsewhere = 9
    await policy.generate((*prompt, *first.token_ids, 2), Sampling(1))
    assert len(other.prompts) == 1
    home.elsewhere = 0
    await policy.generate((*prompt, *first.token_ids, 2, 3), Sampling(1))
    assert len(home.prompts) == 3, "both have a beginning, it has less to do"


@pytest.mark.parametrize("anyio_backend", [(Backend.ASYNCIO, backend_options(Backend.ASYNCIO))])
@pytest.mark.anyio
async def test_h03_siblings_follow_a_prompt_that_is_still_being_read() -> None:
    replicas = [Replica() for _ in range(4)]
    policy = Replicated(replicas)
    async with anyio.create_task_group() as tasks:
        for branch in range(4):
            tasks.start_soon(policy.generate, (*range(2000), branch), Sampling(1))
    assert sorted(len(replica.prompts) for replica in replicas) == [0, 0, 0, 4]
    assert policy.busy == 0


@pytest.mark.parametrize("anyio_backend", [(Backend.ASYNCIO, backend_options(Backend.ASYNCIO))])
@pytest.mark.anyio
async def test_h03_an_engine_that_is_down_is_left_alone_until_it_is_back() -> None:
    """It refuses at once for 20 s, so it is never busy; a rollout begins every 50 ms for 40 s."""
    replicas, until_s = [Replica() for _ in range(4)], anyio.current_time() + 20.0

    def refuse(request: object) -> EngineError | None:
        return EngineError("refused") if anyio.current_time() < until_s else None

    down = replicas[0]
    down.inner = ScriptedPolicy(_say, first_s=constant(0.01), fault=refuse)
    policy = Retrying(Replicated(replicas))
    async with anyio.create_task_group() as tasks:
        for rollout in range(800):
            tasks.start_soon(policy.generate, (rollout,) * 2000, Sampling(200))
            await anyio.sleep(0.05)
    assert down.inner.failed < 10
    assert down.inner.finished > 50
    assert policy.retries == down.inner.failed


@pytest.mark.parametrize("anyio_backend", [(Backend.ASYNCIO, backend_options(Backend.ASYNCIO))])
@pytest.mark.anyio
async def test_e04_while_weights_are_published_a_turn_names_the_version_of_its_replica() -> None:
    old, new = Replica("7"), Replica("8")
    policy = Replicated([old, new])
    assert policy.weight_version == "7+8"
    old.inner.weight_version, new.inner.weight_version = "8", "7"
    assert policy.weight_version == "8+7", "not what it was: each replica has other weights now"
    old.inner.weight_version, new.inner.weight_version = "7", "8"
    old.elsewhere = 100
    assert (await policy.generate((1, 2), Sampling(1))).weight_version == "8"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=12), st.integers(0, 3), st.integers(0, 400))
def test_the_longest_beginning_that_was_sent_is_found(sent: list[tuple[int, int]], family: int, length: int) -> None:
    """Families share 100 tokens."""
    homes = PrefixHomes()

    def sequence(family: int, length: int) -> Tokens:
        return (*range(100), *range(1000 * family, 1000 * family + length))

    for replica, (each, size) in enumerate(sent):
        homes.add(sequence(each, size), replica)
    found, held = homes.find(sequence(family, length))
    common = {r: _common(sequence(*each), sequence(family, length)) // BLOCK * BLOCK for r, each in enumerate(sent)}
    best = max(common.values(), default=0)
    assert held == best
    assert found == {replica for replica, tokens in common.items() if best and tokens >= best}


def test_what_was_used_least_recently_is_forgotten_first() -> None:
    homes = PrefixHomes()
    for start in range(KEPT + 10):
        homes.add((start,) * BLOCK, 0)
        homes.find((0,) * BLOCK)
    assert homes.find((5,) * BLOCK) == (frozenset(), 0)
    assert homes.find((KEPT + 5,) * BLOCK) == ({0}, BLOCK)


# Over HTTP ---------------------------------------------------------------------------------------------------------


class Worker:
    """Begins at once and ends when it is told, or never, if it is `silent`."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.names: list[str] = []
        self.go_on = anyio.Event()

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.path == "/v1/models":
            await reply.status(200, '{"data": [{"id": "m"}]}')
            return
        if not request.body.get("stream"):
            await reply.status(200)  # whether it takes priorities: yes
            return
        self.names.append(request.headers["x-request-id"])
        await reply.status(200)
        await reply.events(chunk([5]))
        if self.silent:
            await anyio.sleep_forever()
        await self.go_on.wait()
        await reply.events(chunk([2], reason="stop"))


SAMPLING = Sampling(max_tokens=4, stop_token_ids=(2,))
LONG_PROMPT = tuple(range(2000))


async def until(condition: Any) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - what changes is a count
            await anyio.sleep(0.005)


@pytest.mark.anyio
async def test_d04_a_cancel_reaches_the_worker_that_has_the_request_and_no_other() -> None:
    workers = [Worker(), Worker()]
    async with (
        loopback(workers[0]) as first,
        loopback(workers[1]) as second,
        open_endpoints(f"{first.url}, {second.url}/v1", "m") as policy,
        anyio.create_task_group() as tasks,
    ):
        async with anyio.create_task_group() as branches:
            branches.start_soon(policy.generate, LONG_PROMPT, SAMPLING)
            await until(lambda: first.open + second.open == 1)
            owner, other = (first, second) if first.open else (second, first)
            tasks.start_soon(policy.generate, (7,), SAMPLING)
            await until(lambda: other.open == 1)
            branches.cancel_scope.cancel()
        await until(lambda: owner.open == 0)
        assert owner.hung_up == 1
        assert (other.open, other.hung_up) == (1, 0)
        workers[0].go_on.set()
        workers[1].go_on.set()
    assert policy.busy == 0
    names = [name for worker in workers for name in worker.names]
    assert len(set(names)) == len(names) == 2


@pytest.mark.anyio
async def test_d04_what_may_still_run_is_not_sent_again() -> None:
    """A worker that falls silent in mid-generation is hung up on, and the request is not made beside the old one."""
    worker = Worker(silent=True)
    async with loopback(worker) as server, TokenEndpointPolicy(server.url, "m", timeout_s=0.1) as policy:
        with pytest.raises(EngineError, match="did not answer in time") as caught:
            await Retrying(policy, attempts=3, first_wait_s=0.0).generate((1,), SAMPLING)
        await server.settled()
    assert not caught.value.retryable
    assert len(worker.names) == 1


@pytest.mark.anyio
async def test_d04_every_attempt_has_a_name_of_its_own() -> None:
    names: Counter[str] = Counter()

    async def script(request: Request, reply: Reply) -> None:
        names[request.headers["x-request-id"]] += 1
        await reply.status(503)

    async with loopback(script) as server, TokenEndpointPolicy(server.url, "m") as policy:
        with pytest.raises(EngineError, match="503"):
            await Retrying(policy, attempts=3, first_wait_s=0.0).generate((1,), SAMPLING)
    assert list(names.values()) == [1, 1, 1]


@pytest.mark.anyio
async def test_engines_that_do_not_serve_the_model_are_named() -> None:
    async with loopback(Worker()) as server:
        with pytest.raises(ConfigError, match="serves m, not n"):
            async with open_endpoints(f"{server.url},{server.url}", "n"):
                raise AssertionError("not reached")
