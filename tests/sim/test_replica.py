"""One simulated engine: exact alone, fair in company, and never idle while there is work."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from obsspec.sim.replica import Replica, Request, Room, Stage
from obsspec.sim.roofline import StepCost
from obsspec.values import Priority
from tests.sim.conftest import in_virtual_time

COST = StepCost(weights_s=0.003, kv_token_s=1e-7, token_s=1e-5, overhead_s=0.001, sequence_s=1e-4)
LINEAR = StepCost(sequence_s=0.01)  # n sequences share a fixed number of tokens a second
FLAT = StepCost(overhead_s=0.01)  # company costs nothing


@dataclass
class Log:
    ends: dict[str, float] = field(default_factory=dict[str, float])
    requests: dict[str, Request] = field(default_factory=dict[str, Request])

    def submit(
        self, replica: Replica, name: str, tokens: int, prompt: int = 1, priority: Priority = Priority.COMMITTED
    ) -> Request:
        def finished() -> None:
            self.ends[name] = anyio.current_time()

        request = self.requests[name] = Request(tokens, prompt, prompt, priority, finished)
        replica.submit(request)
        return request


def test_a_lone_request_takes_exactly_its_roofline() -> None:
    log = Log()

    async def run() -> Replica:
        replica = Replica(COST, Room(chunk=512))
        await anyio.sleep(3.0)
        log.submit(replica, "a", tokens=300, prompt=1200)
        await anyio.sleep(100)
        return replica

    replica = in_virtual_time(run)
    prefill = 2 * COST.step(0, 0.0, 512) + COST.step(0, 0.0, 1200 - 1024)
    assert log.requests["a"].first_s == pytest.approx(3.0 + prefill)
    assert log.ends["a"] == pytest.approx(3.0 + prefill + COST.seconds(1, 1201, 299), rel=1e-9)
    assert replica.busy_s == pytest.approx(log.ends["a"] - 3.0)
    assert (replica.load, replica.tokens, replica.prefilled) == (0, 300, 1200)


def test_work_is_conserved_whatever_the_order_of_arrivals() -> None:
    """Sequences that share a fixed rate are done when all their tokens are, and the engine never waits."""

    def total(gaps: list[float]) -> tuple[float, Replica]:
        log = Log()

        async def run() -> Replica:
            replica = Replica(LINEAR, Room())
            for number, gap in enumerate(gaps):
                await anyio.sleep(gap)
                log.submit(replica, str(number), tokens=20 + 10 * number)
            await anyio.sleep(1000)
            return replica

        replica = in_virtual_time(run)
        assert len(log.ends) == len(gaps)
        return max(log.ends.values()), replica

    for gaps in ([0.0] * 6, [0.0, 0.3, 0.0, 1.0, 0.2, 0.4], [0.0, 0.05, 0.05, 0.05, 0.05, 0.05]):
        end, replica = total(gaps)
        decoded = sum(20 + 10 * number - 1 for number in range(6))  # the first of each comes with its prompt
        assert replica.tokens == sum(20 + 10 * number for number in range(6))
        assert replica.busy_s == pytest.approx(
            decoded * 0.01, abs=0.1
        )  # an end in the middle of a prefill waits for it
        if max(gaps) < 0.2:  # the first is still there when the next comes
            assert end == pytest.approx(replica.busy_s, abs=1e-6)


def test_equal_requests_end_together_and_slow_each_other() -> None:
    log = Log()

    async def run() -> None:
        replica = Replica(LINEAR, Room())
        for name in "abcd":
            log.submit(replica, name, tokens=101)
        await anyio.sleep(100)

    in_virtual_time(run)
    assert max(log.ends.values()) - min(log.ends.values()) < 0.1
    assert log.ends["a"] == pytest.approx(4 * 100 * 0.01, abs=0.1)


def test_cancel_frees_capacity_at_once_and_counts_tokens() -> None:
    log = Log()

    async def run() -> None:
        replica = Replica(LINEAR, Room())
        log.submit(replica, "kept", tokens=101)
        dropped = log.submit(replica, "dropped", tokens=1000)
        await anyio.sleep(1.0)
        replica.drop(dropped)
        replica.drop(dropped)  # nothing happens twice
        assert replica.load == 1
        await anyio.sleep(100)

    in_virtual_time(run)
    assert log.requests["dropped"].stage is Stage.DROPPED
    assert log.requests["dropped"].given == pytest.approx(51, abs=2)  # one second at half of 100 tokens a second
    assert "dropped" not in log.ends
    assert log.ends["kept"] == pytest.approx(1.0 + (100 - 50) * 0.01, abs=0.03)


def test_a_cancelled_request_that_waits_or_is_prefilled_leaves_nothing() -> None:
    log = Log()

    async def run() -> None:
        replica = Replica(FLAT, Room(slots=1, chunk=10))
        first = log.submit(replica, "first", tokens=50, prompt=100)
        waits = log.submit(replica, "waits", tokens=50)
        log.submit(replica, "last", tokens=50)
        await anyio.sleep(0.035)  # in the middle of ten chunks
        replica.drop(first)
        replica.drop(waits)
        await anyio.sleep(10)
        assert replica.load == 0

    in_virtual_time(run)
    assert (log.requests["first"].given, log.requests["waits"].given) == (0, 0)
    assert log.ends == {"last": pytest.approx(0.04 + 0.5, abs=0.011)}


def test_waiting_requests_start_by_priority_then_by_age() -> None:
    log = Log()

    async def run() -> None:
        replica = Replica(FLAT, Room(slots=1))
        log.submit(replica, "running", tokens=100)
        log.submit(replica, "guess 1", tokens=10, priority=Priority.SPECULATIVE)
        log.submit(replica, "guess 2", tokens=10, priority=Priority.SPECULATIVE)
        log.submit(replica, "committed 1", tokens=10)
        log.submit(replica, "committed 2", tokens=10)
        await anyio.sleep(100)

    in_virtual_time(run)
    assert sorted(log.ends, key=lambda name: log.ends[name]) == [
        "running",
        "committed 1",
        "committed 2",
        "guess 1",
        "guess 2",
    ]


def test_context_that_does_not_fit_waits_but_one_request_always_runs() -> None:
    log = Log()

    async def run() -> None:
        replica = Replica(FLAT, Room(kv_tokens=250))
        log.submit(replica, "huge", tokens=100, prompt=500)
        log.submit(replica, "small", tokens=10)
        await anyio.sleep(100)

    in_virtual_time(run)
    assert log.ends["small"] > log.ends["huge"]


def test_a_long_prompt_holds_the_others_up() -> None:
    def end_of_a(prompt: int) -> float:
        log = Log()

        async def run() -> None:
            replica = Replica(COST, Room(chunk=1000))
            log.submit(replica, "a", tokens=200)
            await anyio.sleep(0.2)
            log.submit(replica, "b", tokens=1, prompt=prompt)
            await anyio.sleep(100)

        in_virtual_time(run)
        return log.ends["a"]

    chunks = 10
    held = end_of_a(1000 * chunks) - end_of_a(1)
    plain = COST.step(1, 100.0)
    assert held == pytest.approx(chunks * (COST.step(1, 100.0, 1000) - plain), rel=0.05)
