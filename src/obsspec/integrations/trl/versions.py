"""The versions of TRL that these adapters were tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from obsspec.values import ConfigError

TESTED = "1.16"


def check_trl() -> None:
    """Raises `ConfigError` where another TRL is installed, or none: `rollout_func` is an experimental feature of it."""
    try:
        found = version("trl")
    except PackageNotFoundError:
        raise ConfigError('trl is not installed: pip install "obsspec[trl]"') from None
    if not f"{found}.".startswith(f"{TESTED}."):
        raise ConfigError(f'trl {found} is installed, tested is {TESTED}: pip install "trl=={TESTED}.*"')
