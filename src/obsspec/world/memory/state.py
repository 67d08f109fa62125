"""The state of a rollout as far as its calls determine it, and the part of it that one call can see.

Each resource that was written has a version: a digest of the call that wrote it and of everything that call could see.
So two rollouts that did the same to a file agree on its version, whatever else they did, and in whatever order. A call
that may have changed anything starts a new epoch: all versions become new, and depend on all that was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from obsspec.world.memory.digests import digest
from obsspec.world.memory.touched import Touched
from obsspec.world.shell.paths import overlap


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """`late`: for a resource, what else is read when it is read (a function's globals). `calls`: per tool."""

    epoch: bytes = b""
    whole: bytes = b""
    versions: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    late: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    calls: Mapping[str, int] = field(default_factory=dict[str, int])

    def seen_by(self, touch: Touched) -> bytes:
        """The digest of what a call can see of this state. The starting state is `b""` for every call."""
        if touch.reads is None:
            return self.whole
        if not self.versions:
            return self.epoch
        reads = self._closed(touch.reads)
        seen = [path for path in self.versions if _meets(path, reads)]
        if not seen:
            return self.epoch
        return digest(self.epoch, *(part for path in sorted(seen) for part in (path, self.versions[path])))

    def after(self, tool: str, text: str, touch: Touched) -> State:
        calls = {**self.calls, tool: self.calls.get(tool, 0) + 1}
        if touch.writes is not None and not touch.writes:
            return State(self.epoch, self.whole, self.versions, self.late, calls)
        whole = digest(self.whole, tool, text)
        if touch.writes is None:
            return State(digest(self.whole, self.seen_by(touch), tool, text), whole, {}, {}, calls)
        cause = digest(tool, text, self.seen_by(touch))
        versions = dict(self.versions)
        for path in touch.writes:
            # what is assigned no longer depends on what it was; a file may have been appended to
            before = b"" if path.startswith("name:") else self.versions.get(path, b"")
            versions[path] = digest(cause, before)
        late = self.late
        if touch.late:
            late = {**late, **dict.fromkeys(touch.writes, touch.late)}
        return State(self.epoch, whole, versions, late, calls)

    def _closed(self, reads: frozenset[str]) -> frozenset[str]:
        if not self.late:
            return reads
        closed: set[str] = set()
        waiting = list(reads)
        while waiting:
            path = waiting.pop()
            if path not in closed:
                closed.add(path)
                waiting.extend(self.late.get(path, ()))
        return frozenset(closed)


def _meets(resource: str, reads: frozenset[str]) -> bool:
    """Whether a change of the resource may be seen; a directory stands for all that is below it."""
    if resource[0] not in "/?":
        return resource in reads
    return resource in reads or overlap(frozenset((resource,)), frozenset(each for each in reads if each[0] in "/?"))
