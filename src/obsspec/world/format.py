"""Observation formats: how what a tool printed becomes the text that the policy sees, and back.

Harnesses frame output differently. Which format a tool has is learnt from its observations, those of the rollout at
hand first; without any evidence it is ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from obsspec.sandbox import canonical

_EXIT_LINE = re.compile(r"\(exit_code=(-?\d+)\)\Z")
_NOTICE = re.compile(r"\((?:output cut at \d+ characters|timed out after [\d.]+ s|shell state changes lost)\)\Z")
_RETURN_CODE = re.compile(r"\A<returncode>(-?\d+)</returncode>\n<output>\n(.*)</output>\s*\Z", re.DOTALL)
_RETURN_CODE_CUT = re.compile(r"\A<returncode>(-?\d+)</returncode>\n.*?<output_head>\n(.*?)\n</output_head>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Body:
    """What a tool printed: standard output and errors as one text.

    `exit_code`: None where the format hides it. `trimmed`: blanks and line ends at the end of `text` were dropped.
    `cut`: it is not all that was printed.
    """

    text: str
    exit_code: int | None = None
    trimmed: bool = False
    cut: bool = False


class ObservationFormat(Protocol):
    """Pure: equal arguments give equal results.

    `stateful`: whether a shell behind it keeps its directory and variables from one call to the next, None where the
    format does not tell. `merges`: both streams are one, in the order of time, or it is not known which comes first.
    """

    @property
    def name(self) -> str: ...

    @property
    def stateful(self) -> bool | None: ...

    @property
    def merges(self) -> bool: ...

    def render(self, stdout: str, stderr: str, exit_code: int) -> str:
        """The text that the policy sees."""
        ...

    def read(self, text: str) -> Body | None:
        """What was printed; None if the text is not in this format."""
        ...


@dataclass(frozen=True, slots=True)
class ExitLine:
    """Ours: `canonical.observe`, with the exit code as the last line."""

    name: str = "exit-line"
    stateful: bool | None = True
    merges: bool = False

    def render(self, stdout: str, stderr: str, exit_code: int) -> str:
        out, err = (stream.encode("utf-8", "surrogateescape") for stream in (stdout, stderr))
        return canonical.observe(out, err, exit_code=exit_code).text

    def read(self, text: str) -> Body | None:
        output, _, last = text.rpartition("\n")
        found = _EXIT_LINE.match(last)
        if found is None:
            return None
        cut = False
        while _NOTICE.match(output[output.rfind("\n") + 1 :]):
            output, cut = output[: max(0, output.rfind("\n"))], True
        return Body("" if output == canonical.EMPTY else output, int(found[1]), trimmed=True, cut=cut)


@dataclass(frozen=True, slots=True)
class ReturnCode:
    """`<returncode>` before `<output>`, as mini-swe-agent shows a command; each command has a shell of its own."""

    trimmed: bool = False
    name: str = "return-code"
    stateful: bool | None = False
    merges: bool = True

    def render(self, stdout: str, stderr: str, exit_code: int) -> str:
        output = stdout + stderr
        if self.trimmed:
            output = output.rstrip() + "\n" if output.strip() else ""
        return f"<returncode>{exit_code}</returncode>\n<output>\n{output}</output>"

    def read(self, text: str) -> Body | None:
        if not text.startswith("<returncode>"):
            return None
        whole = _RETURN_CODE.match(text)
        found = whole or _RETURN_CODE_CUT.match(text)
        return None if found is None else Body(found[2], int(found[1]), trimmed=self.trimmed, cut=whole is None)


@dataclass(frozen=True, slots=True)
class Plain:
    """The output and nothing else; `empty` is what stands for no output."""

    trimmed: bool = False
    empty: str = ""
    name: str = "plain"
    stateful: bool | None = None
    merges: bool = True

    def render(self, stdout: str, stderr: str, exit_code: int) -> str:
        del exit_code
        output = stdout + stderr
        if self.trimmed:
            output = output.rstrip()
        return output or self.empty

    def read(self, text: str) -> Body | None:
        return Body("" if text == self.empty else text, trimmed=self.trimmed)


OURS: ObservationFormat = ExitLine()
