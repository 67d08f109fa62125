"""An init that is not process number 1: it lives in the sandbox of a provider, beside processes that are not its own.

Its commands can end it, where an init that is number 1 is safe from them: it ignores what it can.
"""

from __future__ import annotations

import ctypes
import os
import signal

from . import processes
from .init import Init

ADOPT = 36  # PR_SET_CHILD_SUBREAPER


class HostedInit(Init):
    """Owns everything below itself, and nothing else."""

    def __init__(self) -> None:
        _adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        super().__init__()

    def serve(self) -> None:
        try:
            super().serve()
        finally:
            processes.kill_outside(set())

    def _confine(self) -> None:
        os.makedirs(self._rules.home, exist_ok=True)


def _adopt_orphans() -> None:
    """From now on, processes below this one whose parent ends become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(ADOPT, *map(ctypes.c_ulong, (1, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "adopt orphans")
