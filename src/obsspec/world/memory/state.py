"""The state of a rollout as far as its calls determine it, and the part of it that one call can see.

Each resource that was written has a version: a digest of the call that wrote it and of everything that call could see.
So two rollouts that did the same to a file agree on its version, whatever else they did, and in whatever order. A call
that may have changed anything starts a new epoch: all versions become new, and depend on all that was before.

Most programs that may change anything change nothing that matters. So there is a second, *likely* set of versions: of
what shell commands say that they write, whatever else was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from obsspec.world.memory.digests import digest
from obsspec.world.memory.touched import Touched
from obsspec.world.shell.paths import overlap

ANYTHING = "*"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """`late`: for a resource, what else is read when it is read (a function's globals). `calls`: per tool."""

    epoch: bytes = b""
    whole: bytes = b""
    versions: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    late: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    calls: Mapping[str, int] = field(default_factory=dict[str, int])
    likely: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    def seen_by(self, touch: Touched) -> bytes:
        """The digest of what a call can see of this state. The starting state is `b""` for every call."""
        if touch.reads is None:
            return self.whole
        if not self.versions:
            return self.epoch
        return _digest_of(self.epoch, self.versions, self._closed(touch.reads))

    def likely_seen_by(self, touch: Touched) -> bytes:
        """The same of the likely versions."""
        return _digest_of(b"", self.likely, None if touch.reads is None else self._closed(touch.reads))

    def after(self, tool: str, text: str, touch: Touched, *, loose: bool = False) -> State:
        """`loose`: the call is one that most likely changes nothing where nobody knows what it changes."""
        calls = {**self.calls, tool: self.calls.get(tool, 0) + 1}
        if touch.writes is not None and not touch.writes:
            return State(self.epoch, self.whole, self.versions, self.late, calls, self.likely)
        whole = digest(self.whole, tool, text)
        likely = self.likely
        if touch.writes is not None or not loose:
            written = touch.writes if touch.writes is not None else (ANYTHING,)
            likely = {**likely, **{path: digest(tool, text, likely.get(path, b"")) for path in written}}
        if touch.writes is None:
            return State(digest(self.whole, self.seen_by(touch), tool, text), whole, {}, {}, calls, likely)
        cause = digest(tool, text, self.seen_by(touch))
        versions = dict(self.versions)
        for path in touch.writes:
            # what is assigned no longer depends on what it was; a file may have been appended to
            before = b"" if path.startswith("name:") else self.versions.get(path, b"")
            versions[path] = digest(cause, before)
        late = self.late
        if touch.late:
            late = {**late, **dict.fromkeys(touch.writes, touch.late)}
        return State(self.epoch, whole, versions, late, calls, likely)

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


def _digest_of(start: bytes, versions: Mapping[str, bytes], reads: frozenset[str] | None) -> bytes:
    seen = [path for path in versions if reads is None or _meets(path, reads)]
    if not seen:
        return start
    return digest(start, *(part for path in sorted(seen) for part in (path, versions[path])))


def _meets(resource: str, reads: frozenset[str]) -> bool:
    """Whether a change of the resource may be seen; a directory stands for all that is below it."""
    if resource == ANYTHING:
        return True
    if resource[0] not in "/?":
        return resource in reads
    return resource in reads or overlap(frozenset((resource,)), frozenset(each for each in reads if each[0] in "/?"))
