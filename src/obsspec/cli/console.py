"""The console that commands print to."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from obsspec.values import ConfigError

TABLE_WIDTH = 120


def wide_console() -> Console:
    """A terminal's own width; wide enough for the tables where output goes to a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=TABLE_WIDTH)


def without_password(url: str) -> str:
    """As it may be printed."""
    return re.sub(r"(?<=//)[^/?#]*@", "", url)


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


def check_json(path: Path | None) -> None:
    """Before a long run: the file of `--json` can be written. Raises `ConfigError`."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(f"--json {path}: give a file in a directory that exists")


def write_json(path: Path | None, text: str) -> None:
    """Raises `ConfigError`; None is no file."""
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can not write --json {path}: {error.strerror or error}") from error
