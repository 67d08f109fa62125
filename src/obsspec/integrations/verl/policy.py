# pyright: basic, reportMissingImports=false
"""verl's rollout servers as a policy for the session, and the session as a server client for verl's loop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from obsspec.integrations.verl.client import Call, calling
from obsspec.integrations.verl.requests import Request, RequestSampling, ServerCompletion, Spoken, sampling_of
from obsspec.protocols import OnTokens
from obsspec.values import Completion, EngineError, FinishReason, Priority, Sampling, Tokens

if TYPE_CHECKING:
    from obsspec.speculation.session import Session

BEHIND = 1 << 20  # added to the priority of a speculative request: vLLM serves the lower number first

Read = Callable[[Tokens, Tokens], Awaitable[Spoken]]  # what the loop will make of a completion on a prompt


class ServerPolicy:
    """One rollout's requests. `client` from `ending_at_the_engine`; `priorities`: the servers take them.

    Cancelling ends the request at its server before it returns. A committed call gets verl's output as it is, whatever
    it is; a speculative one that is not sound (aborted, empty, logprobs missing or not finite) is an `EngineError`, so
    that the loop's own call is made instead.
    """

    weight_version = ""  # the servers say it in each output; a worker can not know it before

    def __init__(self, client: Any, read: Read, *, priorities: bool) -> None:
        self._client = client
        self._read = read
        self._priorities = priorities
        self._numbers = count()

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        assert isinstance(sampling, RequestSampling)
        assert sampling.request is not None
        speculative = priority is Priority.SPECULATIVE
        output = await self._request(sampling.request, prompt, speculative)
        if speculative:
            _check(output)
        ids = tuple(output.token_ids)
        if on_tokens is not None:
            on_tokens(len(ids))
        spoken = Spoken() if sampling.media else await self._spoken(prompt, ids)
        return ServerCompletion(
            ids,
            (0.0,) * len(ids),
            FinishReason.STOP,
            str(output.extra_fields.get("global_steps", "")),
            output=output,
            spoken=spoken,
        )

    async def _spoken(self, prompt: Tokens, ids: Tokens) -> Spoken:
        try:
            return await self._read(prompt, ids)
        except Exception:  # noqa: BLE001 - typed: nothing is predicted; what is wrong with the turn is the loop's to meet
            return Spoken()

    async def _request(self, request: Request, prompt: Tokens, speculative: bool) -> Any:
        extra = dict(request.extra)
        call = Call(request.request_id)
        if speculative:
            call.branch_id = f"{request.request_id}-branch{next(self._numbers)}"
            if self._priorities:
                extra["priority"] = extra.get("priority", 0) + BEHIND
        with calling(call):
            return await self._client.generate(
                request_id=request.request_id,
                prompt_ids=list(prompt),
                sampling_params=dict(request.sampling_params),
                **extra,
            )


@dataclass(frozen=True, slots=True)
class SessionClient:
    """What verl's loop has as its `server_manager`: the same calls, the same outputs, sometimes sooner."""

    session: Session

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: dict[str, Any], **extra: Any
    ) -> Any:
        """verl's `TokenOutput`. Errors of the server are raised as they are."""
        request = Request(request_id, MappingProxyType(dict(sampling_params)), MappingProxyType(extra))
        completion = await self.session.policy.generate(tuple(prompt_ids), sampling_of(request))
        assert isinstance(completion, ServerCompletion)
        return completion.output


def _check(output: Any) -> None:
    ids, logprobs = output.token_ids, output.log_probs
    if not ids or output.stop_reason in ("abort", "aborted"):
        raise EngineError(f"the server ended the request with {output.stop_reason!r} after {len(ids)} tokens")
    if logprobs and len(logprobs) != len(ids):
        raise EngineError(f"the server returned {len(logprobs)} logprobs for {len(ids)} tokens")
    if logprobs and not all(map(math.isfinite, logprobs)):
        raise EngineError("the server returned logprobs that are not finite")
