"""What is known of one image: the facts of all outputs that were seen of it, the newest where they disagree."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from obsspec.world.shadow.facts import Absent, Complete, Exists, Fact, Kind, Known, NoProgram, Ordered, StartsIn
from obsspec.world.shadow.order import merge_order, sequences

MAX_PATHS = 1500
# of the machine, not of the image: neither laid down nor told from its outputs
MACHINE = ("/usr", "/proc", "/sys", "/dev", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")


@dataclass(slots=True)
class Image:
    """`version` changes with what is to be laid down. `absent_programs`: names that the shell did not find."""

    paths: dict[str, Known] = field(default_factory=dict[str, Known])
    absent: set[str] = field(default_factory=set[str])
    complete: set[Complete] = field(default_factory=set[Complete])
    order: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    absent_programs: set[str] = field(default_factory=set[str])
    starts_in: str = "/"
    version: int = 0

    def learn(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if self._take(fact):
                self.version += 1

    def copy(self) -> Image:
        order = {directory: list(names) for directory, names in self.order.items()}
        return Image(
            dict(self.paths),
            set(self.absent),
            set(self.complete),
            order,
            set(self.absent_programs),
            self.starts_in,
            self.version,
        )

    def shown(self, directory: str) -> tuple[frozenset[Kind], bool]:
        """Of which kinds all entries of a directory are known, and whether hidden ones are among them."""
        kinds, hidden = frozenset[Kind](), False
        for fact in self.complete:
            if fact.path == directory or (fact.below and directory.startswith(fact.path.rstrip("/") + "/")):
                kinds |= fact.kinds
                hidden = hidden or fact.hidden
        return kinds, hidden

    def _take(self, fact: Fact) -> bool:
        match fact:
            case Exists():
                return self._exists(fact)
            case Absent():
                return self._absent(fact.path)
            case Complete():
                new = fact not in self.complete
                self.complete.add(fact)
                return new
            case Ordered():
                new = [merge_order(self.order.setdefault(d, []), names) for d, names in sequences(fact.paths)]
                return any(new)
            case NoProgram():
                self.absent_programs.add(fact.name)
                return False
            case StartsIn():
                self.starts_in = fact.path
                return False

    def _exists(self, fact: Exists) -> bool:
        path = fact.path
        if of_machine(path) or (path not in self.paths and len(self.paths) >= MAX_PATHS):
            return False
        self.absent.discard(path)
        old = self.paths.get(path)
        self.paths[path] = merged(old, fact.known)
        for parent in parents(path):
            if parent not in self.paths:
                self.paths[parent] = Known(Kind.DIRECTORY)
        return old != self.paths[path]

    def _absent(self, path: str) -> bool:
        new = path in self.paths
        self.absent.add(path)
        for known in [known for known in self.paths if known == path or known.startswith(path + "/")]:
            del self.paths[known]
        return new


def of_machine(path: str) -> bool:
    return any(path == top or path.startswith(top + "/") for top in MACHINE)


def parents(path: str) -> Iterable[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def merged(old: Known | None, new: Known) -> Known:
    """The newer value of each field that it has."""
    if old is None:
        return new
    if new.kind is not None and old.kind is not None and new.kind is not old.kind:
        return new
    if new.size is not None and old.size is not None and new.size != old.size:
        old = Known(old.kind, mode=old.mode)  # it has changed: nothing said of its content holds
    values = {each.name: getattr(new, each.name) for each in fields(Known)}
    kept = {name: getattr(old, name) if value in (None, "", ()) else value for name, value in values.items()}
    kept["counts"] = tuple({**dict(old.counts), **dict(new.counts)}.items())
    kept["sums"] = tuple({**dict(old.sums), **dict(new.sums)}.items())
    return Known(**kept)
