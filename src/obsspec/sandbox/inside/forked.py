"""The init of one fork: an ordinary one that can also say where it stands, so that it can be copied.

Beside the requests of `init`:

    resume, rules, head, profile, environment, step    ->  ok: go on where the copied fork stood
    enter, directory                    ->  ok: where the first command runs
    checkpoint                          ->  ok, step, last process number  |  error: jobs run
    write, count, placed files          ->  ok  |  error, message
"""

from __future__ import annotations

import os
import signal
import stat
import time

from . import processes, state
from .init import Init, now_ns
from .shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .fields import Fields

LAST_PROCESS = "/proc/sys/kernel/ns_last_pid"
SETTLE_S = 0.05  # for processes that are about to end
JOBS = b"jobs"


class ForkedInit(Init):
    """Owns everything inside one fork. `roots`: where commands can write."""

    def __init__(self, roots: list[str]) -> None:
        super().__init__()
        self._writable = roots
        self._begun = False
        self._next: Shell | None = None  # of the next command
        self._last = b""  # process number before it

    @property
    def _roots(self) -> list[str]:
        return self._writable

    def _confine(self) -> None:
        """Done before the capabilities for it were given up."""

    def _answer(self, fields: Fields) -> list[bytes]:
        at = fields.at
        match fields.text():
            case "resume":
                return self._resume(fields)
            case "enter":
                self._install(fields.text())
                return [b"ok"]
            case "checkpoint":
                return self._checkpoint()
            case "write":
                return self._write(fields)
            case _:
                fields.at = at
                return super()._answer(fields)

    def _prepare(self) -> None:
        """Also the process of the next command: as no other lives, nobody sees that it is there already."""
        super()._prepare()
        if not self._begun or self._jobs or self._next is not None:
            return
        self._last = last_process()
        try:
            self._next = Shell({"BASH_ENV": state.START}, self._rules)
        except OSError:
            return  # it is tried again when the command is there

    def end(self) -> None:
        """Leave no process behind, so that none is there when the owner sees the end of this one."""
        if self._next is not None:
            os.kill(self._next.process, signal.SIGKILL)
            os.waitpid(self._next.process, 0)
        processes.kill_outside(set())

    def _begin(self, fields: Fields) -> None:
        super()._begin(fields)
        self._begun = True

    def _shell(self, command: bytes, environment: dict[str, str]) -> Shell:
        shell, self._next = self._next, None  # none is there before the set-up is over
        if shell is not None and shell.begin(command):
            return shell
        if shell is not None:
            shell.forget()
        return super()._shell(command, environment)

    def _resume(self, fields: Fields) -> list[bytes]:
        self._begin(fields)
        self._step = fields.number()
        return [b"ok"]

    def _checkpoint(self) -> list[bytes]:
        end = time.monotonic() + SETTLE_S
        while self._jobs and processes.any_living():
            if time.monotonic() > end:
                return [b"error", JOBS]
            time.sleep(0.001)
        self._jobs = False
        return [b"ok", b"%d" % self._step, last_process() if self._next is None else self._last]

    def _write(self, fields: Fields) -> list[bytes]:
        began = now_ns()
        placed = [_Placed(fields) for _ in range(fields.number())]
        try:
            for one in placed:
                one.lay_down()
            self._settle(began)
            for one in placed:
                one.date()
        except OSError as error:
            return [b"error", f"{error.strerror}: {os.fsdecode(error.filename or b'')!r}".encode()]
        return [b"ok"]


class _Placed:
    """One file, directory or link with an absolute path."""

    def __init__(self, fields: Fields) -> None:
        self._path, self._kind = fields.raw(), fields.raw()
        self._mode, self._owner = fields.number(), fields.number()
        self._time_ns, self._content = fields.raw(), fields.raw()

    def lay_down(self) -> None:
        self._make_parents(os.path.dirname(self._path))
        if self._kind == b"directory":
            os.makedirs(self._path, exist_ok=True)
        else:
            if os.path.lexists(self._path) and not stat.S_ISREG(os.lstat(self._path).st_mode):
                os.unlink(self._path)
            self._make()
        os.chown(self._path, self._owner, self._owner, follow_symlinks=False)
        if self._kind != b"link":
            os.chmod(self._path, self._mode)

    def _make(self) -> None:
        if self._kind == b"link":
            if os.path.lexists(self._path):
                os.unlink(self._path)
            os.symlink(self._content, self._path)
            return
        with open(self._path, "wb") as file:
            file.write(self._content)

    def _make_parents(self, path: bytes) -> None:
        if not os.path.isdir(path):
            self._make_parents(os.path.dirname(path))
            os.mkdir(path, 0o755)
            os.chown(path, self._owner, self._owner)

    def date(self) -> None:
        if self._time_ns:
            times = (int(self._time_ns), int(self._time_ns))
            os.utime(self._path, ns=times, follow_symlinks=False)


def last_process() -> bytes:
    """The highest number a process of this fork has had lately; empty where the kernel does not tell."""
    try:
        with open(LAST_PROCESS, "rb") as file:
            return file.read().strip()
    except OSError:
        return b""


def count_from(last: bytes) -> None:
    """Number processes as the copied fork would have. Without this feature of the kernel, numbers start again."""
    try:
        with open(LAST_PROCESS, "wb") as file:
            file.write(last)
    except OSError:
        return
