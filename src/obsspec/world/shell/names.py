"""Sets of names, written as one line of text."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())
