"""What is known of durations, learnt as they are seen: small samples, so that expectations are of distributions.

G: seconds of a policy turn; T: seconds of a turn's tools, by command class; w: seconds of a prediction, by source.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from obsspec.speculation.classes import is_sent_ahead

WINDOW = 32  # the latest samples count
POINTS = 8  # a distribution is this many equally likely values
ENOUGH = 3  # samples of a class before it stands for itself
KINDS = 1024  # classes kept; the oldest is forgotten first
_MIDDLES = [
    range(size) if size <= POINTS else [(2 * i + 1) * size // (2 * POINTS) for i in range(POINTS)]
    for size in range(WINDOW + 1)
]
LATE = 2.0  # a source that had not answered when it was stopped is taken to need this much longer

GENERATION_S = (0.5, 1.0, 2.0, 4.0)  # priors, until something was seen
TOOL_S = (0.02, 0.2, 1.0, 2.0)
PREDICTION_S = (0.05, 0.1, 0.2)


class Samples:
    """The latest values of one quantity, as equally likely points. `prior` stands until there are any."""

    __slots__ = ("_ordered", "_points", "_values", "count")

    def __init__(self, prior: tuple[float, ...]) -> None:
        self._values: list[float] = []  # a ring, and the same in order
        self._ordered: list[float] = []
        self._points: tuple[float, ...] | None = prior
        self.count = 0

    def add(self, value: float) -> None:
        if len(self._values) < WINDOW:
            self._values.append(value)
        else:
            del self._ordered[bisect_left(self._ordered, self._values[self.count % WINDOW])]
            self._values[self.count % WINDOW] = value
        insort(self._ordered, value)
        self.count += 1
        self._points = None

    @property
    def points(self) -> tuple[float, ...]:
        """At most `POINTS` values in ascending order: the middles of as many equal shares."""
        if self._points is None:
            self._points = tuple([self._ordered[i] for i in _MIDDLES[len(self._ordered)]])
        return self._points

    @property
    def mean(self) -> float:
        return sum(self.points) / len(self.points)


class ByKind:
    """Samples by class; a class of which little was seen is answered by all of them together."""

    def __init__(self, prior: tuple[float, ...]) -> None:
        self._prior = prior
        self.every = Samples(prior)
        self._by_kind: dict[str, Samples] = {}

    def add(self, kind: str, value: float) -> None:
        self.every.add(value)
        found = self._by_kind.get(kind)
        if found is None:
            if len(self._by_kind) >= KINDS:
                del self._by_kind[next(iter(self._by_kind))]
            found = self._by_kind[kind] = Samples(self._prior)
        found.add(value)

    def of(self, kind: str) -> Samples:
        found = self._by_kind.get(kind)
        return found if found is not None and found.count >= ENOUGH else self.every


def later(left: tuple[float, ...], waits: tuple[float, ...]) -> tuple[float, ...]:
    """What is left after waiting, none of it negative."""
    return tuple([max(0.0, s - w) for s in left for w in waits])


class Estimates:
    """Pure: it is told what was measured."""

    def __init__(self) -> None:
        self.generation_s = Samples(GENERATION_S)
        self.tool_s = ByKind(TOOL_S)
        self._prediction_s: dict[str, Samples] = {}

    def generated(self, seconds: float) -> None:
        self.generation_s.add(seconds)

    def tool_ran(self, kind: str, seconds: float) -> None:
        self.tool_s.add(kind, seconds)

    def predicted(self, source: str, seconds: float, *, late: bool) -> None:
        self.prediction_s(source).add(seconds * LATE if late else seconds)

    def prediction_s(self, source: str) -> Samples:
        """w of a source; "memory/transition" is the source "memory"."""
        return self._prediction_s.setdefault(source.partition("/")[0], Samples(PREDICTION_S))

    def left_s(self, kinds: tuple[str, ...], elapsed_s: float, *, guarded: bool = False) -> tuple[float, ...]:
        """How long until the result of a generation that starts now would be wanted, if all predictions are right.

        The committed turn's tools have run for `elapsed_s`; those of the predicted turns below have yet to run, one
        after another. `guarded`: a turn's call is sent as soon as it is generated, so beside those above. Tools that
        run longer than any before are taken to need half as long again.
        """
        left = tuple(t - elapsed_s for t in self.tool_s.of(kinds[0]).points if t > elapsed_s) or (elapsed_s / 2,)
        for number, kind in enumerate(kinds[1:], 2):
            tool_s = self.tool_s.of(kind).mean
            ahead = guarded and is_sent_ahead(kinds[1:number])
            left = tuple([max(s, tool_s) if ahead else s + tool_s for s in left])
        return left

    def hidden_s(self, left: tuple[float, ...], then_s: float = 0.0) -> float:
        """E[min(G + then, left)]: seconds of a turn's generation, and of what it lets begin, that pass before its
        result is wanted."""
        turns = [g + then_s for g in self.generation_s.points]
        return sum([g if g < s else s for g in turns for s in left]) / (len(turns) * len(left))

    def then_s(self, kinds: tuple[str, ...]) -> float:
        """Of a branch below these turns: how long its own call takes, which is sent as soon as it is generated."""
        return self.tool_s.every.mean if is_sent_ahead(kinds[1:]) else 0.0
