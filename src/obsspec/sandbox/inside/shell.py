"""Starting one command: a fresh bash in a session of its own, with limits, empty stdin and two pipes.

All but executing bash comes before the command is known, so that it may be done ahead of it.
"""

from __future__ import annotations

import os
import resource
import signal

BASH = "/bin/bash"
IGNORED = (  # by this process or by Python, and not by commands
    *(signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD),
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
)


class Rules:
    """What every command runs under. A limit of 0 is left as it is. `user` is None where the sandbox has one user."""

    def __init__(
        self,
        home: str,
        memory_bytes: int,
        processes: int,
        file_bytes: int,
        cpu_s: int,
        open_files: int,
        user: int | None,
    ) -> None:
        self.home = home
        self.memory_bytes = memory_bytes
        self.processes = processes
        self.file_bytes = file_bytes
        self.cpu_s = cpu_s
        self.open_files = open_files
        self.user = user


class Shell:
    """A process that becomes the shell of one command, and the read ends of its pipes. Raises OSError."""

    def __init__(self, environment: dict[str, str], rules: Rules) -> None:
        (command, self._command), (self.stdout, out), (self.stderr, err) = os.pipe(), os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self._command)
            _become(command, environment, rules, out, err)
        for fd in (command, out, err):
            os.close(fd)

    def begin(self, command: bytes) -> bool:
        """Once. False if the process has gone."""
        data = memoryview(command)
        try:
            while data:
                data = data[os.write(self._command, data) :]
        except BrokenPipeError:
            return False
        finally:
            os.close(self._command)
        return True

    def forget(self) -> None:
        """It is not going to be watched."""
        os.close(self.stdout)
        os.close(self.stderr)


def _become(source: int, environment: dict[str, str], rules: Rules, out: int, err: int) -> None:
    try:
        problem = _get_ready(rules, out, err)
        command = _read(source)
        if problem is not None:
            raise problem
        _limit(resource.RLIMIT_AS, rules.memory_bytes)  # last: it is not meant for Python
        options = [b"-c", b"--"] if command[:1] in (b"-", b"+") else [b"-c"]
        os.execve(BASH, [b"bash", *options, command], environment)
    except OSError as error:
        os.write(2, f"bash: {error.strerror}\n".encode())
    finally:
        os._exit(126)  # whatever happens, nothing may return into the parent's code


def _get_ready(rules: Rules, out: int, err: int) -> OSError | None:
    """What cannot be done is said when the command is there."""
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    try:
        _become_user(rules)
    except OSError as error:
        return error
    return None


def _read(source: int) -> bytes:
    parts = [os.read(source, 1 << 16)]
    while parts[-1]:
        parts.append(os.read(source, 1 << 16))
    return b"".join(parts)


def _limit(kind: int, value: int) -> None:
    if value:
        resource.setrlimit(kind, (value, value))


def _become_user(rules: Rules) -> None:
    _limit(resource.RLIMIT_FSIZE, rules.file_bytes)
    _limit(resource.RLIMIT_CPU, rules.cpu_s)
    _limit(resource.RLIMIT_NOFILE, rules.open_files)
    _limit(resource.RLIMIT_NPROC, rules.processes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(rules.home)
    if rules.user is not None:
        os.setgroups([])
        os.setresgid(rules.user, rules.user, rules.user)
        os.setresuid(rules.user, rules.user, rules.user)
