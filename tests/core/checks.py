"""Checks that must find nothing wrong, and must find a deliberate fault. Each returns what it found."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import anyio

from obsspec.rollout.rules import Limits
from obsspec.sandbox.beginning import Beginning
from obsspec.sandbox.canonical import observe
from obsspec.testing import run_virtual, toy_vocabulary
from obsspec.testing.episodes import GateKind, draw_episode
from obsspec.testing.pipelines import run_drawn, run_episode
from obsspec.testing.virtual_clock import Backend
from obsspec.testing.world_model import Move, always
from obsspec.values import StopReason
from tests.core.machine import walk
from tests.core.scene import Scene, answer, call, recite, says

PIECES = (toy_vocabulary().id("he"), toy_vocabulary().id("llo"))
EPISODES = 300
WALKS = 600
OUTPUT = [b"a", b"b ", b"\n", b"\r", b"\t", b"\x1b", b"[1m", b"\x1b]0;", b"\xc3", b"\xa9"]


def episodes() -> list[str]:
    """Problems of random episodes: equality, executed, trajectory, accounting, learning, tokens, open."""

    async def search() -> list[str]:
        for seed in range(EPISODES):
            report = await run_episode(seed)
            if report.problems:
                return report.problems
        return []

    return run_virtual(search, backend=Backend.ASYNCIO)


def guarded_episodes() -> list[str]:
    """The same of episodes in which many calls are sent ahead, and their requests and answers get lost."""

    async def search() -> list[str]:
        for seed in range(EPISODES):
            drawn = replace(draw_episode(seed), strict_version=False, impatience_s=None, cancel_after_s=None)
            drawn = replace(drawn, limits=Limits(12, 60, 4000), engine_faults=0, speculative_faults=0)
            deep = replace(drawn, depth=4, breadth=2, gate=GateKind.OPEN, right=(0.5, 0.9)[seed % 2], stages=1)
            report = await run_drawn(replace(deep, guarded=True, mishaps=0.4, jobs=0.1, trouble=0.0, broken_call=1000))
            if report.problems:
                return report.problems
        return []

    return run_virtual(search, backend=Backend.ASYNCIO)


def walks() -> list[str]:
    """The first promise that the controller breaks on random walks."""

    for seed in range(WALKS):
        try:
            walk(seed)
        except Exception as error:  # noqa: BLE001 - found: an assertion of the ledger, or an error that no event may cause
            return [f"walk {seed}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"]
    return []


def discarded_work_ends_at_the_engine() -> list[str]:
    """After a mismatch only the committed generation is open, long before it ends."""

    async def play() -> list[str]:
        scene = Scene(recite(call("ls"), answer()), says("a"), plan=always(Move.WRONG), generation_s=100.0)
        scene.prediction_s, scene.tool_s = 0.0, 10.0
        policy = scene.policy = scene.make_policy()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.speculative)
            await anyio.sleep(115)  # 100 s for the first turn, 10 s for its tool
            return [f"{len(policy.open)} requests open"] if len(policy.open) != 1 else []

    return run_virtual(play, backend=Backend.ASYNCIO)


def a_late_prediction_ends_at_once() -> list[str]:
    """When the tool answers first, the prediction does not go on."""

    async def play() -> list[str]:
        scene = Scene(recite(call("ls"), answer()), says("a"), tool_s=0.01, prediction_s=50.0, generation_s=10.0)
        world_model = scene.world_model = scene.make_world_model()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.speculative)
            await anyio.sleep(10.5)
            return [f"{world_model.open} predictions open"] if world_model.open else []

    return run_virtual(play, backend=Backend.ASYNCIO)


def versions_are_those_that_sampled() -> list[str]:
    """An update while a branch stands changes no label of what was already sampled."""

    async def play() -> list[str]:
        scene = Scene(recite(call("ls"), answer()), says("a"))
        policy = scene.policy = scene.make_policy()
        async with anyio.create_task_group() as tasks:
            seen: list[str] = []

            async def run() -> None:
                seen.extend((await scene.speculative()).trajectory.versions)

            tasks.start_soon(run)
            await anyio.sleep(5)  # the branch was sampled from 2 s to 3 s; the tool answers at 11 s
            policy.weight_version = "1"
        return [] if seen == ["0", "0"] else [f"labelled {seen}"]

    return run_virtual(play, backend=Backend.ASYNCIO)


def sampled_ids_are_never_encoded_again() -> list[str]:
    """A turn sampled as [he, llo] stays those ids, although its text encodes to [hello]."""

    async def play() -> list[str]:
        code, end = call("")
        scene = Scene(recite((code, *PIECES, end), answer()), says("ok"))
        played = await scene.speculative()
        text = played.trajectory
        return [] if text.stop is StopReason.FINAL and _contains(text.ids, PIECES) else [f"{text.stop}: {text.ids}"]

    return run_virtual(play, backend=Backend.ASYNCIO)


def beginnings() -> list[str]:
    """What is told of an output before its end is what its observation begins with."""
    for seed in range(3000):
        random = Random(seed)
        out, more, err = (b"".join(random.choices(OUTPUT, k=random.randint(0, 8))) for _ in range(3))
        beginning = Beginning(random.randint(1, 12))
        beginning.add(out + b"\n")
        text = observe(out + b"\n" + more, err, exit_code=0, max_characters=beginning.max_characters).text
        if not text.startswith(beginning.text):
            return [f"told {beginning.text!r} of {text!r}"]
    return []


def _contains(ids: list[int], part: tuple[int, ...]) -> bool:
    return any(tuple(ids[i : i + len(part)]) == part for i in range(len(ids)))
