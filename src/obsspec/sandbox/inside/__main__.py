"""Process number 1 of a sandbox."""

from __future__ import annotations

import os

from .init import Init

Init().serve()
os._exit(0)  # no clean-up: everything in the sandbox ends with this process
