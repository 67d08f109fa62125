"""What does not need a sandbox: the file that is uploaded, the packages of providers, and wrong settings."""

from __future__ import annotations

import ast
import io
import re
import zipfile
from importlib.metadata import PackageNotFoundError
from types import ModuleType

import pytest

from obsspec.sandbox.profile import PROFILES
from obsspec.sandbox.providers import sdk
from obsspec.sandbox.providers.bundle import runner
from obsspec.sandbox.providers.machine import RunnerSettings
from obsspec.values import ConfigError


def test_the_runner_is_all_there_and_old_pythons_can_read_it() -> None:
    with zipfile.ZipFile(io.BytesIO(runner())) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    for path, text in texts.items():
        ast.parse(text, path, feature_version=(3, 8))
        for modules in re.findall(r"from \. import ([\w, ]+)", text) + re.findall(r"from \.(\w+) import", text):
            for module in (name.split()[0] for name in modules.split(", ")):
                assert f"obsspec/sandbox/inside/{module}.py" in texts, f"{path} imports {module}"


def found(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(sdk, "version", lambda _: version)
    monkeypatch.setattr(sdk, "import_module", ModuleType)


@pytest.mark.parametrize("version", ["2.60.0", "2.63", "2.100.1", "2.60rc1"])
def test_a_package_of_a_known_version_is_loaded(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    found(monkeypatch, version)
    assert sdk.load("e2b", (2, 60), (3, 0)).__name__ == "e2b"


@pytest.mark.parametrize("version", ["2.59.9", "3.0.0", "1.9"])
def test_another_version_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    found(monkeypatch, version)
    with pytest.raises(
        ConfigError, match=rf"e2b is {version}, and must be 2.60 or later, below 3.0: .*'obsspec\[e2b\]'"
    ):
        sdk.load("e2b", (2, 60), (3, 0))


def test_a_missing_package_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sdk, "version", version)
    with pytest.raises(ConfigError, match=r"modal is missing: install it with `pip install 'obsspec\[modal\]'`"):
        sdk.load("modal", (1, 6), (2, 0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": 0}, "must be more than 0"),
        ({"max_characters": 0}, "must be at least 1"),
        ({"profile": PROFILES["strict"]}, "without `clock`"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunnerSettings(**options)  # type: ignore[arg-type]
