"""What commands print, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag


class Doubt(IntFlag):
    """What a result rests on, beside what is determined."""

    NONE = 0
    SUCCESS = 1  # a command was taken to succeed, silently
    ENDING = 2  # the end of a text, which the format does not show, was taken to be one line end
    PLACE = 4  # the shell was taken to start where others started


@dataclass(frozen=True, slots=True)
class Hole:
    """Output that is not known: of the simple command with these words, run in `cwd`. No words: of something larger."""

    words: tuple[str, ...] = ()
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Something printed. `error`: on standard error."""

    what: str | Hole
    error: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did: pieces in the order of time, and its exit code (None: not known)."""

    pieces: tuple[Piece, ...] = ()
    code: int | None = 0
    doubt: Doubt = Doubt.NONE

    @property
    def known(self) -> bool:
        return not any(isinstance(piece.what, Hole) for piece in self.pieces)

    def text(self, *, error: bool) -> str | None:
        """All that went to one of the two streams; None if a part of it is not known."""
        parts = [piece.what for piece in self.pieces if piece.error == error]
        return None if any(isinstance(part, Hole) for part in parts) else "".join(map(str, parts))

    def then(self, other: Outcome) -> Outcome:
        """This and then `other`, whose exit code counts."""
        return Outcome(self.pieces + other.pieces, other.code, self.doubt | other.doubt)


SILENT = Outcome()
ASSUMED = Outcome(doubt=Doubt.SUCCESS)
UNKNOWN = Outcome((Piece(Hole()), Piece(Hole(), error=True)), None)


def printed(text: str, code: int = 0, doubt: Doubt = Doubt.NONE) -> Outcome:
    return Outcome((Piece(text),) if text else (), code, doubt)


def failed(text: str, code: int = 1) -> Outcome:
    return Outcome((Piece(text, error=True),), code)


def refused(code: int = 1) -> Outcome:
    """A failure whose message is not known."""
    return Outcome((Piece(Hole(), error=True),), code)


def unknown(words: tuple[str, ...], cwd: str) -> Outcome:
    hole = Hole(words, cwd)
    return Outcome((Piece(hole), Piece(hole, error=True)), None)
