"""Starting one command: a fresh bash in a session of its own, with limits, empty stdin and two pipes."""

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


class Started:
    """A running command and the read ends of its pipes."""

    def __init__(self, process: int, stdout: int, stderr: int) -> None:
        self.process = process
        self.stdout = stdout
        self.stderr = stderr


def start(command: bytes, environment: dict[str, str], rules: Rules) -> Started:
    """Fork and execute."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    process = os.fork()
    if process == 0:
        _become(command, environment, rules, out_write, err_write)
    os.close(out_write)
    os.close(err_write)
    return Started(process, out_read, err_read)


def _become(command: bytes, environment: dict[str, str], rules: Rules, out: int, err: int) -> None:
    try:
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        _limit(rules)
        os.chdir(rules.home)
        options = [b"-c", b"--"] if command[:1] in (b"-", b"+") else [b"-c"]
        os.execve(BASH, [b"bash", *options, command], environment)
    except OSError as error:
        os.write(2, f"bash: {error.strerror}\n".encode())
    finally:
        os._exit(126)  # whatever happens, nothing may return into the parent's code


def _limit(rules: Rules) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, rules.memory_bytes),
        (resource.RLIMIT_FSIZE, rules.file_bytes),
        (resource.RLIMIT_CPU, rules.cpu_s),
        (resource.RLIMIT_NOFILE, rules.open_files),
        (resource.RLIMIT_NPROC, rules.processes),
    ):
        if value:
            resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if rules.user is not None:
        os.setgroups([])
        os.setresgid(rules.user, rules.user, rules.user)
        os.setresuid(rules.user, rules.user, rules.user)
