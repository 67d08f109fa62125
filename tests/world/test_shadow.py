"""The shadow on real forks: it says what it can know, learns the rest, and what runs in it stays in it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator

import anyio
import pytest

from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.shadow import ShadowWorldModel, open_rooms
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.rooms import Place, Rooms, Run
from tests.sandbox.support import eventually, host_processes

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def rooms() -> AsyncGenerator[Rooms]:
    async with open_rooms() as opened:
        yield opened


class Rollout:
    """Plays recorded turns to a model."""

    def __init__(self, model: ShadowWorldModel, task: str = "t") -> None:
        self.model = model
        self.task = task
        self.history: tuple[Exchange, ...] = ()

    def context(self, command: str) -> Context:
        call = ToolCall("bash", {"command": command})
        return Context((), (), (call,), self.history, self.task, self.task, len(self.history))

    async def ask(self, command: str) -> Prediction | None:
        found: list[Prediction] = []
        await self.model.predict(self.context(command), 1, found.append)
        return found[0] if found else None

    async def turn(self, command: str, output: str) -> Prediction | None:
        said = await self.ask(command)
        observation = Observation(output)
        self.model.learn(self.context(command), (observation,))
        self.history = (*self.history, Exchange(self.context(command).calls, (observation,)))
        return said


async def printed(rooms: Rooms, script: str, image: Image | None = None, name: str = "t") -> str:
    run = Run(("bash", "-c", script), "/")
    return (await rooms.run(image or Image(), Place(name), run, changes=True)).text


async def test_it_says_what_commands_print_of_files_that_were_shown(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.2))
    await rollout.turn("find /w", "/w\n/w/b.txt\n/w/a.txt\n")
    await rollout.turn("cat /w/a.txt", "one two\nthree\n")
    said = await rollout.ask("wc -w < /w/a.txt")
    assert said is not None
    assert (said.observations[0].text, said.source) == ("3\n", "shadow/number")
    assert (await rollout.ask("find /w -type f | head -1")) is not None
    said = await rollout.ask("ls /w/missing")
    assert said is not None
    assert said.observations[0].text == "ls: cannot access '/w/missing': No such file or directory\n"


async def test_it_speaks_in_the_format_of_the_harness(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.2))

    def framed(code: int, output: str) -> str:
        return f"<returncode>{code}</returncode>\n<output>\n{output}</output>"

    await rollout.turn("cd /app && find . -type f", framed(0, "./b.txt\n./a.txt\n"))
    await rollout.turn("cat /app/a.txt", framed(0, "x y\nz\n"))
    said = await rollout.ask("cd /app && grep -c y a.txt; wc -l < c.txt")
    assert said is not None
    assert said.observations[0].text == framed(1, "1\nbash: line 1: c.txt: No such file or directory\n")


async def test_it_never_says_what_it_made_up(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.0))
    await rollout.turn("ls -l /w", "total 4\n-rw-r--r-- 1 root root 40 May 26 09:43 a.txt\n")
    assert await rollout.ask("cat /w/a.txt") is None
    said = await rollout.ask("stat -c %s /w/a.txt")
    assert said is not None
    assert said.observations[0].text == "40\n"


async def test_changes_of_the_rollout_are_run_again_and_seen_only_by_it(rooms: Rooms) -> None:
    model = ShadowWorldModel(rooms, least=0.2)
    rollout, other = Rollout(model), Rollout(model)
    for each in (rollout, other):
        await each.turn("ls -A /w", "a.txt\n")
    await rollout.turn("echo hello > /w/new.txt", "")
    said = await rollout.ask("cat /w/new.txt")
    assert said is not None
    assert said.observations[0].text == "hello\n"
    said = await other.ask("cat /w/new.txt")
    assert said is not None
    assert "No such file" in said.observations[0].text


async def test_it_learns_from_silence_too(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.8))
    commands = [f"cut -d {letter}" for letter in "abcdefgh"]
    outputs = ["cut: you must specify a list of bytes, characters, or fields\nTry 'cut --help' for more information.\n"]
    said = [await rollout.turn(command, outputs[0]) for command in commands * 2]
    assert said[0] is None
    assert said[-1] is not None
    assert said[-1].confidence >= 0.8


async def test_the_harness_is_found_out(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.2))
    for word in ("one", "two", "three", "four", "five", "six"):
        await rollout.turn(f'echo  "{word}  x"; nosuch{word}', f"{word}\n")  # broken apart by a quoted launch
    said = await rollout.ask('echo "seven  x"')
    assert said is not None
    assert said.observations[0].text == "seven\n"


async def test_a_command_that_takes_too_long_is_passed_over(rooms: Rooms) -> None:
    model = ShadowWorldModel(rooms, least=0.0)
    assert await Rollout(model).ask("for i in 1 2 3; do sleep 5; done") is None
    assert model.statistics()["unusable"] == 1


async def test_trouble_in_the_sandbox_makes_it_silent() -> None:
    async with open_rooms() as gone:
        pass
    model = ShadowWorldModel(gone, least=0.0)
    assert await Rollout(model).ask("echo a") is None
    assert sum(count for name, count in model.statistics().items() if name.startswith("trouble")) >= 1


async def test_cancelling_a_prediction_ends_what_it_runs_and_spares_the_rest(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.2))
    await rollout.turn("ls -A /w", "a.txt\n")
    with anyio.move_on_after(0.3):
        await rollout.ask("while true; do sleep 0.0731; done")
    await eventually(lambda: not host_processes("0.0731"))
    said = await rollout.ask("ls /w")
    assert said is not None
    assert said.observations[0].text == "a.txt\n"


async def test_nothing_leaves_the_forks(rooms: Rooms) -> None:
    name = "obsspec-shadow-probe"
    await printed(rooms, f"touch /tmp/{name} /usr/{name} /etc/{name} /root/{name}")
    assert "none" in await printed(rooms, f"ls /tmp/{name} 2>/dev/null || echo none", name="another")
    for directory in ("/tmp", "/usr", "/etc", "/root"):
        assert name not in os.listdir(directory)  # noqa: PTH208
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "refused" in await printed(rooms, f"exec 3<>/dev/tcp/127.0.0.1/{port}")


async def test_no_process_outlives_the_rooms() -> None:
    async with open_rooms() as opened:
        await opened.run(Image(), Place("t"), Run(("bash", "-c", "sleep 7.0193 & echo a"), "/"), changes=True)
    await eventually(lambda: not host_processes("7.0193"))


async def test_files_are_listed_in_the_order_that_was_seen(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.2))
    names = ["c.txt", "a.txt", "sub", "b.txt"]
    await rollout.turn("find /w", "".join(f"/w/{name}\n" for name in names).replace("/w/c", "/w\n/w/c", 1))
    said = await rollout.ask("find /w -mindepth 1")
    assert said is not None
    assert said.observations[0].text.split() == [f"/w/{name}" for name in names]


async def test_programs_that_are_not_there_are_hidden(rooms: Rooms) -> None:
    rollout = Rollout(ShadowWorldModel(rooms, least=0.2))
    await rollout.turn("diff /a /b", "bash: line 1: diff: command not found\n")
    said = await rollout.ask("echo x; diff /c /d")
    assert said is not None
    assert said.observations[0].text == "x\nbash: line 1: diff: command not found\n"


async def test_other_tools_are_left_alone(rooms: Rooms) -> None:
    model = ShadowWorldModel(rooms, least=0.0)
    found: list[Prediction] = []
    call = ToolCall("python", {"code": "print(1)"})
    await model.predict(Context((), (), (call,)), 1, found.append)
    model.learn(Context((), (), (call,)), (Observation("1"),))
    assert not found
    assert not model.statistics()
