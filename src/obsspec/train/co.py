"""`obsspec train co`: policy and world model together, two processes that share a transition log and a folder."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from obsspec.train.policy_settings import PolicySettings
from obsspec.train.rollout_settings import RolloutSettings
from obsspec.train.world_settings import WorldSettings
from obsspec.values import ConfigError, EngineError, SandboxError

_RESTARTS = 3  # of either process, each after it was killed
_SAID = (ConfigError, EngineError, SandboxError)
_INTERRUPTED = 130
_WRONG = 2  # exit status of a process that said what is wrong
_STOP_S = 60.0

Say = Callable[[str], None]
Work = Callable[[], None]  # what a process does; it is pickled


def train_together(policy: Work, follow: Work, finish: Work, say: Say) -> None:
    """`policy` to its end, `follow` beside it, then `finish`: each the work of a process of its own.

    One that is killed is started again, some times, and has to know how to go on. Raises `ConfigError` when one fails
    for good; the others are stopped then.
    """
    following, acting = Child("world", follow, endless=True), Child("policy", policy)
    try:
        while acting.running:
            wait([child.process.sentinel for child in (acting, following) if child.running])
            for child in (acting, following):
                child.look(say)
    finally:
        for child in (acting, following):
            child.stop()
    say("the policy is finished, the world model reads the log to its end")
    last = Child("world", finish)
    try:
        while last.running:
            wait([last.process.sentinel])
            last.look(say)
    finally:
        last.stop()


class Child:
    """A process that is started again when it is killed. It ends with this process, however that ends.

    `endless`: of itself it does not end, so somebody else has stopped it when it does.
    """

    def __init__(self, name: str, work: Work, *, endless: bool = False) -> None:
        self._name, self._work, self._endless = name, work, endless
        self._restarts = 0
        self.running = True
        self.process = self._start()

    def _start(self) -> SpawnProcess:
        process = multiprocessing.get_context("spawn").Process(target=_inside, args=(self._work,))
        process.start()
        return process

    def look(self, say: Say) -> None:
        """Whether it has ended, and what now. Raises `ConfigError`."""
        status = self.process.exitcode
        if status is None or not self.running:
            return
        if status == 0 and not self._endless:
            self.running = False
            return
        if status > 0 or self._restarts == _RESTARTS:
            why = "said why above" if status == _WRONG else f"ended with status {status}"
            raise ConfigError(f"the {self._name} trainer {why}: the same command goes on from its checkpoint")
        self._restarts += 1
        how = f"killed (signal {-status})" if status else "stopped"
        say(f"the {self._name} trainer was {how} and is started again")
        self.process = self._start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(_STOP_S)
        self.process.kill()
        self.process.join()


def _inside(work: Work) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        wait([parent.sentinel])
        os._exit(1)  # as if killed: the next run goes on from the checkpoint

    threading.Thread(target=leave, daemon=True).start()
    try:
        work()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except (*_SAID, BaseExceptionGroup) as raised:
        error = _only(raised)
        if error is None:
            raise
        sys.stderr.write(f"obsspec: {error}\n")
        sys.exit(_WRONG)


def _only(error: BaseException) -> BaseException | None:
    """Of a group of nothing but errors that one line can say, the first."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        if group.split(_SAID)[1] is not None:
            return None
        error = group.exceptions[0]
    return error


@dataclass(frozen=True, slots=True)
class World:
    """The work of `obsspec train world`."""

    start: Path
    log: Path
    out: Path
    settings: WorldSettings
    follow: bool

    def __call__(self) -> None:
        from obsspec.train.world import train_world

        os.nice(5)  # rollouts wait for the policy, nobody waits for a new version
        train_world(self.start, self.log, self.out, self.settings, _say, follow=self.follow)


@dataclass(frozen=True, slots=True)
class Policy:
    """The work of `obsspec train policy`."""

    start: Path
    out: Path
    settings: PolicySettings
    rollouts: RolloutSettings

    def __call__(self) -> None:
        from obsspec.train.policy import train_policy

        train_policy(self.start, self.out, self.settings, self.rollouts, _say)


def _say(what: Any) -> None:
    Console(soft_wrap=True).print(what)
