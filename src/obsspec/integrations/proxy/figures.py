"""What the proxy counts: the same numbers for its metrics, its report and its table at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from obsspec.values import Outcome


@dataclass(slots=True)
class Figures:
    """`hidden_s`: seconds of generation that were over, or would have been, when the client asked for them.

    `asked` counts the requests that the proxy understands, `passed` all others; `claimed` those that got a request
    started early. `discarded` counts requests started early that nobody asked for.
    """

    shadow: bool = False
    asked: int = 0
    passed: int = 0
    claimed: int = 0
    started: int = 0
    discarded: int = 0
    overflowed: int = 0
    discarded_tokens: int = 0
    restarted: int = 0
    upstream_errors: int = 0
    client_gone: int = 0
    confused: int = 0  # requests that broke the rules of a conversation, and were passed on
    sessions_opened: int = 0
    sessions_evicted: int = 0
    would_match: int = 0  # a prediction was there in time and right
    hidden_s: float = 0.0
    tool_s: float = 0.0
    generation_s: float = 0.0  # of requests as the client would have waited for them
    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    by_source: dict[str, list[int]] = field(default_factory=dict[str, list[int]])  # [right, said]

    @property
    def attempts(self) -> int:
        return sum(self.outcomes.values())

    def said(self, source: str, *, right: bool) -> None:
        counts = self.by_source.setdefault(source, [0, 0])
        counts[0] += right
        counts[1] += 1

    def report(self) -> dict[str, object]:
        """For JSON. Shares are of the turns with a call whose result came."""
        attempts = self.attempts
        return {
            "mode": "shadow" if self.shadow else "speculative",
            "requests": {"understood": self.asked, "passed_on": self.passed, "answered_early": self.claimed},
            "turns_with_calls": attempts,
            "outcomes": {outcome.value: self.outcomes[outcome] for outcome in Outcome},
            "match_share": self.would_match / attempts if attempts else 0.0,
            "started_early": self.started,
            "discarded": self.discarded,
            "discarded_tokens": self.discarded_tokens,
            "made_again": self.restarted,
            "tool_s": round(self.tool_s, 3),
            "generation_s": round(self.generation_s, 3),
            "hidden_s": round(self.hidden_s, 3),
            "hidden_share_of_tool_time": self.hidden_s / self.tool_s if self.tool_s else 0.0,
            "sources": {name: {"right": right, "said": said} for name, (right, said) in sorted(self.by_source.items())},
        }
