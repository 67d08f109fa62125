"""What all tests share: properties are checked on the same cases every time, unless somebody goes looking for others.

HYPOTHESIS_PROFILE=explore pytest tests/core
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
