"""Numbers among the options of a command that can not be meant: one sentence that names the option."""

from __future__ import annotations

import math

from obsspec.values import ConfigError


def at_least(options: object, **least: float) -> None:
    """None of these attributes is smaller, infinite or no number; None is none. Raises `ConfigError`."""
    for name, smallest in least.items():
        value: float | None = getattr(options, name)
        if value is not None and not (value >= smallest and math.isfinite(value)):
            raise ConfigError(f"{_option(name)} must be at least {smallest:g}, got {value:g}")


def positive(options: object, *names: str) -> None:
    """Each of these attributes is a number above 0. Raises `ConfigError`."""
    for name in names:
        value: float = getattr(options, name)
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{_option(name)} must be above 0, got {value:g}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
