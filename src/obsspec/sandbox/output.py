"""The one rule from output bytes to the text that the policy sees, the same in both arms and in every sandbox.

    1. UTF-8; what is not valid becomes U+FFFD. No Unicode normalisation: equal means equal code points.
    2. Terminal escape sequences go (CSI, OSC, string and two-character ones, cut ones too), so does a lone ESC.
    3. CRLF becomes LF, then a line that was redrawn with CR keeps its last drawing.
    4. Spaces, tabs and line ends at the end of a stream go. stdout comes before stderr.

The rule looks at whole, bounded bytes, so it cannot depend on how they arrived. It is idempotent and takes linear time.
Standard library only, Python 3.8 or later: this file runs inside sandboxes too.
"""

from __future__ import annotations

import re

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


def canonical(data: bytes) -> str:
    """Steps 1 to 3 of the rule for one stream."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def body(stdout: bytes, stderr: bytes) -> str:
    """The canonical output of a command, "" if there is none."""
    parts = [canonical(stream).rstrip(" \t\n") for stream in (stdout, stderr)]
    return "\n".join(part for part in parts if part)


class Shown:
    """What the policy sees of one command: `text`, of which the output was cut or empty."""

    def __init__(self, text: str, *, truncated: bool, empty: bool) -> None:
        self.text = text
        self.truncated = truncated
        self.empty = empty


def show(
    stdout: bytes,
    stderr: bytes,
    *,
    exit_code: int,
    max_characters: int,
    clipped: bool,
    timed_out_after_s: float | None,
    state_lost: bool,
) -> Shown:
    """The output (cut at `max_characters`), one line for each thing that went differently, and the exit code.

    `clipped`: the streams are only the head of what was printed.
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
    return Shown("\n".join(lines), truncated=truncated, empty=not output)
