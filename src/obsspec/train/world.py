# pyright: basic, reportMissingImports=false
"""`obsspec train world`: a process that follows the transition log and keeps a world model up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from obsspec.models.adapter import read_adapter
from obsspec.rollout.store import RunFolder
from obsspec.train.adapter import model_of, rank_of
from obsspec.train.run import asked_to_stop, keep_memory, working_type
from obsspec.train.transition_log import Follower
from obsspec.train.versions import VersionFolder
from obsspec.train.world_settings import FREE, WorldSettings
from obsspec.train.world_trainer import WorldTrainer
from obsspec.values import ConfigError

VERSIONS = "versions"


def train_world(
    start: Path, log: Path, out: Path, settings: WorldSettings, say: Callable[[str], None], *, follow: bool = True
) -> None:
    """Train until told to stop (SIGINT, SIGTERM). Killed at any time, the same call goes on from there."""
    adapter = read_adapter(start)  # what is wrong is said before the folder is bound to it
    if not settings.full:
        rank_of(adapter)
    if not _is_log(log, follow):
        say(f"waiting for the transition log {log}")
    _folder = RunFolder(out, {"start": str(start), **settings.as_config()}, FREE)  # locked while it lives
    keep_memory()
    torch.set_num_threads(settings.threads)
    model = model_of(adapter, working_type(settings.precision), whole=settings.full)
    trainer = WorldTrainer(model, log, out, VersionFolder(out / VERSIONS, "world"), settings, say)
    with asked_to_stop() as stop:
        trainer.run(stop, follow=follow)
    say(f"stopped after round {trainer.progress.round}, {trainer.progress.observations} observations")


def _is_log(log: Path, may_come: bool) -> bool:
    """False: there is none yet. Raises `ConfigError` for what is none, and never will be."""
    if not log.is_dir() and (log.exists() or not may_come):
        raise ConfigError(f"{log} is no transition log: give the folder of one, as RUN/transitions")
    Follower(log).poll(1)
    return log.is_dir()
