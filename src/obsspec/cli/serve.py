"""`obsspec serve`: an HTTP proxy in front of an OpenAI-compatible engine that starts requests early."""

from __future__ import annotations

import anyio
from rich.console import Console

from obsspec.cli.console import wide_console, without_password
from obsspec.integrations.proxy.figures import Figures
from obsspec.integrations.proxy.settings import ServeSettings
from obsspec.integrations.proxy.summary import summary
from obsspec.values import ConfigError


def serve(settings: ServeSettings) -> int:
    """Proxy an OpenAI-compatible engine: while a client's tools run, its next request is predicted and started early.

    Point the client's base URL at the proxy; nothing else changes, and no answer does. Ctrl-C lets requests finish and
    shows what came of it. The same figures are at /obsspec/report, and for Prometheus at /obsspec/metrics.
    """
    try:
        from obsspec.integrations.proxy.server import serve as run
    except ModuleNotFoundError as error:
        raise ConfigError(f"`obsspec serve` needs {error.name}: pip install 'obsspec[serve]'") from None
    console = wide_console()
    seen: list[Figures] = []

    def listening(url: str, figures: Figures) -> None:
        seen.append(figures)
        _greet(console, settings, url)

    try:
        anyio.run(run, settings, listening)
    finally:
        for figures in seen:
            console.print(summary(figures))
    return 0


def _greet(console: Console, settings: ServeSettings, url: str) -> None:
    mode = "shadow: nothing is started early" if settings.shadow else "requests are started early"
    upstream = without_password(settings.upstream)
    console.print(f"{url}/v1 -> {upstream} ({mode})", highlight=False, markup=False)
    if not settings.is_local:
        console.print("anyone who reaches this address can use the engine", style="yellow")
