"""How much a request slows the others at the engine: seconds per token as a + b n, n requests in flight.

Fitted online by least squares with forgetting, b >= 0. Little variation of n says little about b: a prior, that one
more request slows the others by a twentieth, then stands. What is not known for sure counts against starting: b is
taken one standard error higher than it seems.
"""

from __future__ import annotations

import math
from collections.abc import Callable

TOKEN_S = 0.03  # until a generation was seen
SLOWING = 0.05  # prior of b / a
PRIOR_VARIANCE = 0.1  # of n: what the prior of b is worth
FORGET = 0.98
LEAST_TOKENS = 4  # a shorter generation says more about its prompt than about the load
SMOOTH = 0.125


class LoadModel:
    """Pure: it is told the time. `count`: the engine's own number of requests in flight, if it says."""

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        self._count = count
        self._open: dict[int, tuple[float, float]] = {}  # by ticket: when it started, and the area then
        self._area = 0.0  # integral of the number in flight over time
        self._area_s = 0.0  # up to when
        self._level = 0.0  # the number in flight since then
        self._usual = 0.0
        self._fit: tuple[float, float] | None = TOKEN_S, TOKEN_S * SLOWING
        self._weight = self._n = self._y = self._nn = self._ny = self._yy = self._ww = 0.0  # decayed sums

    @property
    def in_flight(self) -> int:
        return max(len(self._open), self._count() if self._count else 0)

    def sample(self) -> float:
        """Requests that a new one would share the engine with: between those now and those usual at such moments."""
        now = self.in_flight
        self._usual += SMOOTH * (now - self._usual)
        return (now + self._usual) / 2

    def started(self, ticket: int, now_s: float) -> None:
        self._advance(now_s)
        self._open[ticket] = (now_s, self._area)
        self._level = self.in_flight

    def ended(self, ticket: int, now_s: float, tokens: int) -> float:
        """Seconds that the generation took; 0 for an unknown one."""
        self._advance(now_s)
        began_s, area = self._open.pop(ticket, (now_s, self._area))
        self._level = self.in_flight
        seconds = now_s - began_s
        if tokens >= LEAST_TOKENS and seconds / tokens > 0:  # a clock may stand still
            self._learn((self._area - area) / seconds, seconds / tokens, tokens)
        return seconds

    @property
    def fit(self) -> tuple[float, float]:
        """(a, b), neither negative."""
        if self._fit is None:
            self._fit = self._fitted()
        return self._fit

    def _fitted(self) -> tuple[float, float]:
        n, y = self._n / self._weight, self._y / self._weight
        variance = max(0.0, self._nn / self._weight - n * n)
        covariance = self._ny / self._weight - n * y
        prior = y * SLOWING / (1 + SLOWING * n)
        b = max(0.0, (covariance + PRIOR_VARIANCE * prior) / (variance + PRIOR_VARIANCE))
        left = max(0.0, self._yy / self._weight - y * y - b * (2 * covariance - b * variance))
        error = math.sqrt(left / (variance + PRIOR_VARIANCE) * self._ww) / self._weight
        b = min(b + error, y / n)
        return y - b * n, b

    def token_s(self, others: float) -> float:
        """Seconds per token of a request beside so many others."""
        a, b = self.fit
        return a + b * (others + 1)

    def taken(self, others: float) -> float:
        """Seconds of latency that all others lose for each second that one more request runs."""
        a, b = self.fit
        return others * b / (a + b * (others + 1))

    def _advance(self, now_s: float) -> None:
        self._area += self._level * (now_s - self._area_s)
        self._area_s = now_s

    def _learn(self, n: float, y: float, weight: float) -> None:
        self._fit = None
        n = max(1.0, n)
        self._weight = self._weight * FORGET + weight
        self._n = self._n * FORGET + weight * n
        self._y = self._y * FORGET + weight * y
        self._nn = self._nn * FORGET + weight * n * n
        self._ny = self._ny * FORGET + weight * n * y
        self._yy = self._yy * FORGET + weight * y * y
        self._ww = self._ww * FORGET * FORGET + weight * weight
