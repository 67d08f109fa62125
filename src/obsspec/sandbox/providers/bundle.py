"""The runner as one file: the code that runs inside our own sandboxes, and what it shares with the outside."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path

import obsspec

PROGRAM = "/var/tmp/obsspec-runner.pyz"  # not in /tmp, where commands would see it; there in every usual image
PARTS = (
    "chain.py",
    "sandbox/output.py",
    *(f"sandbox/inside/{name}.py" for name in ("collect", "fields", "files", "frames", "hosted", "init")),
    *(f"sandbox/inside/{name}.py" for name in ("ledger", "processes", "reactor", "run", "runner", "service")),
    *(f"sandbox/inside/{name}.py" for name in ("shell", "state")),
)
_PACKAGES = ("", "sandbox/", "sandbox/inside/")
_MAIN = "import sys\nfrom obsspec.sandbox.inside.runner import main\nmain(sys.argv[0], sys.argv[1:])\n"
_TIME = (1980, 1, 1, 0, 0, 0)


@cache
def runner() -> bytes:
    """A zip file that Python runs. The same bytes each time."""
    root = Path(obsspec.__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _TIME), _MAIN)
        for package in _PACKAGES:
            archive.writestr(zipfile.ZipInfo(f"obsspec/{package}__init__.py", _TIME), "")
        for part in PARTS:
            archive.writestr(zipfile.ZipInfo(f"obsspec/{part}", _TIME), (root / part).read_bytes())
    return buffer.getvalue()
