"""Process number 1 of the sandbox of the Python replica."""

from __future__ import annotations

import os
import sys

from .server import Server

sys.path[:] = [path for path in sys.path if path not in ("", "/opt/obsspec")]
Server().serve()
os._exit(0)  # no clean-up: everything in the sandbox ends with this process
