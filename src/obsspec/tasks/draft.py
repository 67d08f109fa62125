"""What a family writes (a draft) and what it draws from (seeded choices, names that never repeat in a task)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import Check
from obsspec.tasks.task import Difficulty, Step
from obsspec.tasks.words import DIRECTORIES, STEMS, WORDS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draft:
    """One part of a task, before it gets an identity and its "nothing else changed" check."""

    instruction: str
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]
    files: tuple[FileSpec, ...] = ()
    directories: tuple[str, ...] = ()
    answer: str | None = None


@dataclass(slots=True)
class Draw:
    """Seeded choices for one task. Names drawn from it are unique within the task."""

    rng: Random
    difficulty: Difficulty
    taken: set[str] = field(default_factory=set[str])

    def pick(self, *options: T) -> T:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def words(self, count: int, source: Sequence[str] = WORDS) -> list[str]:
        return self.rng.sample(source, count)

    def file(self, extension: str = "txt", *stems: str) -> str:
        return self._unique(stems or STEMS, f".{extension}")

    def directory(self) -> str:
        return self._unique(DIRECTORIES, "")

    def count(self) -> int:
        """How many lines an input file gets."""
        low, high = {Difficulty.EASY: (3, 5), Difficulty.MEDIUM: (4, 7), Difficulty.HARD: (5, 9)}[self.difficulty]
        return self.number(low, high)

    def _unique(self, stems: Sequence[str], suffix: str) -> str:
        free = [stem for stem in stems if stem not in self.taken]
        # Free words stand in when a small list of stems runs out.
        stem = self.rng.choice(free or [word for word in WORDS if word not in self.taken])
        self.taken.add(stem)
        return stem + suffix


Kind = Callable[[Draw], Draft]


def text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def listing(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def told(draw: Draw, path: str, lines: Sequence[str]) -> str:
    """Sometimes a sentence that gives away what a file holds, with a leading space; else nothing."""
    if not draw.chance(0.5):
        return ""
    if any(" " in line or "," in line for line in lines):
        return f" {path} holds: {'; '.join(lines)}."
    many = "line" if len(lines) == 1 else "lines"
    return draw.pick(f" {path} has the {many} {listing(lines)}.", f" {path} holds the {many} {listing(lines)}.")


def one(*commands: str) -> tuple[tuple[str, ...], ...]:
    """Alternatives of one command each."""
    return tuple((command,) for command in commands)


def write_lines(path: str, lines: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The two ways in which scripted agents write a file of several lines."""
    body = "\n".join(lines)
    escaped = body.replace("\n", "\\n")
    return one(f"printf '{escaped}\\n' > {path}", f"cat > {path} <<'EOF'\n{body}\nEOF")


def misnamed(path: str) -> str:
    """The path without its extension: a file that does not exist."""
    return path.rsplit(".", 1)[0]
