"""The console that commands print to."""

from __future__ import annotations

from rich.console import Console

TABLE_WIDTH = 120


def wide_console() -> Console:
    """A terminal's own width; wide enough for the tables where output goes to a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=TABLE_WIDTH)
