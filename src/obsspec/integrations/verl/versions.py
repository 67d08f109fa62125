"""Whether the verl that is installed is one this adapter was tested with."""

from __future__ import annotations

from importlib import metadata

from obsspec.values import ConfigError

TESTED = (0, 9)
_WANTED = "verl>=0.9.1,<0.10"


def check_verl() -> None:
    """Raises `ConfigError` where verl is missing, or is a version whose insides may differ."""
    try:
        found = metadata.version("verl")
    except metadata.PackageNotFoundError:
        raise ConfigError(f"verl is not installed: pip install 'obsspec[verl]' ({_WANTED})") from None
    if not _accepted(found):
        raise ConfigError(f"verl {found} is not supported: install '{_WANTED}'")


def _accepted(version: str) -> bool:
    """At least 0.9.1 and before 0.10; a pre-release of 0.9.1 is before it, a local build of it is not."""
    release, _, _ = version.partition("+")
    numbers = release.split(".")
    if len(numbers) < 3 or not all(number.isdigit() for number in numbers[:2]):
        return False
    patch = numbers[2]
    return (int(numbers[0]), int(numbers[1])) == TESTED and patch.isdigit() and int(patch) >= 1
