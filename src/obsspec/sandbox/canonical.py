"""The one rule from output bytes to the text that the policy sees, the same in both arms.

    1. UTF-8; what is not valid becomes U+FFFD. No Unicode normalisation: equal means equal code points.
    2. Terminal escape sequences go (CSI, OSC, string and two-character ones, cut ones too), so does a lone ESC.
    3. CRLF becomes LF, then a line that was redrawn with CR keeps its last drawing.
    4. Spaces, tabs and line ends at the end of a stream go. stdout comes before stderr.

The rule looks at whole, bounded bytes, so it cannot depend on how they arrived. It is idempotent and takes linear time.
"""

from __future__ import annotations

import re

from obsspec.values import Observation

MAX_CHARACTERS = 10_000
EMPTY = "(no output)"
STATE_LOST = "(shell state changes lost)"

_ESCAPES = re.compile(
    r"""
    (?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?       # OSC: titles, links
  | (?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\|\x9c)?  # DCS, SOS, PM, APC
  | (?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?                            # CSI: colours, cursor, private modes
  | \x1b[ -/]*[0-~]?                                             # the rest, and a lone ESC
    """,
    re.VERBOSE,
)


def byte_limit(max_characters: int) -> int:
    """How many bytes of each stream are worth collecting for a text of `max_characters`: escapes included."""
    return max(1 << 18, 16 * max_characters)


def canonical(data: bytes) -> str:
    """Steps 1 to 3 of the rule for one stream."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def body(stdout: bytes, stderr: bytes) -> str:
    """The canonical output of a command, "" if there is none."""
    parts = [canonical(stream).rstrip(" \t\n") for stream in (stdout, stderr)]
    return "\n".join(part for part in parts if part)


class Beginning:
    """What an observation's text is certain to begin with, from the lines that stdout has so far.

    Whole lines only: an escape sequence, a character or a CR that is not over may still change its line, and none of
    them goes beyond it. Space at the end may still go. stderr comes after stdout, so it says nothing before the end.
    """

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
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


def observe(
    stdout: bytes,
    stderr: bytes,
    *,
    exit_code: int,
    max_characters: int = MAX_CHARACTERS,
    clipped: bool = False,
    timed_out_after_s: float | None = None,
    state_lost: bool = False,
) -> Observation:
    """The observation of one command. `clipped`: the streams are only the head of what was printed.

    The text is the output (cut at `max_characters`), one line for each thing that went differently, and the exit code.
    """
    output = body(stdout, stderr)
    truncated = clipped or len(output) > max_characters
    lines = [output[:max_characters] or EMPTY]
    if truncated:
        lines.append(f"(output cut at {max_characters} characters)")
    if timed_out_after_s is not None:
        lines.append(f"(timed out after {timed_out_after_s:g} s)")
    if state_lost:
        lines.append(STATE_LOST)
    lines.append(f"(exit_code={exit_code})")
    return Observation(
        text="\n".join(lines),
        exit_code=exit_code,
        truncated=truncated,
        timed_out=timed_out_after_s is not None,
        state_lost=state_lost,
        empty=not output,
        raw=stdout + stderr,
    )
