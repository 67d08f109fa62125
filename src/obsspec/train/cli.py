"""`obsspec train`: record sessions, train an adapter on them, measure it; train policy and world model on rollouts."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import replace
from json import dumps
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from urllib.parse import urlsplit

import anyio
from cyclopts import App, Parameter
from rich.console import Console

from obsspec.cli.console import check_json, progress_bar, without_password, write_json
from obsspec.rollout.collector import RolloutResult
from obsspec.tasks.task import Split
from obsspec.train.account_table import account_table
from obsspec.train.checks import at_least
from obsspec.train.collect import Collecting
from obsspec.train.collect_settings import CollectSettings
from obsspec.train.policy_settings import PolicySettings
from obsspec.train.precision import Precision
from obsspec.train.record import Progress, record_sessions
from obsspec.train.rollout_settings import SAME, RolloutSettings
from obsspec.train.world_settings import WorldSettings
from obsspec.values import ConfigError

app = App(name="train", help="Train adapters: from recorded sessions, or from rollouts.")
_console = Console(soft_wrap=True)
_TORCH = ("pip install torch==2.13.0", "torch")
_TRL = ('pip install "obsspec[trl]"', "torch", "transformers", "datasets", "trl")


@app.command
def record(
    out: Path,
    *,
    sessions: int = 3500,
    split: Split = Split.TRAIN,
    seed: int = 0,
    parallel: int = 2,
) -> None:
    """Record sessions of scripted agents in real sandboxes. An interrupted recording is continued.

    Parameters
    ----------
    out
        JSONL file, one session per line.
    sessions
        How many sessions to plan; those that do not solve their task are left out.
    split
        Which tasks: train, validation or test.
    seed
        First task seed, in millions.
    parallel
        Sandboxes at a time.
    """

    def report(progress: Progress) -> None:
        if (progress.kept + progress.failed) % 100 == 0:
            _console.print(f"{progress.kept} kept, {progress.failed} unsolved, of {progress.wanted}")

    end = anyio.run(record_sessions, out, split, seed, sessions, parallel, report)
    _console.print(f"{out}: {end.kept} sessions, {end.failed} unsolved")


@app.command
def model(
    sessions: Path,
    out: Path,
    *,
    held_out: Path,
    minutes: float = 75.0,
    learning_rate: float = 1e-3,
    policy_weight: float = 1.0,
    world_weight: float = 1.0,
    rank: int = 32,
    alpha: float = 64.0,
    batch_tokens: int = 1024,
    seed: int = 0,
    threads: int = 1,
    precision: Precision = Precision.AUTO,
) -> int:
    """Train the adapter on recorded sessions. Stops cleanly on Ctrl-C; the same command goes on from there.

    Parameters
    ----------
    sessions
        Sessions to train on, as `record` writes them. The file may still be growing.
    out
        Folder for adapter.safetensors, checkpoint.pt and log.jsonl.
    held_out
        Sessions to measure on every ten minutes and at the end; the first 150 are used.
    minutes
        Training time; the learning rate falls to zero over it.
    learning_rate
        Peak learning rate.
    policy_weight
        Loss weight of the tokens of actions; 0 trains a world model only.
    world_weight
        Loss weight of the tokens of observations; 0 trains a policy only.
    rank
        Rank of the adapters.
    alpha
        Scale of the adapters: the merged weight is W + alpha/rank * B A.
    batch_tokens
        Tokens of a batch, about.
    seed
        Initial factors and order of the sessions.
    threads
        CPU threads.
    precision
        Type of the matrix products; auto is bfloat16 where the CPU multiplies it fast, else float32.
    """
    run = _import("run", *_TORCH)
    options = run.Options(sessions, out, held_out, rank=rank, alpha=alpha, threads=threads, precision=precision)
    settings = run.Settings(
        minutes=minutes,
        learning_rate=learning_rate,
        policy_weight=policy_weight,
        world_weight=world_weight,
        batch_tokens=batch_tokens,
        seed=seed,
    )
    return 0 if run.train(options, settings, _console.print) else 130


@app.command(name="eval")
def evaluate(
    sessions: Path,
    adapter: Path,
    *,
    limit: int = 400,
    threads: int = 1,
    precision: Precision = Precision.AUTO,
    json: Path | None = None,
) -> None:
    """Measure an adapter on recorded sessions, teacher-forced: share of observations and actions it reproduces.

    Parameters
    ----------
    sessions
        Sessions that were not trained on.
    adapter
        The adapter file.
    limit
        Use at most so many sessions.
    threads
        CPU threads.
    precision
        As in training.
    json
        Also write the figures to this file.
    """
    at_least(SimpleNamespace(limit=limit, threads=threads), limit=1, threads=1)
    check_json(json)
    score = _import("run", *_TORCH).measure(sessions, adapter, limit, threads, precision)
    _console.print(str(score))
    write_json(json, dumps(score.to_json(), indent=2) + "\n")


@app.command
def policy(
    start: Path,
    out: Path,
    *,
    settings: PolicySettings | None = None,
    rollouts: RolloutSettings | None = None,
) -> None:
    """Train the policy with GRPO on the terminal suite. The same command goes on from where it was stopped or killed.

    Parameters
    ----------
    start
        The adapter to begin with.
    out
        Run folder: rollouts.jsonl, log.jsonl, adapters in policy/, the transition log in transitions/.
    settings
        What is trained.
    rollouts
        How rollouts are made.
    """
    train = _import("policy", *_TRL).train_policy
    train(start, out, settings or PolicySettings(), rollouts or RolloutSettings(), _console.print)


@app.command
def collect(
    policy: Path,
    out: Path,
    *,
    settings: CollectSettings | None = None,
    rollouts: RolloutSettings | None = None,
) -> int:
    """Collect rollouts of training tasks with the asynchronous collector, without training.

    Prints where seconds and rollouts went. Complete groups are kept on Ctrl-C or when killed; the same command goes on.

    Parameters
    ----------
    policy
        An adapter, or a folder of versions (RUN/policy of a `train policy` that is running), which is followed.
    out
        Run folder: rollouts.jsonl, the transition log in transitions/, the books in account.json.
    settings
        Which rollouts, and which of them are dropped.
    rollouts
        How rollouts are made.
    """
    collecting = Collecting(policy, out, settings or CollectSettings(), rollouts or RolloutSettings())
    with progress_bar(_console) as progress:
        kept = len(collecting.kept.found)
        bar = progress.add_task("rollouts", total=len(collecting.prompts), completed=kept)

        def seen(result: RolloutResult) -> None:
            progress.advance(bar)
            trajectory = result.trajectory
            progress.console.print(
                f"{result.task_id:<24} reward {result.verdict.reward:.0f}  {len(trajectory.turns):>2} turns  "
                f"{trajectory.agent_s:6.2f} s  {trajectory.error or trajectory.stop}",
                highlight=False,
                markup=False,
            )

        try:
            anyio.run(collecting.run, seen)
            status = 0
        except KeyboardInterrupt:
            status = 130
    _console.print(account_table(collecting.account))
    _console.print(f"run folder: {out}" + (", the same command goes on" if status else ""), markup=False)
    return status


@app.command
def world(
    start: Path,
    log: Path,
    out: Path,
    *,
    follow: bool = True,
    settings: WorldSettings | None = None,
) -> None:
    """Train the world model on a transition log while it grows. The same command goes on from where it was stopped.

    Parameters
    ----------
    start
        The adapter to begin with.
    log
        The transition log, for example RUN/transitions of `train policy`.
    out
        Folder for the versions (versions/), the checkpoint and log.jsonl.
    follow
        Wait for more; without, end when everything in the log was trained on.
    settings
        How it is trained.
    """
    _import("world", *_TORCH).train_world(start, log, out, settings or WorldSettings(), _console.print, follow=follow)


@app.command
def publish(
    versions: Path,
    url: str,
    folder: Path,
    *,
    role: str = "world",
    keep_s: float = 60.0,
) -> None:
    """Keep the newest version of an adapter loaded at a vLLM server. The same command goes on after it was stopped.

    The server must run with --enable-lora, --max-loras 2, --max-lora-rank of the adapter or more, and
    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. OBSSPEC_API_KEY is sent as its key.

    Parameters
    ----------
    versions
        The versions, for example OUT/versions of `train world`.
    url
        The server.
    folder
        Where adapters are put for the server to read: a folder that both machines see.
    role
        Whose versions: world or policy.
    keep_s
        Seconds for which a version stays loaded after it was replaced; longer than any request on it takes.
    """
    from obsspec.train.publish import Publisher
    from obsspec.train.versions import VersionFolder
    from obsspec.train.vllm_adapters import VllmAdapters

    at_least(SimpleNamespace(keep_s=keep_s), keep_s=0)
    if not _is_url(url):
        raise ConfigError(f"{without_password(url)} is no URL of a server: write http://HOST:PORT")
    server = VllmAdapters(url, folder, api_key=os.environ.get("OBSSPEC_API_KEY", ""))
    anyio.run(Publisher(VersionFolder(versions, role), server, keep_s=keep_s, say=_console.print).run)


@app.command
def co(
    start: Path,
    out: Path,
    *,
    world_start: Path | None = None,
    settings: PolicySettings | None = None,
    rollouts: RolloutSettings | None = None,
    world: Annotated[WorldSettings | None, Parameter(name="world")] = None,
) -> None:
    """Train policy and world model together: `train policy` into OUT/policy, `train world` beside it into OUT/world.

    Each is a process of its own. One that is killed is started again and goes on from its checkpoint; if this process
    is killed, both end, and the same command goes on.

    Parameters
    ----------
    start
        The policy's adapter to begin with.
    out
        Run folder.
    world_start
        The world model's adapter to begin with; by default the policy's.
    settings
        What the policy is trained on, and how.
    rollouts
        How rollouts are made.
    world
        How the world model is trained.
    """
    rollouts = rollouts or RolloutSettings()
    if rollouts.world_model != SAME:
        raise ConfigError("--world-model: `train co` takes the one that it trains, leave it out")
    run = _import("co", *_TRL)
    log, versions = out / "policy" / "transitions", out / "world" / "versions"
    versions.mkdir(parents=True, exist_ok=True)  # the first version may come after the first rollout
    rollouts = replace(rollouts, world_model=str(versions))
    of_world = (world_start or start, log, out / "world", world or WorldSettings())
    run.train_together(
        run.Policy(start, out / "policy", settings or PolicySettings(), rollouts),
        run.World(*of_world, follow=True),
        run.World(*of_world, follow=False),
        _console.print,
    )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port
        return False


def _import(name: str, fix: str, *needs: str) -> Any:
    """Torch and TRL are extras: everything that needs them is imported here, late."""
    missing = [need for need in needs if importlib.util.find_spec(need) is None]
    if missing:
        raise ConfigError(f"{missing[0]} is not installed: {fix}")
    return importlib.import_module(f"obsspec.train.{name}")


if __name__ == "__main__":
    app()
