"""Texts by which tools say that they succeeded and printed nothing."""

from __future__ import annotations

import re
from collections import Counter

_FRAME = re.compile(
    r"""
    <?\b(?:return_?code|exit[_ ]?(?:code|status)|rc)\W{0,3}0\b    # it succeeded
  | </?(?:output|stdout|stderr|result|return_?code|exit_?code|tool_response|observation)>
  | "(?:output|stdout|stderr|result)":\s*""
  | \b(?:executed\ successfully\ )?(?:with\ )?no\ output\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST = 160  # of a text that says in some frame that there is nothing


def is_empty(text: str) -> bool:
    """Whether a tool's text says that it succeeded and printed nothing: blank, or only the tool's words for that."""
    if not text.strip():
        return True
    rest = _FRAME.sub("", text) if len(text) <= _LONGEST else text
    return rest != text and not re.search(r"\w", rest)


class EmptyTexts:
    """Counts such texts by tool."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def count(self, tool: str, text: str) -> None:
        if is_empty(text):
            self._counts.setdefault(tool, Counter())[text] += 1

    def usual(self) -> dict[str, str]:
        """The most frequent one of each tool that has any."""
        return {tool: counts.most_common(1)[0][0] for tool, counts in self._counts.items()}
