"""Whether the shell of a harness lives on from one call to the next, learnt from what explains its outputs."""

from __future__ import annotations

from dataclasses import dataclass

_WRONG = 0.15  # what a wrong run tells: it may have been wrong for other reasons
_SURE = 3.0
_MOST = 8.0


@dataclass(slots=True)
class Keeping:
    """Votes for a shell that keeps its directory, and for one that starts anew."""

    kept: float = 0.4
    anew: float = 0.0

    @property
    def likely(self) -> bool:
        return self.kept >= self.anew

    def record(self, kept: bool, *, right: bool, sure: bool = False) -> None:
        """The outcome of a run that rested on one of the two where they differ. `sure`: it shows which one it was."""
        vote = (1.0 if right else -_WRONG) * (_SURE if sure else 1.0)
        if kept:
            self.kept = min(_MOST, self.kept + vote)
        else:
            self.anew = min(_MOST, self.anew + vote)
