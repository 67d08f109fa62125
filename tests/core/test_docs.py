"""The example in the documentation runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_example_of_the_testing_page_holds() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(code, {})  # noqa: S102 - our own page
