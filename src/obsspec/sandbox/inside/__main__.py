"""Process number 1 of a sandbox: its init, or the forker of a sandbox with forks."""

from __future__ import annotations

import os

if "OBSSPEC_CONTROL" in os.environ:
    from .forker import Forker

    Forker().serve()
else:
    from .init import Init

    Init().serve()
os._exit(0)  # no clean-up: everything in the sandbox ends with this process
