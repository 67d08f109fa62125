"""Turns of rollouts: what was run for them until their outcome is known, and which printed something else."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from obsspec.values import Context
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.images import Knowledge
from obsspec.world.shadow.past import Command, Past, shell_text
from obsspec.world.shadow.rooms import PATH, Place, Run
from obsspec.world.shadow.trust import Signs

REMEMBERED = 512  # turns that wait for their outcome, and as many that printed something else


@dataclass(frozen=True, slots=True)
class Tried:
    """One run that waits for its outcome. `text`: after rewriting. `raw`: before."""

    command: Command
    raw: str
    text: str
    code: int
    signs: Signs
    place: Place
    knowledge: Knowledge
    kept: bool | None  # the shell was taken to live on, or not; None where that makes no difference


class Turns:
    """The last ones of all rollouts."""

    def __init__(self) -> None:
        self._tried: OrderedDict[bytes, Tried] = OrderedDict()
        self._refuted: OrderedDict[bytes, None] = OrderedDict()

    def keep(self, context: Context, tried: Tried) -> None:
        self._tried[_key(context)] = tried
        if len(self._tried) > REMEMBERED:
            self._tried.popitem(last=False)

    def take(self, context: Context) -> Tried | None:
        """What was run for this turn; once."""
        return self._tried.pop(_key(context), None)

    def refute(self, context: Context) -> None:
        """This turn printed something else than was thought."""
        self._refuted[_key(context)] = None
        if len(self._refuted) > REMEMBERED:
            self._refuted.popitem(last=False)

    def is_refuted(self, context: Context, past: Past) -> bool:
        """Whether what one of the changes printed was not what it printed here."""
        changing = {change.text for change in past.changes}
        turns = zip(context.history, _keys(context), strict=False)
        return any(
            key in self._refuted and any(shell_text(call) in changing for call in exchange.calls)
            for exchange, key in turns
        )


def run_of(command: Command, image: Image) -> Run:
    arguments = command.arguments or ()
    hidden = sorted(name for name in image.absent_programs if name in command.script and _is_here(name))
    return Run(arguments, command.directory, tuple(hidden))


@lru_cache(maxsize=4096)
def _is_here(program: str) -> bool:
    return shutil.which(program, path=PATH) is not None


def _key(context: Context) -> bytes:
    return [*_keys(context)][-1]


def _keys(context: Context) -> Iterator[bytes]:
    """A name for every turn of the history, and for this one."""
    digest = blake2b((context.image or context.task_id).encode("utf-8", "surrogatepass") + b"\0", digest_size=16)
    for calls in (*(exchange.calls for exchange in context.history), context.calls):
        for call in calls:
            digest.update(repr(sorted(call.arguments.items())).encode("utf-8", "surrogatepass") + b"\0")
        yield digest.digest()
