"""What one output says about the files of an image: data only. All paths are absolute and normalised."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one path; None and empty mean not known.

    `counts`: of `wc`, by its option letter (l, w, m, c, L). `sums`: hexadecimal digest by program (`md5sum`, ...).
    `time`: as `ls -l` wrote it. `target`: of a link.
    """

    kind: Kind | None = None
    size: int | None = None
    mode: int | None = None
    time: str = ""
    target: str | None = None
    content: bytes | None = None
    counts: tuple[tuple[str, int], ...] = ()
    sums: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Exists:
    path: str
    known: Known = field(default_factory=Known)


@dataclass(frozen=True, slots=True)
class Absent:
    path: str


@dataclass(frozen=True, slots=True)
class Complete:
    """All entries of a directory of these kinds were shown. `below`: those of its subdirectories too."""

    path: str
    kinds: frozenset[Kind]
    hidden: bool
    below: bool


@dataclass(frozen=True, slots=True)
class Ordered:
    """Paths in the order in which the file system gives them."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoProgram:
    name: str


@dataclass(frozen=True, slots=True)
class StartsIn:
    """The directory that commands start in."""

    path: str


Fact = Exists | Absent | Complete | Ordered | NoProgram | StartsIn
