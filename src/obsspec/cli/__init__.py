"""The `obsspec` command."""

from __future__ import annotations

import sys

from cyclopts import App
from rich.console import Console

from obsspec.values import ConfigError

app = App(name="obsspec", help="Lossless observation speculation for tool-using LLM agents.")
app.command("obsspec.cli.compare:compare")
app.command("obsspec.cli.evaluate:evaluate")
app.command("obsspec.train.cli:app", name="train")


def main() -> None:
    """Runs a command. A wrong configuration is one line on stderr and exit status 2; Ctrl-C is 130."""
    try:
        result = app()
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)
    except BaseExceptionGroup as group:
        error = _first(group)
        if error is None:
            raise
        _fail(error)
    except ConfigError as error:
        _fail(error)
    else:
        sys.exit(result if isinstance(result, int) else 0)


def _fail(error: ConfigError) -> None:
    Console(stderr=True, soft_wrap=True).print(f"obsspec: {error}", style="bold red", highlight=False, markup=False)
    sys.exit(2)


def _first(group: BaseExceptionGroup[BaseException]) -> ConfigError | None:
    """The ConfigError in a group of nothing but those."""
    wrong, rest = group.split(ConfigError)
    if wrong is None or rest is not None:
        return None
    error: ConfigError | ExceptionGroup[ConfigError] = wrong
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
