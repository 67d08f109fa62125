"""A scripted policy: an engine without a model, honest about what a policy engine promises."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random

import anyio

from obsspec.protocols import OnTokens
from obsspec.testing.delays import Delay, constant
from obsspec.testing.scripts import Script
from obsspec.values import Completion, FinishReason, Priority, Sampling, Timing, Tokens


@dataclass(frozen=True, slots=True)
class Request:
    """One call at the engine. `number` counts the calls from 0."""

    number: int
    prompt: Tokens
    sampling: Sampling
    priority: Priority
    weight_version: str


Fault = Callable[[Request], Exception | None]
Spoil = Callable[[Request, Completion], Completion]


class ScriptedPolicy:
    """What it samples is a function of (prompt, sampling, weight version) alone; when, of its delays alone.

    `first_s` passes before the first token and `token_s` before each further one; `on_tokens` is told every `chunk`
    tokens. `fault` sees every request when it is sent and may name an error, raised after the first delay; `spoil` may
    bend a result into what broken engines return. `ignores_cancel`: the client's call ends at once, but the engine goes
    on to the end of the generation, counted in `orphans`. Requests are pinned to `weight_version` when they are sent.
    """

    def __init__(
        self,
        script: Script,
        *,
        first_s: Delay | None = None,
        token_s: Delay | None = None,
        chunk: int = 1,
        fault: Fault | None = None,
        spoil: Spoil | None = None,
        ignores_cancel: bool = False,
        weight_version: str = "0",
    ) -> None:
        self._script = script
        self._first_s = first_s or constant(0.0)
        self._token_s = token_s or constant(0.0)
        self._chunk = chunk
        self._fault = fault
        self._spoil = spoil
        self._ignores_cancel = ignores_cancel
        self._orphans_until: list[float] = []
        self.weight_version = weight_version
        self.open: dict[int, Request] = {}
        self.started = self.finished = self.failed = self.cancelled = 0
        self.tokens = 0  # sampled, kept or not

    @property
    def orphans(self) -> int:
        """Cancelled requests that the engine is still working on."""
        now = anyio.current_time()
        return sum(until > now for until in self._orphans_until)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        request = Request(self.started, prompt, sampling, priority, self.weight_version)
        self.started += 1
        self.open[request.number] = request
        try:
            completion = await self._run(request, on_tokens)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        except Exception:
            self.failed += 1
            raise
        finally:
            del self.open[request.number]
        self.finished += 1
        return completion

    async def _run(self, request: Request, on_tokens: OnTokens | None) -> Completion:
        sent = anyio.current_time()
        error = self._fault(request) if self._fault else None
        completion = sample(self._script, request)
        steps = self._steps(len(completion.token_ids))
        first = sent
        for number, (_, tokens) in enumerate(steps):
            await self._wait(steps, number)
            if number == 0:
                first = anyio.current_time()
                if error is not None:
                    raise error
            self.tokens += tokens - (steps[number - 1][1] if number else 0)
            if on_tokens is not None and tokens:
                on_tokens(tokens)
        completion = replace(completion, timing=Timing(sent, first, anyio.current_time()))
        return self._spoil(request, completion) if self._spoil else completion

    def _steps(self, length: int) -> list[tuple[float, int]]:
        """(seconds to wait, tokens sampled afterwards) until all tokens are there."""
        first = min(1, length)
        steps = [(self._first_s(), first)]
        for tokens in range(first, length, self._chunk):
            after = min(length, tokens + self._chunk)
            steps.append((self._token_s() * (after - tokens), after))
        return steps

    async def _wait(self, steps: list[tuple[float, int]], number: int) -> None:
        began = anyio.current_time()
        try:
            await anyio.sleep(steps[number][0])
        except anyio.get_cancelled_exc_class():
            if self._ignores_cancel:
                self._orphans_until.append(began + sum(seconds for seconds, _ in steps[number:]))
            raise


def sample(script: Script, request: Request) -> Completion:
    """The completion of a request: pure."""
    random = Random(_draw(request))
    intended = script(request.prompt, random)
    stops = [i for i, token in enumerate(intended) if token in request.sampling.stop_token_ids]
    ids = intended[: stops[0] + 1] if stops else intended
    stopped = len(ids) <= request.sampling.max_tokens and (bool(stops) or not ids)
    ids = ids[: request.sampling.max_tokens]
    logprobs = tuple(-random.expovariate(2.0) for _ in ids)
    reason = FinishReason.STOP if stopped else FinishReason.LENGTH
    return Completion(ids, logprobs, reason, request.weight_version)


def _draw(request: Request) -> int:
    """The noise of a request: what is sampled does not depend on how many tokens are allowed, as in a real engine."""
    sampling = request.sampling
    seed = sampling.seed if sampling.temperature > 0 else 0
    digest = blake2b(array("q", request.prompt).tobytes(), digest_size=8)
    digest.update(f"{seed}/{sampling.temperature}/{sampling.top_p}/{sampling.model}/{request.weight_version}".encode())
    return int.from_bytes(digest.digest(), "big")
