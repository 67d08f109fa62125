"""The chain of a sandbox's commands and what they answered, and what it says about a call that is to come next.

Text and numbers only, standard library only, Python 3.8 or later: the same file runs inside sandboxes of providers
(`sandbox.inside.ledger`) and outside of ours (`history`).
"""

from __future__ import annotations

from hashlib import sha256

START = "0" * 32  # nothing has been executed
LOST = ""  # a command was cut off: no guard holds any more

RUN = "run"
WAIT = "wait"  # for commands that are to come before
REFUSE = "refuse"

OTHER_HISTORY = "history"  # other commands ran before, or they answered something else
OPEN_STATE = "state"  # the last command timed out, lost shell state or left jobs


def extend(digest: str, command: str, text: str) -> str:
    """The digest after one more command that answered `text`, as the policy sees it."""
    if digest == LOST:
        return LOST
    said = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    asked = sha256(command.encode("utf-8", "surrogatepass")).hexdigest()
    return sha256(f"{digest} {asked} {said}".encode()).hexdigest()[: len(START)]


class Chain:
    """What a sandbox remembers of its commands: how many there were, the digest, and whether the state is settled."""

    def __init__(self) -> None:
        self.number = 0  # of the last command that began
        self._digest = START
        self._before = START
        self._settled = True

    def begin(self) -> int:
        """The next command begins; returns its number. Without an `end` the history is lost."""
        self.number += 1
        self._before, self._digest = self._digest, LOST
        return self.number

    def end(self, command: str, text: str, *, settled: bool) -> None:
        """The command that began last has answered. `settled`: nothing is left that may still change the state."""
        self._digest = extend(self._before, command, text)
        self._settled = settled

    def judge(self, after: int, digest: str) -> str:
        """Between commands: what to do with a call that is to follow command `after`, if the digest is then this."""
        if self._digest == LOST or after < self.number:
            return REFUSE
        if after > self.number:
            return WAIT
        return RUN if digest == self._digest and self._settled else REFUSE

    def refusal(self, after: int, digest: str) -> str:
        """Why a call that is refused is refused."""
        return OPEN_STATE if after == self.number and digest == self._digest else OTHER_HISTORY
