"""What `obsspec serve` can be told."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from obsspec.values import ConfigError

_LEAST = {"depth": 0, "breadth": 0, "max_sessions": 1, "sessions_mib": 1, "max_branches": 0, "buffer_mib": 0}


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Limits are for the whole server unless they say otherwise."""

    upstream: Annotated[str, Parameter(help="URL of the engine, with or without /v1.")]
    host: Annotated[str, Parameter(help="Address to listen on; anyone who reaches it can use the engine.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Parameter(help="TCP port to listen on; 0 takes a free one.")] = 8900
    shadow: Annotated[bool, Parameter(negative=(), help="Predict and measure, but start nothing.")] = False
    depth: Annotated[int, Parameter(help="Unverified predicted results in a chain, at most.")] = 1
    breadth: Annotated[int, Parameter(help="Distinct predictions that may start a request, for one result.")] = 1
    gate: Annotated[bool, Parameter(help="Start a request only where what it hides is worth what it costs.")] = True
    world_model: Annotated[
        str, Parameter(help="URL of an engine that predicts, on chat routes, what nothing cheaper can.")
    ] = ""
    world_model_name: Annotated[str, Parameter(help="Model name at --world-model; its first one by default.")] = ""
    tokenizer: Annotated[Path | None, Parameter(help="tokenizer.json of the served model, for token routes.")] = None
    session_header: Annotated[str, Parameter(help="A header of yours that names a session.")] = ""
    ignore_header: Annotated[tuple[str, ...], Parameter(help="Headers that say nothing about the answer.")] = ()
    priorities: Annotated[bool, Parameter(negative=(), help="The engine runs with --scheduling-policy priority.")] = (
        False
    )
    max_sessions: Annotated[int, Parameter(help="Conversations that are remembered.")] = 1024
    sessions_mib: Annotated[int, Parameter(help="What is remembered of them, together.")] = 512
    max_branches: Annotated[int, Parameter(help="Requests under way that nobody has asked for yet.")] = 256
    idle_s: Annotated[float, Parameter(help="A conversation that is silent for so long is forgotten.")] = 900.0
    buffer_mib: Annotated[int, Parameter(help="Answers that nobody has asked for yet, together.")] = 256
    max_lag_s: Annotated[float, Parameter(help="Nothing starts early while the proxy itself is so far behind.")] = 0.1
    predict_s: Annotated[float, Parameter(help="A slower prediction counts as failed.")] = 30.0
    drain_s: Annotated[float, Parameter(help="When told to stop, requests may finish for so long.")] = 30.0

    def check(self) -> None:
        """Raises `ConfigError`."""
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(self, name)}")
        for name in ("idle_s", "max_lag_s", "predict_s", "drain_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"--{name.replace('_', '-')} must be more than 0, got {getattr(self, name)}")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"--port {self.port} is no TCP port: choose one below 65536, or 0 for any")

    @property
    def is_local(self) -> bool:
        """Nothing but this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
