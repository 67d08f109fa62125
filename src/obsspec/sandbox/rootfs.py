"""The read-only root directory that all sandboxes of this process share: links, /etc, a few tools, the init."""

from __future__ import annotations

import compileall
import shutil
import sys
from functools import cache
from pathlib import Path

from obsspec.sandbox import inside
from obsspec.sandbox.inside.state import CLOCK
from obsspec.sandbox.profile import LOGICAL_BIN
from obsspec.sandbox.scratch import process_directory
from obsspec.sandbox.spec import HOME

CODE = "/opt/obsspec"
PYTHON = "/opt/python"
BIN = "/opt/bin"
MOUNTS = ("dev", "proc", "usr", "tmp", "run/obsspec", "opt/python", "etc/alternatives", HOME.removeprefix("/"))
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/tmp": "/tmp"}
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "gitconfig": "[user]\n\tname = user\n\temail = user@sandbox\n[init]\n\tdefaultBranch = main\n"
    "[advice]\n\tdetachedHead = false\n",
}

_DATE = f"""#!/bin/sh
# The time of the command by the logical clock of this sandbox.
for argument; do
  case $argument in -*[dfrs]*|--date*|--file*|--reference*|--set*) exec /usr/bin/date "$@" ;; esac
done
read -r now < {CLOCK} && exec /usr/bin/date -d "@$now" "$@"
exec /usr/bin/date "$@"
"""


@cache
def root_directory() -> Path:
    """Made at the first call, removed when this process ends."""
    root = process_directory()
    root.chmod(0o755)
    for mount in MOUNTS:
        (root / mount).mkdir(parents=True)
    for link, target in LINKS.items():
        (root / link).parent.mkdir(exist_ok=True)
        (root / link).symlink_to(target)
    for name, text in ETC.items():
        (root / "etc" / name).write_text(text)
    if Path("/etc/ld.so.cache").exists():
        shutil.copy("/etc/ld.so.cache", root / "etc/ld.so.cache")
    _add_code(root)
    _add_tools(root)
    _add_clock(root)
    _open_to_all(root)
    return root


def _open_to_all(root: Path) -> None:
    """Readable by the sandbox's user whatever the umask of this process is."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def python_inside() -> str:
    """Where the Python of this process is inside a sandbox."""
    name = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{PYTHON if python_is_foreign() else sys.base_prefix}/{name}"


def python_is_foreign() -> bool:
    """True if /usr, which every sandbox sees, does not hold the Python of this process."""
    return not Path(sys.base_prefix).is_relative_to("/usr")


def _add_code(root: Path) -> None:
    code = root / CODE.removeprefix("/") / "inside"
    shutil.copytree(inside.__path__[0], code, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(code, quiet=1, force=True)


def _add_clock(root: Path) -> None:
    tools = root / LOGICAL_BIN.removeprefix("/")
    tools.mkdir(parents=True)
    (tools / "date").write_text(_DATE)
    (tools / "date").chmod(0o755)


def _add_tools(root: Path) -> None:
    tools = root / BIN.removeprefix("/")
    tools.mkdir(parents=True)
    for name in ("python", "python3"):
        (tools / name).symlink_to(python_inside())
    if not Path("/usr/bin/sqlite3").exists():
        source = Path(__file__).with_name("sqlite_cli.py").read_text()
        (tools / "sqlite3").write_text(f"#!{BIN}/python3 -I\n{source}")
        (tools / "sqlite3").chmod(0o755)
    if python_is_foreign():
        # a shared libpython is looked for where it was installed
        old = root / sys.base_prefix.removeprefix("/")
        if not old.is_relative_to(root / HOME.removeprefix("/")) and not old.exists():
            old.parent.mkdir(parents=True, exist_ok=True)
            old.symlink_to(PYTHON)
