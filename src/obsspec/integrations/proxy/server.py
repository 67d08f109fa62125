"""Runs the proxy: listens, serves until it is told to stop, lets requests finish, and says what came of it."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

from obsspec.integrations.proxy.app import application
from obsspec.integrations.proxy.figures import Figures
from obsspec.integrations.proxy.service import Service, open_service
from obsspec.integrations.proxy.settings import ServeSettings
from obsspec.values import ConfigError

KEPT_S = 75  # clients drop idle connections after 5 s or so: they must be first, or what they send meanwhile is lost


class _Server(uvicorn.Server):
    """Told to stop, it drops at once what nobody has asked for; answers that clients wait for may be finished."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Unlike uvicorn's own, it does not raise the signal again: there is something left to say."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.drain()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises `ConfigError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: otherwise asyncio leaves the delays of Nagle's algorithm on.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is in use: choose another with --port, or 0 for any") from None
        raise ConfigError(f"can not listen on {host}, port {port} ({error}): choose another --host or --port") from None
    return listener


async def serve(settings: ServeSettings, listening: Callable[[str, Figures], None]) -> None:
    """Until SIGINT or SIGTERM. `listening` is called with the URL, and the figures, which are kept up to date.

    Raises `ConfigError`.
    """
    listener = listen(settings.host, settings.port)
    with listener:
        async with open_service(settings) as service:
            config = uvicorn.Config(
                application(service),
                lifespan="off",
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEPT_S,
                timeout_graceful_shutdown=max(1, round(settings.drain_s)),
            )
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            listening(f"http://{host}:{listener.getsockname()[1]}", service.parts.figures)
            await _Server(config, service).serve(sockets=[listener])
