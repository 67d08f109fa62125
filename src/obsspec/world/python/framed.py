"""Tools that show a run as an object or between marks with its exit code: the output is taken out, and put back."""

from __future__ import annotations

from collections.abc import Sequence

from obsspec.values import Exchange, ToolCall
from obsspec.world.formats import FormatLearner
from obsspec.world.frames import CODE, Escapes, Frame

_TRACE = "Traceback (most recent call last):\n"


class Framed:
    """Only frames that cannot be learnt as what stands around every text: escaped ones, and those with an exit code."""

    def __init__(self) -> None:
        self._formats = FormatLearner()

    def learn(self, call: ToolCall, shown: str) -> bool:
        """Whether this showed that the tool has a frame."""
        before = self._frame(call, ())
        self._formats.learn(call, shown)
        return before is None and self._frame(call, ()) is not None

    def inside(self, call: ToolCall, history: Sequence[Exchange], shown: str) -> str:
        """What the run printed; all of it where there is no frame."""
        frame = self._frame(call, history)
        body = frame.read(shown) if frame is not None else None
        return shown if body is None else body.text

    def around(self, call: ToolCall, history: Sequence[Exchange], text: str) -> str:
        """What the tool will show of a run that printed `text`."""
        frame = self._frame(call, history)
        if frame is None:
            return text
        start = text.find(_TRACE)
        out, error = (text, "") if start < 0 else (text[:start], text[start:])
        return frame.render(out, error, int(start >= 0))

    def _frame(self, call: ToolCall, history: Sequence[Exchange]) -> Frame | None:
        chosen = self._formats.choose(call, history)
        if not isinstance(chosen, Frame):
            return None
        coded = CODE in f"{chosen.before}{chosen.between}{chosen.after}"
        return chosen if coded or chosen.escapes is not Escapes.NONE else None
