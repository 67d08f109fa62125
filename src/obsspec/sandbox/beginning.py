"""What an observation is certain to begin with, while its command still runs."""

from __future__ import annotations

from obsspec.sandbox.output import canonical


class Beginning:
    """From the lines that stdout has so far: `text`, which the observation begins with whatever follows.

    Whole lines only: an escape sequence, a character or a CR that is not over may still change its line, and none of
    them goes beyond it. Space at the end may still go. stderr comes after stdout, so it says nothing before the end.
    """

    def __init__(self, max_characters: int) -> None:
        self.max_characters = max_characters
        self._lines = ""
        self.text = ""

    def add(self, lines: bytes) -> bool:
        """More lines, the last one ended. Whether more is certain now."""
        before = self.text
        if len(before) < self.max_characters:
            self._lines += canonical(lines)
            certain = self._lines.rstrip(" \t\n")[: self.max_characters]
            ended = certain and self._lines[len(certain) : len(certain) + 1] == "\n"
            self.text = certain + "\n" if ended else certain
        return self.text != before
