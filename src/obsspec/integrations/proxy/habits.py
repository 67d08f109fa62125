"""How a client goes on after an answer, learnt from what it sent: how it repeats the answer, how it shows results.

Nothing is assumed of any client. Before the first turn that was seen to the end, nothing is expected, so nothing is
started. A template that no longer explains what is sent is found anew from the latest pairs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from obsspec.integrations.proxy.templates import Pair, Template, explain, explains
from obsspec.integrations.proxy.wire import canonical

_PAIRS = 6  # the latest ones that a template has to explain


@dataclass(slots=True)
class Learner:
    """One template and the pairs it was found from. `forgives`: where pairs contradict each other the latest is right;
    otherwise there is no template then."""

    template: Template | None = None
    forgives: bool = True
    _pairs: deque[Pair] = field(default_factory=lambda: deque[Pair](maxlen=_PAIRS))

    def add(self, source: Mapping[str, Any], target: Any, other: Learner | None = None) -> None:
        """The template of `other`, which has seen more, is taken if it explains all that was seen here."""
        pair = (source, target)
        self._pairs.append(pair)
        if other is not None and other.template is not None:
            unknown = [pair] if self.template is other.template else self._pairs
            if all(explains(other.template, each) for each in unknown):
                self.template = other.template
                return
        if self.template is not None and explains(self.template, pair):
            return
        self.template = explain(self._pairs) or (explain([pair]) if self.forgives else None)

    @property
    def knows(self) -> bool:
        """It was found from more than one pair, which may be explained in many ways."""
        return self.template is not None and len(self._pairs) > 1

    def fill(self, source: Mapping[str, Any]) -> Any:
        """Raises `LookupError` if nothing is known, or this is not of the kind that is."""
        if self.template is None:
            raise LookupError("nothing was learnt yet")
        try:
            return self.template.fill(source)
        except (ValueError, TypeError, AttributeError) as error:
            raise LookupError(str(error)) from error


@dataclass(slots=True)
class Habits:
    """Of one client, or of one conversation of it. Bounded."""

    echo: Learner = field(default_factory=Learner)
    result: Learner = field(default_factory=Learner)
    tail: tuple[str, ...] | None = None  # messages that follow the results

    def learn(
        self,
        message: Mapping[str, Any],
        calls: Sequence[Mapping[str, Any]],
        sent: Sequence[dict[str, Any]],
        other: Habits | None = None,
    ) -> None:
        """`sent`: the messages that followed the answer `message`, its repetition first. `other`: see `Learner.add`."""
        self.echo.add(message, sent[0], other.echo if other else None)
        if not calls:
            return
        results = sent[1 : 1 + len(calls)]
        texts = [text_of(each) for each in results]
        if len(results) < len(calls) or None in texts:
            return
        for call, text, result in zip(calls, texts, results, strict=True):
            self.result.add(result_source(call, text or ""), result, other.result if other else None)
        self.tail = tuple(canonical(each) for each in sent[1 + len(calls) :])

    def agrees(self, other: Habits) -> bool:
        """Whether the habits of `other`, learnt before these from the same, explain all that was seen here."""
        same = self.echo.template is other.echo.template and self.result.template is other.result.template
        return same and self.tail == other.tail

    def expect(self, calls: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> tuple[str, ...]:
        """The messages after the repeated answer, as they would be sent. Raises `LookupError`."""
        if self.tail is None:
            raise LookupError("no result was seen yet")
        results = [self.result.fill(result_source(call, text)) for call, text in zip(calls, texts, strict=True)]
        return (*(canonical(each) for each in results), *self.tail)


def result_source(call: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What the message of a result may be made of."""
    function = call.get("function")
    name = cast("Mapping[str, Any]", function).get("name") if isinstance(function, Mapping) else None
    return {"content": text, "tool_call_id": call.get("id"), "name": name, "call": call}


def text_of(message: Mapping[str, Any]) -> str | None:
    """The text of a message; None if it has none, or not only that."""
    content: Any = message.get("content")
    if isinstance(content, list) and len(cast("list[Any]", content)) == 1:
        (part,) = cast("list[Any]", content)
        content = cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else None
    return content if isinstance(content, str) else None
