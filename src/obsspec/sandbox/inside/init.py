"""Process number 1 of a sandbox: takes requests on stdin, one at a time, and answers on stdout.

Requests and answers are frames (`frames`); numbers are decimal text.

    open, rules, head, profile, environment, directories, files, commands  ->  ok  |  error, message
    run, command, seconds, parts?  ->  done, exit code, flags, stdout, stderr
                                before that, if parts are wanted, any number of: part, next lines of stdout
    cancel                      ->  nothing by itself: a `run` that is under way ends with flag c
    tree, byte limit            ->  ok, four fields for each path  |  error, message

Flags: c cancelled, j processes still run, k output clipped, s shell state lost, t timed out.
The end of stdin ends this process and, as it is number 1, every process of the sandbox.
"""

from __future__ import annotations

import os
import time

from . import files, processes, run, state
from .fields import Fields
from .frames import encode
from .reactor import Reactor
from .shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ANSWERS = 1
SETUP_TIMEOUT_S = 60.0
SCRATCH = "/tmp"


class Init:
    """Owns everything inside one sandbox."""

    def __init__(self) -> None:
        os.umask(0o022)
        self._reactor = Reactor()
        self._environment: dict[str, str] = {}
        self._jobs = False  # processes of earlier commands may live
        self._unsettled: int | None = None  # since when files have changed, if their times are still to be settled
        self._step = 0
        self._profile = "t"  # until it is told

    def serve(self) -> None:
        """Answer requests until the owner goes away."""
        reactor = self._reactor
        while not reactor.closed:
            reactor.wait(None)
            reactor.ended.clear()
            while reactor.frames:
                send(self._answer(Fields(reactor.frames.pop(0))))
                self._prepare()

    def _prepare(self) -> None:
        """What nobody has to wait for, unless the next request comes at once."""
        if self._unsettled is not None:
            self._settle(self._unsettled)
            self._unsettled = None

    def _answer(self, fields: Fields) -> list[bytes]:
        asked = fields.text()
        if asked == "open":
            return self._open(fields)
        if asked == "run":
            return self._run(fields.raw(), fields.real(), parts=not fields.at_end)
        if asked == "tree":
            return self._tree(fields.number())
        return []  # a cancel that came too late

    def _open(self, fields: Fields) -> list[bytes]:
        began = now_ns()
        self._begin(fields)
        directories = fields.items()
        content = [(fields.raw(), fields.number(), fields.raw()) for _ in range(fields.number())]
        try:
            self._confine()
            files.lay_down(self._rules.home, directories, content, self._rules.user)
        except (OSError, ValueError) as error:
            return [b"error", f"cannot make the sandbox: {error}".encode()]
        for command in fields.items():
            result = self._execute(command, self._environment, SETUP_TIMEOUT_S)
            if result.exit_code != 0:
                said = (result.stdout + result.stderr).strip()[-400:]
                return [b"error", b"set-up command `%s` failed (exit code %d): %s" % (command, result.exit_code, said)]
        self._settle(began)
        self._install("")
        return [b"ok"]

    def _install(self, directory: str) -> None:
        """The shell before the first command, which runs in `directory`, or in HOME."""
        first = state.initial(self._environment, directory)
        state.install(first, self._rules.user, seeded="r" in self._profile)

    def _begin(self, fields: Fields) -> None:
        self._rules = fields.rules()
        self._head = fields.number()
        self._profile = fields.text()
        self._environment = fields.mapping()

    def _confine(self) -> None:
        if self._rules.user is not None:
            forbid_user_namespaces()

    @property
    def _roots(self) -> list[str]:
        return [self._rules.home, SCRATCH]

    def _execute(
        self, command: bytes, environment: dict[str, str], timeout_s: float, tell: Callable[[bytes], None] | None = None
    ) -> run.Result:
        spared: set[int] = processes.sessions() if self._jobs else set()
        result = run.run(self._reactor, self._shell(command, environment), self._head, timeout_s, spared, tell)
        self._jobs = processes.any_living()
        return result

    def _shell(self, command: bytes, environment: dict[str, str]) -> Shell:
        shell = Shell(environment, self._rules)
        shell.begin(command)
        return shell

    def _run(self, command: bytes, timeout_s: float, *, parts: bool) -> list[bytes]:
        began = now_ns()
        self._step += 1
        self._tell_step()
        result = self._execute(command, {"BASH_ENV": state.START}, timeout_s, _tell if parts else None)
        kept = state.adopt(wanted=not (result.timed_out or result.cancelled))
        self._unsettled = began
        flags = "".join(
            letter
            for letter, on in (
                ("c", result.cancelled),
                ("j", self._jobs),
                ("k", result.clipped),
                ("s", not kept),
                ("t", result.timed_out),
            )
            if on
        )
        return [b"done", b"%d" % result.exit_code, flags.encode(), result.stdout, result.stderr]

    def _settle(self, began: int) -> None:
        if "t" in self._profile:
            files.settle_times(self._roots, began, self._step)

    def _tell_step(self) -> None:
        """What the profile makes a function of the number of the command."""
        if "c" in self._profile:
            state.put(state.CLOCK, f"{files.logical_ns(self._step) // 10**9}\n", self._rules.user)
        if "r" in self._profile:
            state.put(state.SEED, f"RANDOM={self._step}\n", self._rules.user)

    def _tree(self, limit: int) -> list[bytes]:
        try:
            return [b"ok", *files.read_tree(self._rules.home, limit)]
        except (files.TreeTooLargeError, OSError) as error:
            return [b"error", str(error).encode()]


def _tell(lines: bytes) -> None:
    send([b"part", lines])


def forbid_user_namespaces() -> None:
    """In one of its own, a command could mount file systems without a limit. (With one user, bubblewrap does it.)"""
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")


def now_ns() -> int:
    """Not after the time of any file that is written from now on: file times come from a coarser clock."""
    return time.time_ns() - 20_000_000


def send(answer: list[bytes]) -> None:
    if not answer:
        return
    data = memoryview(encode(answer))
    while data:
        data = data[os.write(ANSWERS, data) :]
