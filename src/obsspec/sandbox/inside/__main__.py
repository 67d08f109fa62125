"""Process number 1 of a sandbox."""

from __future__ import annotations

from .init import Init

Init().serve()
