"""How the fields of a request change from turn to turn: not at all, most often, or with the length of the prompt.

Trainers say where the new part of a prompt begins, or how much room is left. Such numbers are learnt like everything
else; fields that change in another way are never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from obsspec.integrations.proxy.habits import Learner
from obsspec.integrations.proxy.templates import COUNTS
from obsspec.integrations.proxy.wire import canonical


@dataclass(frozen=True, slots=True)
class Step:
    """From an answered request to the next one, in units: `answered` of the old prompt and its answer, `prompt` of the
    new one."""

    answered: int
    prompt: int


@dataclass(slots=True)
class _Seen:
    same: bool | None = None  # the latest step changed nothing; None: none was seen
    said: bool = True  # nor did the headers
    changes: Learner = field(default_factory=lambda: Learner(forgives=False))

    def learn(self, before: str, after: str, step: Step) -> None:
        (old, _, old_said), (new, _, new_said) = before.partition("\n"), after.partition("\n")
        self.same, self.said = old == new, old_said == new_said
        if not self.same:
            self.changes.add(_source(old, step), json.loads(new))


class FieldHabits:
    """Of one client. `own()` is for one of its conversations."""

    def __init__(self) -> None:
        self._all = _Seen()

    def own(self) -> OwnFields:
        return OwnFields(self._all)


class OwnFields:
    def __init__(self, client: _Seen) -> None:
        self._client = client
        self._own = _Seen()

    def learn(self, before: str, after: str, step: Step) -> None:
        """`before`, `after`: everything beside the prompt, as in `Asked.rest`."""
        self._own.learn(before, after, step)
        self._client.learn(before, after, step)

    @property
    def steady(self) -> bool:
        """Whether the next fields can be expected at all."""
        seen = self._seen
        return seen.said and (seen.same is not False or self._changes.template is not None)

    def expect(self, before: str, step: Step) -> str:
        """Raises `LookupError`."""
        if self._seen.same is not False:
            return before
        fields, _, said = before.partition("\n")
        return f"{canonical(self._changes.fill(_source(fields, step)))}\n{said}"

    @property
    def _seen(self) -> _Seen:
        return self._own if self._own.same is not None else self._client

    @property
    def _changes(self) -> Learner:
        return self._own.changes if self._own.changes.knows else self._client.changes


def _source(fields: str, step: Step) -> Mapping[str, Any]:
    return {**json.loads(fields), COUNTS: {"answered": step.answered, "prompt": step.prompt}}
