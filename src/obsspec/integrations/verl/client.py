# pyright: basic, reportMissingImports=false
"""verl's server client, such that cancelling a call ends it at the engine and the balancer's counts stay true.

A client reaches servers only through its balancer. So it is the balancer's handle that is exchanged, and any client
class of verl, or of a recipe, keeps its own way of making requests: resumption, media, tracing.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
import ray

GRACE_S = 10.0  # a server that has not ended a cancelled request by then is not waited for


@dataclass(slots=True)
class Call:
    """The call that the current task makes. `branch_id`: what a speculative one is called, where names must differ."""

    request_id: str
    branch_id: str = ""
    unended: Any = None  # the request's reference, if its server did not end it when told to

    @property
    def routing_id(self) -> str:
        return self.branch_id or self.request_id


_CALL: ContextVar[Call] = ContextVar("obsspec_verl_call")


@contextmanager
def calling(call: Call) -> Generator[None, None, None]:
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


def ending_at_the_engine(client: Any) -> Any:
    """The same client, for calls inside `calling`.

    Cancelled: the request is cancelled at its server with `ray.cancel`, and the call returns when it has ended there,
    or after `GRACE_S`. The balancer counts a request until it has ended.
    """
    changed = copy.copy(client)
    changed._load_balancer = _Balancer(client._load_balancer)
    changed._lb_require_acquire_fields = None  # asked again, so that the stand-in knows the answer
    return changed


class _Balancer:
    """Stands for the balancer's actor handle; methods that are not about requests are the handle's own.

    A speculative call goes by the name of its rollout, which is what makes its requests stay on one replica. Where the
    balancer asks for names when a request ends, it keeps books by them: there each speculative call has its own.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._keeps_books = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    @property
    def acquire_server(self) -> _Remote:
        return _Remote(self._acquire)

    @property
    def release_server(self) -> _Remote:
        return _Remote(self._release)

    @property
    def require_release_fields(self) -> _Remote:
        return _Remote(self._release_fields)

    async def _release_fields(self) -> Any:
        fields = await self._handle.require_release_fields.remote()
        self._keeps_books = "request_id" in fields
        return fields

    async def _acquire(self, *, request_id: str, **fields: Any) -> tuple[str, _Server]:
        name = _CALL.get().routing_id if self._keeps_books else request_id
        ref = self._handle.acquire_server.remote(request_id=name, **fields)
        try:
            server_id, server = await ref
        except anyio.get_cancelled_exc_class():
            books = {"request_id": name} if self._keeps_books else {}
            _then(ref, lambda taken: taken and self._give_back(taken[0], books))  # it is counted, or will be
            raise
        return server_id, _Server(server)

    def _release(self, *, server_id: str, **fields: Any) -> None:
        call = _CALL.get()
        if "request_id" in fields:
            fields["request_id"] = call.routing_id
        if call.unended is None:
            self._give_back(server_id, fields)
        else:
            _then(call.unended, lambda _: self._give_back(server_id, fields))

    def _give_back(self, server_id: str, fields: dict[str, Any]) -> None:
        self._handle.release_server.remote(server_id=server_id, **fields)


class _Remote:
    """A method that is called as those of actor handles are."""

    def __init__(self, method: Any) -> None:
        self.remote = method


class _Server:
    """Stands for a server's actor handle, of which clients use `generate`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.generate = _Remote(self._generate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    async def _generate(self, **request: Any) -> Any:
        call = _CALL.get()
        if call.branch_id and request["request_id"] == call.request_id:  # verl lets the engine see the rollout's name
            request["request_id"] = call.branch_id
        ref = self._handle.generate.remote(**request)
        try:
            return await ref
        except anyio.get_cancelled_exc_class():
            ray.cancel(ref)
            with anyio.move_on_after(GRACE_S, shield=True) as waiting:
                await _ended(ref)
            call.unended = ref if waiting.cancelled_caught else None
            raise


async def _ended(ref: Any) -> None:
    """Returns when the request has ended at its server, in whatever way."""
    try:
        await ref
    except ray.exceptions.RayError:
        return


def _then(ref: Any, action: Callable[[Any], object]) -> None:
    """Calls `action` on this event loop when the result is there; with None if there is an error instead."""

    def done(future: asyncio.Future[Any]) -> None:
        action(None if future.cancelled() or future.exception() is not None else future.result())

    asyncio.wrap_future(ref.future()).add_done_callback(done)
