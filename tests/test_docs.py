"""The map of the project names every module."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_module_has_its_sentence() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "obsspec"
    modules = [path.relative_to(package).with_suffix("") for path in package.rglob("*.py")]
    names = [".".join(path.parts) for path in modules if not path.name.startswith("__")]
    assert [name for name in names if f"| `{name}` |" not in page] == []
