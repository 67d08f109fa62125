"""Which tasks start from the same image, learnt from what the same commands printed.

Every image id of a rollout (its task, by default) has facts of its own. It joins a family of others when commands that
both ran first printed the same, specific outputs and none contradicted; before there is such evidence, a family that
knows a path which the command names is tried on probation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from obsspec.world.shadow.facts import Fact
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.layout import USUAL

CONFLICT = 2.0  # what one contradiction outweighs
COMMON = 3  # an output that so many families have says nothing
_VARYING = re.compile(r"\d+|[A-Z][a-z]{2} ")
_PATH = re.compile(r"/[\w.+-]+(?:/[\w.+-]+)+|/[\w.+-]{3,}")
_USUAL = frozenset(USUAL) | {"/usr", "/dev", "/proc", "/bin", "/lib", "/dev/null", "/bin/bash", "/bin/sh"}


class Link(StrEnum):
    """Where the knowledge of an image id comes from."""

    ALONE = "alone"  # only rollouts of the same id
    PROBATION = "probation"  # also a family that may or may not be the right one
    FAMILY = "family"  # also others that agreed


@dataclass(slots=True)
class _Member:
    facts: list[Fact] = field(default_factory=list["Fact"])
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    image: Image = field(default_factory=Image)
    family: int = -1
    tried: tuple[int, int, int] = (-1, -1, -1)  # family and versions that `mixed` was made of
    mixed: Image = field(default_factory=Image)


class Images:
    """Pure state, shared by all rollouts. Facts and outputs must be those of the untouched image."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._families: list[Image] = []
        self._sizes: list[int] = []
        self._printed: dict[str, dict[int, str]] = defaultdict(dict)  # command -> family -> what it printed

    def know(self, image_id: str, script: str) -> tuple[Image, Link, str]:
        """What is known where `script` is to run, whence, and a name for this state of knowledge."""
        member = self._member(image_id)
        if member.family >= 0:
            family = self._families[member.family]
            link = Link.FAMILY if self._sizes[member.family] > 1 else Link.ALONE
            return family, link, f"family {member.family}/{family.version}"
        guess = self._guess(script)
        if guess < 0:
            return member.image, Link.ALONE, f"{image_id}/{member.image.version}"
        made_of = (guess, self._families[guess].version, member.image.version)
        if member.tried != made_of:
            member.mixed = self._families[guess].copy()
            member.mixed.learn(member.facts)
            member.tried = made_of
        return member.mixed, Link.PROBATION, f"{image_id}/{made_of}"

    def learn(self, image_id: str, script: str, output: str, facts: Iterable[Fact]) -> None:
        member = self._member(image_id)
        self.add(image_id, facts)
        if member.family >= 0:
            self._printed[script][member.family] = output
        else:
            member.outputs[script] = output
            self._assign(member)

    def add(self, image_id: str, facts: Iterable[Fact]) -> None:
        """Facts alone, where the output itself was not that of the untouched image."""
        member = self._member(image_id)
        facts = list(facts)
        if member.family >= 0:
            self._families[member.family].learn(facts)
        else:
            member.facts += facts
            member.image.learn(facts)

    def _member(self, image_id: str) -> _Member:
        return self._members.setdefault(image_id, _Member())

    def _guess(self, script: str) -> int:
        """The newest family that alone knows a path of the script."""
        named = set(_PATH.findall(script)) - _USUAL
        for path in sorted(named, key=len, reverse=True):
            knowing = [index for index, family in enumerate(self._families) if path in family.paths]
            if len(knowing) == 1:
                return knowing[0]
        return -1

    def _assign(self, member: _Member) -> None:
        scores = self._scores(member)
        if scores:
            best = max(scores, key=lambda index: scores[index])
            if scores[best] > 0:
                self._join(member, best)
                return
        if len(member.outputs) >= 2 and any(map(_specific, member.outputs.values())):
            self._families.append(Image())
            self._sizes.append(0)
            self._join(member, len(self._families) - 1)

    def _scores(self, member: _Member) -> dict[int, float]:
        scores: dict[int, float] = defaultdict(float)
        for script, output in member.outputs.items():
            printed = self._printed.get(script, {})
            same = [family for family, other in printed.items() if _alike(other, output)]
            for family in printed:
                if family not in same:
                    scores[family] -= CONFLICT
                elif _specific(output) and len(same) < COMMON:
                    scores[family] += 1.0
        return scores

    def _join(self, member: _Member, family: int) -> None:
        member.family = family
        self._sizes[family] += 1
        self._families[family].learn(member.facts)
        for script, output in member.outputs.items():
            self._printed[script][family] = output
        member.facts.clear()


def _specific(output: str) -> bool:
    """Whether it tells images apart: neither short nor a message alone."""
    return len(output) >= 12 and ("/" in output or output.count("\n") > 2 or len(output) > 60) and ": " not in output


def _alike(first: str, second: str) -> bool:
    return first == second or _VARYING.sub("#", first) == _VARYING.sub("#", second)
