"""What a conversation is made of: its rules, a client that waits, and what runs for one node of its tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from anyio import TaskHandle

from obsspec.integrations.proxy.asked import Asked
from obsspec.integrations.proxy.reply import Reply, ReplyReader
from obsspec.integrations.proxy.stream import Stream
from obsspec.integrations.proxy.wire import Headers
from obsspec.protocols import Continuation
from obsspec.values import Completion, GenerationKey, Observation


class Turns(Continuation, Protocol):
    """The rules of a conversation, with its requests and answers in their terms."""

    @property
    def size(self) -> int:
        """Bytes of the texts, or of the token ids, that are remembered."""
        ...

    def key(self, asked: Asked) -> GenerationKey: ...

    def body(self, key: GenerationKey) -> bytes:
        """The request that this is the key of."""
        ...

    def completed(self, reply: Reply) -> Completion: ...

    def follows(self, completion: Completion, asked: Asked, turns: int) -> bool:
        """Does the request go on from this answer, which came after `turns` units?"""
        ...

    def observed(self, key: GenerationKey, completion: Completion, asked: Asked) -> tuple[Observation, ...] | None:
        """What the tools answered, None if that is not to be seen. `follow` knows the request by these from now on."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """A client that waits for `stream`, which is another one after the request had to be made again.

    `early`: it was under way before the client asked for it. `fixed`: some of it was passed on, so that whatever
    happens to it from now on happens to the client.
    """

    body: bytes
    stream: Stream = field(default_factory=Stream)
    early: bool = False
    fixed: bool = False


@dataclass(slots=True)
class Work:
    """What runs, or ran, for one node."""

    key: GenerationKey
    headers: Headers = field(repr=False)
    speculative: bool  # nobody has asked for it yet
    start_s: float
    stream: Stream = field(default_factory=Stream)
    reader: ReplyReader | None = None
    pumping: TaskHandle[None] | None = None
    predicting: TaskHandle[None] | None = None
    end_s: float | None = None
    lead_s: float = 0.0  # how long before the client asked for it, it was started, or would have been
    error: str = ""  # of the world model
    would_start_s: dict[int, float] = field(default_factory=dict[int, float])  # by candidate, in shadow mode
    held: int = 0  # bytes that count against the limit
