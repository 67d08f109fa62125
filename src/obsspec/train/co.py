"""`obsspec train co`: policy and world model together, two processes that share a transition log and a folder."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from rich.console import Console

from obsspec.train.policy_settings import PolicySettings
from obsspec.train.terminal import RolloutSettings
from obsspec.train.world_settings import WorldSettings
from obsspec.values import ConfigError, EngineError

_RESTARTS = 3  # of either process, each after it was killed
_WRONG = 2  # exit status of a process that said what is wrong
_STOP_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Together:
    """A run of both: where the policy and the world model begin, and how the policy is trained."""

    policy_start: Path
    world_start: Path
    out: Path
    policy: PolicySettings
    rollouts: RolloutSettings

    @property
    def log(self) -> Path:
        return self.out / "policy" / "transitions"

    @property
    def world_out(self) -> Path:
        return self.out / "world"


def train_together(run: Together, world: WorldSettings, say: Say) -> None:
    """Until the policy has made its steps and the world model has seen all their turns.

    A process that is killed goes on from its checkpoint, some times. Raises `ConfigError` when one fails for good;
    the other is stopped then, and the same call goes on.
    """
    following = Child("world", _world, (run, world, True))
    policy = Child("policy", _policy, (run,))
    try:
        while policy.running:
            wait([child.process.sentinel for child in (policy, following) if child.running])
            for child in (policy, following):
                child.look(say)
    finally:
        for child in (policy, following):
            child.stop()
    say("the policy is finished, the world model reads on to the end of the log")
    last = Child("world", _world, (run, world, False))
    try:
        while last.running:
            wait([last.process.sentinel])
            last.look(say)
    finally:
        last.stop()


class Child:
    """A process that is started again when it is killed. It ends with this process, however that ends."""

    def __init__(self, name: str, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._name, self._target, self._args = name, target, args
        self._restarts = 0
        self.running = True
        self.process = self._start()

    def _start(self) -> SpawnProcess:
        process = multiprocessing.get_context("spawn").Process(target=_inside, args=(self._target, self._args))
        process.start()
        return process

    def look(self, say: Say) -> None:
        """Whether it has ended, and what now. Raises `ConfigError`."""
        status = self.process.exitcode
        if status is None or not self.running:
            return
        if status == 0:
            self.running = False
            return
        if status > 0 or self._restarts == _RESTARTS:
            why = "said why above" if status == _WRONG else f"ended with status {status}"
            raise ConfigError(f"the {self._name} trainer {why}: the same command goes on from its checkpoint")
        self._restarts += 1
        say(f"the {self._name} trainer was killed (signal {-status}) and is started again")
        self.process = self._start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(_STOP_S)
        self.process.kill()
        self.process.join()


def _inside(target: Callable[..., None], args: tuple[Any, ...]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        wait([parent.sentinel])
        os._exit(1)  # as if killed: the next run goes on from the checkpoint

    threading.Thread(target=leave, daemon=True).start()
    try:
        target(*args)
    except (ConfigError, EngineError) as error:
        sys.stderr.write(f"obsspec: {error}\n")
        sys.exit(_WRONG)


def _world(run: Together, world: WorldSettings, follow: bool) -> None:
    from obsspec.train.world import train_world

    os.nice(5)  # rollouts wait for the policy, nobody waits for a new version
    train_world(run.world_start, run.log, run.world_out, world, _say, follow=follow)


def _policy(run: Together) -> None:
    from obsspec.train.policy import train_policy

    rollouts = replace(run.rollouts, world_model=str(run.world_out / "versions"))
    train_policy(run.policy_start, run.out / "policy", run.policy, rollouts, _say)


def _say(what: Any) -> None:
    Console(soft_wrap=True).print(what)
