"""The packages of providers: imported when they are needed, and only in versions that are known to fit."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from obsspec.values import ConfigError


def load(package: str, lowest: tuple[int, int], below: tuple[int, int]) -> Any:
    """The package, which has the name of its extra. Raises `ConfigError` if it is missing or of another version."""
    install = f"install it with `pip install 'obsspec[{package}]'`"
    try:
        found = version(package)
        module = import_module(package)
    except (PackageNotFoundError, ImportError) as error:
        raise ConfigError(f"the package {package} is missing: {install}") from error
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if not lowest <= numbers < below:
        wanted = f"{lowest[0]}.{lowest[1]} or later, below {below[0]}.{below[1]}"
        raise ConfigError(f"the package {package} is {found}, and must be {wanted}: {install}")
    return module
