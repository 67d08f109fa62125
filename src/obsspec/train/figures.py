"""The log of a trainer: a line of JSON for each step, never ahead of the checkpoint that the trainer goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obsspec.rollout.store import replace_text
from obsspec.values import ConfigError


def note(path: Path, line: Mapping[str, Any]) -> None:
    """Appends it. Raises `ConfigError` where there is no room."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise ConfigError(f"can not write {path} ({error.strerror}): free some space there") from None


def keep_lines(path: Path, counter: str, last: int) -> None:
    """Those whose `counter` is at most `last`: a trainer that was killed may have been ahead, or in half a line."""
    if not path.exists():
        return
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    kept = [line for line in whole if json.loads(line)[counter] <= last]
    replace_text(path, "".join(f"{line}\n" for line in kept))
