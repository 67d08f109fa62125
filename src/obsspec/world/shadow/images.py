"""Which tasks start from the same image, learnt from what the same commands printed.

Every image id of a rollout (its task, by default) has facts of its own. It joins a family of others when commands that
both ran first printed the same, specific outputs and none contradicted; before there is such evidence, a family that
knows a path which the command names is tried on probation.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from obsspec.world.shadow.facts import Absent, Exists, Fact, StartsIn
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.layout import USUAL

CONFLICT = 2.0  # what one contradiction outweighs
ENOUGH = 1.0  # the score that lets an image id join
REFUSED = -2.0  # a family with this score is not tried again
WEAK = 0.4  # what agrees but might anywhere
MAX_FACTS = 2000  # kept of one image id
COMMON = 3  # an output that so many families have says nothing
_VARYING = re.compile(r"\d+|[A-Z][a-z]{2} ")
_PATH = re.compile(r"/[\w.+-]+(?:/[\w.+-]+)+|/[\w.+-]{3,}")
_USUAL = frozenset(USUAL) | {"/usr", "/dev", "/proc", "/bin", "/lib", "/dev/null", "/bin/bash", "/bin/sh"}


class Link(StrEnum):
    """Where the knowledge of an image id comes from."""

    ALONE = "alone"  # only rollouts of the same id
    PROBATION = "probation"  # also a family that may or may not be the right one
    FAMILY = "family"  # also others that agreed


@dataclass(frozen=True, slots=True)
class Knowledge:
    """`name`: of this state of knowledge. `family`: that it was taken from, -1 if from none."""

    image: Image
    link: Link
    name: str
    family: int


@dataclass(slots=True)
class _Member:
    """One image id. `votes`: by family, what shadow runs on probation told."""

    facts: list[Fact] = field(default_factory=list["Fact"])
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    image: Image = field(default_factory=Image)
    family: int = -1
    votes: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    made_of: tuple[int, int, int] = (-1, -1, -1)  # family and versions that `mixed` was made of
    mixed: Image = field(default_factory=Image)


@dataclass(slots=True)
class _Family:
    image: Image = field(default_factory=Image)
    size: int = 0


class Images:
    """Pure state, shared by all rollouts. Facts and outputs must be those of the untouched image."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._families: list[_Family] = []
        self._printed: dict[str, dict[int, str]] = defaultdict(dict)  # command -> family -> what it printed
        self._starts: dict[str, str] = {}  # image id -> where its shells start

    def know(self, image_id: str, script: str) -> Knowledge:
        """What is known where `script` is to run."""
        member = self._member(image_id)
        if member.family >= 0:
            family = self._families[member.family]
            if family.size > 1:
                name = f"family {member.family}/{family.image.version}"
                return Knowledge(family.image, Link.FAMILY, name, member.family)
        guess = self._guess(member, script)
        if guess < 0:
            return Knowledge(member.image, Link.ALONE, f"{image_id}/{member.image.version}", -1)
        family = self._families[guess]
        made_of = (guess, family.image.version, member.image.version)
        if member.made_of != made_of:
            member.mixed = family.image.copy()
            member.mixed.learn(member.facts)
            member.made_of = made_of
        return Knowledge(member.mixed, Link.PROBATION, f"{image_id}/{made_of}", guess)

    def learn(self, image_id: str, script: str, output: str, facts: Iterable[Fact]) -> None:
        """What the untouched image printed, and the facts in it."""
        self.add(image_id, facts)
        member = self._member(image_id)
        member.outputs[script] = output
        if member.family >= 0:
            self._printed[script][member.family] = output
        self._assign(member)

    def add(self, image_id: str, facts: Iterable[Fact]) -> None:
        """Facts alone, where the output itself was not that of the untouched image."""
        member = self._member(image_id)
        facts = list(facts)
        self._compare(member, facts)
        self._starts.update((image_id, fact.path) for fact in facts if isinstance(fact, StartsIn))
        member.facts += facts[: MAX_FACTS - len(member.facts)]
        member.image.learn(facts)
        if member.family >= 0:
            self._families[member.family].image.learn(facts)

    def vouch(self, image_id: str, knowledge: Knowledge, output: str, right: bool) -> None:
        """A run on what a family knows came out right or wrong, where it should have been right."""
        member = self._member(image_id)
        if knowledge.link is Link.PROBATION and (not right or output.strip()):
            member.votes[knowledge.family] += (1.0 if _specific(output) else WEAK) if right else -1.0
            self._assign(member)

    def _compare(self, member: _Member, facts: Iterable[Fact]) -> None:
        """Facts that a family has too, or that contradict what it knows."""
        if member.family >= 0 and self._families[member.family].size > 1:
            return
        for index, family in enumerate(self._families):
            if family.size and index != member.family:
                votes = sum(_vote(fact, family.image) for fact in facts)
                member.votes[index] += max(REFUSED, min(ENOUGH, votes))

    def _member(self, image_id: str) -> _Member:
        if image_id not in self._members:
            self._members[image_id] = _Member(image=Image(starts_in=self._usual_start()))
        return self._members[image_id]

    def _usual_start(self) -> str:
        """Where the shells of all other images start, as far as they have told."""
        usual = Counter(self._starts.values()).most_common(2)
        return usual[0][0] if len(usual) == 1 and usual[0][1] > 1 else "/"

    def _guess(self, member: _Member, script: str) -> int:
        """The likeliest family that knows a path of the script."""
        named = set(_PATH.findall(script)) - _USUAL
        knowing = [
            index
            for index, family in enumerate(self._families)
            if family.size and index != member.family and any(path in family.image.paths for path in named)
        ]
        scores = self._scores(member)
        knowing = [index for index in knowing if scores.get(index, 0.0) > REFUSED]
        return max(knowing, key=lambda index: (scores.get(index, 0.0), self._families[index].size), default=-1)

    def _assign(self, member: _Member) -> None:
        """Who is alone joins others; who has said enough starts a family, so that others may join."""
        if member.family >= 0 and self._families[member.family].size > 1:
            return
        scores = self._scores(member)
        scores.pop(member.family, None)
        best = max(scores, key=lambda index: scores[index], default=-1)
        if best >= 0 and scores[best] >= ENOUGH and self._families[best].size:
            self._join(member, best)
        elif member.family < 0 and len(member.facts) >= 2:
            self._families.append(_Family(Image(starts_in=member.image.starts_in)))
            self._join(member, len(self._families) - 1)

    def _scores(self, member: _Member) -> dict[int, float]:
        scores: dict[int, float] = defaultdict(float, member.votes)
        for script, output in member.outputs.items():
            printed = self._printed.get(script, {})
            same = [family for family, other in printed.items() if _alike(other, output)]
            for family in printed:
                if family not in same:
                    scores[family] -= CONFLICT
                elif _specific(output) and len(same) < COMMON:
                    scores[family] += 1.0
        return scores

    def _join(self, member: _Member, index: int) -> None:
        if member.family >= 0:
            self._families[member.family].size -= 1
        member.family = index
        family = self._families[index]
        family.size += 1
        family.image.learn(member.facts)
        for script, output in member.outputs.items():
            self._printed[script][index] = output


def _vote(fact: Fact, image: Image) -> float:
    if isinstance(fact, Absent):
        return -1.0 if fact.path in image.paths else 0.0
    if not isinstance(fact, Exists) or fact.path.count("/") < 2 or fact.path not in image.paths:
        return 0.0
    ours, theirs = fact.known, image.paths[fact.path]
    pairs = [
        (ours.size, theirs.size),
        (ours.sums, theirs.sums),
        (ours.content, theirs.content),
        (ours.kind, theirs.kind),
    ]
    known = [one == other for one, other in pairs if one not in (None, ()) and other not in (None, ())]
    if not all(known):
        return -1.0
    return WEAK if len(known) > 1 else WEAK / 4


def _specific(output: str) -> bool:
    """Whether it tells images apart: neither short nor a message alone."""
    return len(output) >= 12 and ("/" in output or output.count("\n") > 2 or len(output) > 60) and ": " not in output


def _alike(first: str, second: str) -> bool:
    return first == second or _VARYING.sub("#", first) == _VARYING.sub("#", second)
