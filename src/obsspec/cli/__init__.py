"""The `obsspec` command."""

from __future__ import annotations

import sys
from typing import NoReturn, cast

from cyclopts import App
from rich.console import Console

from obsspec.values import ConfigError, EngineError, SandboxError

_SAID = (ConfigError, EngineError, SandboxError)  # one line says it all
app = App(name="obsspec", help="Lossless observation speculation for tool-using LLM agents.")
app.command("obsspec.cli.compare:compare")
app.command("obsspec.cli.evaluate:evaluate")
app.command("obsspec.cli.export:export")
app.command("obsspec.cli.serve:serve")
app.command("obsspec.cli.simulate:app", name="simulate")
app.command("obsspec.cli.world:app", name="world")
app.command("obsspec.train.cli:app", name="train")


def main() -> None:
    """Runs a command. What is wrong, or fails, is one line on stderr and exit status 2; Ctrl-C is 130."""
    try:
        result = app()
    except KeyboardInterrupt:
        _interrupted()
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            _interrupted()
        error = _first(group)
        if error is None:
            raise
        _fail(error)
    except _SAID as error:
        _fail(error)
    else:
        sys.exit(result if isinstance(result, int) else 0)


def _interrupted() -> NoReturn:
    Console(stderr=True).print("interrupted")
    sys.exit(130)


def _fail(error: Exception) -> None:
    Console(stderr=True, soft_wrap=True).print(f"obsspec: {error}", style="bold red", highlight=False, markup=False)
    sys.exit(2)


def _first(group: BaseExceptionGroup[BaseException]) -> Exception | None:
    """The first error in a group of nothing but those that one line can say."""
    wrong, rest = group.split(_SAID)
    if wrong is None or rest is not None:
        return None
    error: Exception = wrong
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error
