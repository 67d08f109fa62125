"""What the session sees of a call to a verl server, and of its answer: nothing that verl gave or gets is changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from obsspec.values import Completion, Sampling, Turn

Message = dict[str, Any]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the loop made it. `extra`: everything but prompt and sampling parameters."""

    request_id: str
    sampling_params: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    extra: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def has_media(self) -> bool:
        """It carries more than text, so that the prompt ids alone do not say what the model sees."""
        return any(value is not None and key in _MEDIA for key, value in self.extra.items())


_MEDIA = frozenset({"image_data", "video_data", "audio_data", "mm_processor_output"})


@dataclass(frozen=True, slots=True)
class RequestSampling(Sampling):
    """Every sampling field of a request, as one canonical text; verl's dicts may hold any.

    Two requests are equal if this text is: the request itself, which says where to send it, is not compared. Requests
    with media are equal to nothing but themselves.
    """

    parameters: str = ""
    media: int = 0
    request: Request | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A completion as the loop reads it. No calls in `turn`: the loop ends here, or nothing is worth predicting.

    `message`: the assistant message that the loop will append; `call_ids`: for each call verl's id of it, or None.
    """

    turn: Turn = field(default_factory=Turn)
    message: Message = field(default_factory=dict[str, Any])
    call_ids: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerCompletion(Completion):
    """`output` is verl's own `TokenOutput`: what the loop gets. The logprobs of the base class are zeros; the real
    ones are in there."""

    output: Any = field(default=None, compare=False)
    spoken: Spoken = field(default_factory=Spoken, compare=False)


def sampling_of(request: Request) -> RequestSampling:
    parameters = json.dumps(dict(request.sampling_params), sort_keys=True, default=repr)
    return RequestSampling(
        max_tokens=sys.maxsize,  # the server's own limit is in `parameters`, or a function of the prompt
        parameters=parameters,
        media=id(request) if request.has_media else 0,
        request=request,
    )
