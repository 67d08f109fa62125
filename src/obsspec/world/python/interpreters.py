"""A Python that tool calls can be run with, and the sandbox around it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from obsspec.sandbox import bubblewrap, identity
from obsspec.sandbox import inside as sandbox_inside
from obsspec.sandbox.limits import MIB, Limits
from obsspec.sandbox.rootfs import root_directory
from obsspec.sandbox.spec import HOME
from obsspec.values import ConfigError
from obsspec.world.python import inside

CODE = "/opt/obsspec"
PLACES = "/opt/places"
OWN = (HOME, "/tmp", "/dev/shm")  # every room has these to itself
ASK_S = 20.0
OLDEST = (3, 8)
CAPABILITIES = ("SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "CHOWN", "KILL", "SYS_RESOURCE", "DAC_OVERRIDE")
# imported once, before any fork; larger ones would make every fork dearer than they save
MODULES = (
    *("ast", "cmath", "collections", "datetime", "decimal", "fractions", "functools", "heapq", "itertools", "json"),
    *("linecache", "math", "random", "re", "statistics", "string", "traceback", "numpy", "mpmath", "sympy"),
)
LIMITS = Limits(
    memory_bytes=2048 * MIB, processes=256, disk_bytes=16 * MIB, file_bytes=16 * MIB, cpu_s=60, open_files=128
)
_QUESTION = "import json, sys; print(json.dumps([sys.version_info[:2], sys.base_prefix, sys.prefix, sys.path]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`path` is a Python 3.8 or later, of a virtual environment or not; what it has installed can be imported.

    The nearer it is to the one that the tool runs, the more it predicts: the same versions print the same.
    """

    path: Path
    version: tuple[int, int]
    mounts: tuple[str, ...]  # seen inside, read-only: under the same names, unless a room has its own there

    @property
    def path_inside(self) -> str:
        for index, path in enumerate(self.mounts):
            if self.path.is_relative_to(path):
                return str(Path(_place(index, path)) / self.path.relative_to(path))
        return str(self.path)


def find_interpreter(path: str | Path = sys.executable) -> Interpreter:
    """Asks the Python at `path` where it lives. Blocks for some 50 ms. Raises `ConfigError`."""
    try:
        # -I: neither the directory nor the environment of this process has a say
        answer = subprocess.run([str(path), "-I", "-c", _QUESTION], capture_output=True, timeout=ASK_S, check=True)
        version, base, prefix, places = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"{path} does not run as a Python interpreter: name one of {OLDEST} or later") from error
    if tuple(version) < OLDEST:
        raise ConfigError(f"{path} is Python {version[0]}.{version[1]}: name one of 3.8 or later")
    wanted = [base, prefix, *(place for place in places if Path(place).is_dir())]
    return Interpreter(Path(shutil.which(path) or path).absolute(), (version[0], version[1]), _outermost(wanted))


def _place(index: int, path: str) -> str:
    """Where a mount is inside: what lies below a directory that every room has to itself gets a place elsewhere."""
    hidden = any(Path(path).is_relative_to(own) for own in (*OWN, "/dev", "/proc"))
    return f"{PLACES}/{index}" if hidden else path


def _outermost(paths: Sequence[str]) -> tuple[str, ...]:
    """Without those inside others; /usr is there anyway."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(Path(path).is_relative_to(other) for other in ("/usr", *kept)):
            kept.append(path)
    return tuple(kept)


def arguments(interpreter: Interpreter, limits: Limits, extra: Sequence[str] = ()) -> list[str]:
    """The command line of the sandbox that all rooms of one interpreter share; the fork server is its process 1."""
    program = f"import sys; sys.path.insert(0, {CODE!r}); import repl.__main__"
    return [
        str(bubblewrap.find_bubblewrap()),
        *extra,
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--hostname", bubblewrap.HOSTNAME, "--clearenv"),
        *("--die-with-parent", "--new-session", "--as-pid-1"),
        *([] if identity.two_users() else ["--uid", str(identity.UID), "--gid", str(identity.UID)]),
        *("--cap-drop", "ALL", *(part for name in CAPABILITIES for part in ("--cap-add", f"CAP_{name}"))),
        *_mounts(interpreter, limits),
        *_environment(),
        *("--chdir", HOME, interpreter.path_inside, "-s", "-c", program),
    ]


def _mounts(interpreter: Interpreter, limits: Limits) -> list[str]:
    root = root_directory()
    mounts = ["--size", str(MIB), "--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--ro-bind", str(root / "etc"), "/etc"]
    for link in ("bin", "sbin", "lib", "lib64"):
        mounts += ["--symlink", f"usr/{link}", f"/{link}"]
    for index, path in enumerate(interpreter.mounts):
        place = _place(index, path)
        for parent in list(Path(place).parents)[-2::-1]:  # else only root could go through
            mounts += ["--perms", "0755", "--dir", str(parent)]
        mounts += ["--ro-bind", path, place]
    mounts += [
        "--ro-bind",
        sandbox_inside.__path__[0],
        f"{CODE}/inside",
        "--ro-bind",
        inside.__path__[0],
        f"{CODE}/repl",
    ]
    mounts += ["--proc", "/proc", "--dev", "/dev"]
    for path in OWN:
        mounts += ["--size", str(limits.disk_bytes), "--tmpfs", path]
    return [*mounts, "--remount-ro", "/dev", "--remount-ro", "/"]


def _environment() -> list[str]:
    values = {
        **{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": HOME, "USER": "user", "LANG": "C.UTF-8", "TERM": "dumb"},
        **{"TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "80"},
        # threads do not survive a fork
        **{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    }
    return [part for name, value in values.items() for part in ("--setenv", name, value)]
