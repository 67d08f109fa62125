"""An init that is not process number 1: it lives in the sandbox of a provider, beside processes that are not its own.

Its commands can end it, where an init that is number 1 is safe from them: it ignores what it can.
"""

from __future__ import annotations

import os
import signal

from . import kernel, processes
from .init import Init


class HostedInit(Init):
    """Owns everything below itself, and nothing else."""

    def __init__(self) -> None:
        kernel.adopt_orphans()
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
