"""Seconds from asking for a prediction to having it, without the LM: `python benchmarks/prediction_latency.py`.

Arms, each a rollout of its own that makes the same calls in the same order:

    sandbox   the command itself, in a local sandbox without transport: no prediction, but what one is measured against
    replica   a turn whose history is real: it runs on the replica's own state
    ahead     a turn after one that is only predicted: it runs on a copy
    cascade   rules, memory and replica together, as `obsspec compare` has them

The arms take turns within a repetition, in another order each time, and every prediction is checked against what the
sandbox printed. `--gap-s` is the pause before each call, in which caches go cold as they do while a policy generates.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import anyio

from obsspec.protocols import WorldModel
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec, TerminalSandbox
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.memory import Memory, Store
from obsspec.world.replica import Replicas
from obsspec.world.rules.model import Rules

COMMANDS = (
    "mkdir -p out",
    "cat data/1.csv",
    "ls",
    "ls -la data",
    "wc -l data/2.csv",
    "echo done > out/log",
    "sqlite3 shop.db 'select count(*) from sqlite_master'",
    "python3 -c 'print(6 * 7)'",
)
SPEC = SandboxSpec(files=tuple(FileSpec(f"data/{n}.csv", b"name,count\napple,3\n" * 20) for n in range(10)))
ENVIRONMENT = ScriptedEnvironment("task", lambda calls: Observation(""))
SETUP_S = 2.0  # for replicas to be there

Timed = tuple[float, str]  # seconds, and what was printed or predicted


def calls(command: str) -> tuple[ToolCall, ...]:
    return (ToolCall("bash", {"command": command}),)


async def executed(sandbox: TerminalSandbox, command: str) -> Timed:
    start = time.perf_counter()
    observation = await sandbox.execute(calls(command)[0])
    return time.perf_counter() - start, observation.text


@dataclass
class Rollout:
    """A rollout beside a world model. `ahead`: so many of the last exchanges are not committed yet."""

    model: WorldModel
    ahead: int = 0
    history: list[Exchange] = field(default_factory=list[Exchange])

    async def predicted(self, command: str) -> Timed:
        committed = max(0, len(self.history) - self.ahead)
        context = self._context(calls(command), committed)
        said: list[tuple[float, Prediction]] = []
        start = time.perf_counter()
        await self.model.predict(context, 1, lambda prediction: said.append((time.perf_counter() - start, prediction)))
        if not said:
            return float("nan"), ""
        return said[0][0], said[0][1].observations[0].text

    def observed(self, command: str, text: str) -> None:
        self.history.append(Exchange(calls(command), (Observation(text),)))
        last = len(self.history) - 1 - self.ahead
        if last >= 0:
            known = self.history[last]
            self.model.learn(self._context(known.calls, last, last), known.observations)

    def _context(self, of: tuple[ToolCall, ...], committed: int, length: int | None = None) -> Context:
        history = tuple(self.history[:length])
        return Context((len(history),), (), of, history, "task", "task", committed)


@dataclass(frozen=True, slots=True)
class Figure:
    """Milliseconds."""

    arm: str
    command: str
    p50: float
    p90: float
    samples: int


async def measure(commands: Sequence[str], repetitions: int, gap_s: float) -> list[Figure]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(LocalSandboxes().open(SPEC))
        replicas = Replicas(lambda environment: SPEC)
        sources = [Source("rules", Rules()), Source("memory", Memory(Store())), Source("replica", replicas)]
        opened = [
            await stack.enter_async_context(models.open(ENVIRONMENT, "seed"))
            for models in (replicas, replicas, CascadeModels(sources))
        ]
        rollouts = {"replica": Rollout(opened[0]), "ahead": Rollout(opened[1], 1), "cascade": Rollout(opened[2])}
        arms: dict[str, Callable[[str], Awaitable[Timed]]] = {
            "sandbox": lambda command: executed(sandbox, command),
            **{name: rollout.predicted for name, rollout in rollouts.items()},
        }
        await anyio.sleep(SETUP_S)
        seconds: dict[tuple[str, str], list[float]] = {}
        for repetition in range(repetitions + 1):
            for number, command in enumerate(commands):
                shift = (repetition + number) % len(arms)
                said: dict[str, str] = {}
                for name in [*list(arms)[shift:], *list(arms)[:shift]]:
                    await anyio.sleep(gap_s)
                    taken, said[name] = await arms[name](command)
                    if repetition:  # the first one warms up
                        seconds.setdefault((name, command), []).append(taken)
                for name, rollout in rollouts.items():
                    assert said[name] == said["sandbox"], f"{name} predicted {said[name]!r} for `{command}`"
                    rollout.observed(command, said["sandbox"])
        return [_figure(name, command, taken) for (name, command), taken in seconds.items()]


def _figure(arm: str, command: str, seconds: Sequence[float]) -> Figure:
    cuts = statistics.quantiles([1000 * each for each in seconds], n=10, method="inclusive")
    return Figure(arm, command, cuts[4], cuts[8], len(seconds))


def show(figures: Sequence[Figure]) -> None:
    arms = list(dict.fromkeys(figure.arm for figure in figures))
    found = {(figure.arm, figure.command): figure for figure in figures}
    sys.stdout.write(f"{'p50 / p90, ms':54}" + "".join(f"{arm:>16}" for arm in arms) + "\n")
    for command in dict.fromkeys(figure.command for figure in figures):
        cells = [f"{found[arm, command].p50:7.2f} /{found[arm, command].p90:6.2f}" for arm in arms]
        sys.stdout.write(f"{command:54}" + "".join(f"{cell:>16}" for cell in cells) + "\n")
    middle = [statistics.median(figure.p50 for figure in figures if figure.arm == arm) for arm in arms]
    sys.stdout.write(f"{'median over the commands':54}" + "".join(f"{each:>16.2f}" for each in middle) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", action="append", help="instead of the usual ones; may be repeated")
    parser.add_argument("--repetitions", type=int, default=20, help="after one to warm up; at least 2")
    parser.add_argument("--gap-s", type=float, default=0.1, help="pause before each call, seconds")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    figures = anyio.run(measure, options.command or COMMANDS, options.repetitions, options.gap_s)
    show(figures)
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
