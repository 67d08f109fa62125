"""Versions reach a vLLM server whose clients are other processes, and the clients say which of them predicted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from obsspec.integrations.verl.settings import VerlSettings
from obsspec.integrations.verl.world import shared
from obsspec.train.newest import NewestVersion, newest_of, number_of
from obsspec.train.publish import Publisher
from obsspec.train.versions import Version, VersionFolder
from obsspec.train.vllm_adapters import VllmAdapters
from obsspec.train.weights import VllmServing
from obsspec.values import Completion, ConfigError, EngineError, Sampling
from tests.models.test_merge import write_adapter
from tests.policy.loopback import Loopback, Reply, Request, loopback

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Vllm:
    """A server with a model and adapters. `down`: it answers nothing sensible; `go`: generations wait for it.

    `status`: of all that it is asked for about models and adapters. `mute`: it loads an adapter, and its answer
    is lost once it may `go`.
    `key`: it answers nobody else.
    """

    names: list[str] = field(default_factory=lambda: ["base"])
    folders: dict[str, Path] = field(default_factory=dict[str, Path])
    down: bool = False
    lists: bool = True
    status: int = 0
    mute: bool = False
    took: anyio.Event = field(default_factory=anyio.Event)
    key: str = ""
    listed: int = 0
    asked: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)

    async def answer(self, request: Request, reply: Reply) -> None:
        body: Any = request.body
        if self.down:
            return await reply.raw("no")
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return await reply.status(401)
        if self.status and request.path != "/v1/completions":
            return await reply.status(self.status, "starting")
        if request.path == "/v1/models":
            self.listed += 1
            listed = '{"data": [' + ", ".join(f'{{"id": "{name}"}}' for name in self.names) + "]}"
            return await reply.status(200, listed) if self.lists else await reply.status(404)
        if request.path == "/v1/load_lora_adapter":
            name = body["lora_name"]
            if name in self.names:
                return await reply.status(400, f"The lora adapter '{name}' has already been loaded.")
            self.names.append(name)
            self.folders[name] = Path(body["lora_path"])
            assert (self.folders[name] / "adapter_model.safetensors").is_file()
            if self.mute:
                self.took.set()
                await self.go.wait()
                return await reply.raw("no")
            return await reply.status(200, "Success")
        if request.path == "/v1/unload_lora_adapter":
            if body["lora_name"] not in self.names:
                return await reply.status(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
            self.names.remove(body["lora_name"])
            return await reply.status(200, "Success")
        if body["model"] not in self.names:
            return await reply.status(404, '{"error": {"message": "The model does not exist."}}')
        self.asked.set()
        await self.go.wait()
        choice = {"index": 0, "text": "x", "token_ids": [7], "logprobs": {"token_logprobs": [-0.5]}}
        await reply.status(200)
        return await reply.events({"choices": [choice | {"finish_reason": "length"}]})


@dataclass
class Place:
    server: Vllm
    http: Loopback
    versions: VersionFolder
    adapters: VllmAdapters
    said: list[str] = field(default_factory=list[str])

    def publisher(self, keep_s: float = 0.0) -> Publisher:
        return Publisher(self.versions, self.adapters, keep_s=keep_s, say=self.said.append)

    def trained(self, number: int) -> Version:
        return self.versions.publish(number, _adapter(number + 4), {})

    def client(self) -> NewestVersion:
        return NewestVersion(self.http.url, "base", poll_s=0.0)


def _adapter(rows: int) -> Callable[[Path], None]:
    return lambda path: write_adapter(path, "model.layers.0.mlp.up_proj", rows, 8) and None


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncGenerator[Place, None]:
    server = Vllm()
    async with loopback(server.answer) as http:
        adapters = VllmAdapters(http.url, tmp_path / "adapters", timeout_s=5)
        yield Place(server, http, VersionFolder(tmp_path / "versions", "world"), adapters)
        await http.settled()


ONE = Sampling(max_tokens=1)


async def test_the_newest_version_is_loaded_and_the_one_before_it_stays_for_a_while(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        publisher = place.publisher(keep_s=0.2)
        await publisher.once()
        assert place.server.names == ["base"]  # nothing was trained yet
        first = place.trained(0)
        await publisher.once()
        place.trained(1)
        last = place.trained(2)
        await publisher.once()
        await publisher.once()
        assert place.server.names == ["base", first.name, last.name]  # one was never the newest when somebody looked
        assert place.server.folders[first.name].is_dir()
        await anyio.sleep(0.25)
        await publisher.once()
        assert place.server.names == ["base", last.name]
        assert [path.name for path in (tmp_path / "adapters").iterdir()] == [last.name]
        assert place.said == [f"serving {first.name}", f"serving {last.name}", f"unloaded {first.name}"]


async def test_a_publisher_that_was_killed_goes_on_from_what_the_server_has(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        first = place.trained(0)
        await place.publisher().once()
        await place.publisher().once()  # another process
        assert place.server.names == ["base", first.name]
        last = place.trained(1)
        await place.publisher().once()
        assert place.server.names == ["base", last.name]


async def test_a_server_that_is_started_again_gets_the_version_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as place, anyio.create_task_group() as tasks:
        first = place.trained(0)
        tasks.start_soon(place.publisher().run, 0.01)
        await _until(lambda: bool(place.said))
        place.server.down = True
        await _until(lambda: place.said[-1].startswith("waiting: engine"))
        place.server.names = ["base"]
        place.server.down = False
        await _until(lambda: len(place.said) == 3)
        tasks.cancel_scope.cancel()
    assert place.server.names == ["base", first.name]  # it outlives the publisher
    assert [line.partition(" ")[0] for line in place.said] == ["serving", "waiting:", "serving"]  # said once


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_that_starts_behind_a_balancer_is_waited_for(tmp_path: Path, status: int) -> None:
    async with opened(tmp_path) as place, anyio.create_task_group() as tasks:
        first = place.trained(0)
        place.server.status = status
        tasks.start_soon(place.publisher().run, 0.01)
        await _until(lambda: bool(place.said))
        assert f"answered {status}: starting" in place.said[0]
        place.server.status = 0
        await _until(lambda: first.name in place.server.names)
        tasks.cancel_scope.cancel()


async def test_a_load_that_the_balancer_answers_is_asked_for_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        first = place.trained(0)
        place.server.status = 503
        with pytest.raises(EngineError, match="503"):
            await place.adapters.load(first.adapter, first.name)
        place.server.status = 0
        await place.publisher().once()
        assert place.server.names == ["base", first.name]


async def test_unloading_what_a_server_that_was_started_again_does_not_know_is_no_error(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        first = place.trained(0)
        await place.publisher().once()
        place.server.names = ["base"]
        await place.adapters.unload(first.name)
        assert list((tmp_path / "adapters").iterdir()) == []


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_load_without_an_answer_keeps_the_files_until_it_is_known_what_became_of_it(
    tmp_path: Path, cancelled: bool
) -> None:
    async with opened(tmp_path) as place:
        first, place.server.mute = place.trained(0), True
        if cancelled:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(place.adapters.load, first.adapter, first.name)
                await place.server.took.wait()
                tasks.cancel_scope.cancel()
        else:
            place.server.go.set()
            with pytest.raises(EngineError):
                await place.adapters.load(first.adapter, first.name)
        place.server.mute = False
        assert place.server.names == ["base", first.name]
        assert (place.server.folders[first.name] / "adapter_model.safetensors").is_file()
        await place.adapters.load(first.adapter, first.name)  # refused as loaded, which is what was asked for
        assert (place.server.folders[first.name] / "adapter_model.safetensors").is_file()
        with pytest.raises(ConfigError, match="already"):  # by now it is known: the name is taken
            await place.adapters.load(first.adapter, first.name)


async def test_files_of_a_load_that_the_server_never_had_go_when_the_next_version_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        place.trained(0)
        publisher = place.publisher()
        place.server.mute = True
        place.server.go.set()
        with pytest.raises(EngineError):
            await publisher.once()
        place.server.names, place.server.mute = ["base"], False
        last = place.trained(1)
        await publisher.once()
        assert [path.name for path in (tmp_path / "adapters").iterdir()] == [last.name]


async def test_a_load_without_an_answer_is_unloaded_by_who_serves_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        first, place.server.mute = place.trained(0), True
        place.server.go.set()
        serving = VllmServing(place.http.url, tmp_path / "adapters", timeout_s=5)
        with pytest.raises(EngineError):
            async with serving.open(first.adapter, first.name):
                pass
        assert place.server.names == ["base"]
        assert list((tmp_path / "adapters").iterdir()) == []


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            '{"error": {"message": "Loading lora x failed: No adapter found for /a/x"}}',
            "No adapter found.*see the folder",
        ),
        ('{"error": {"message": "Not Found"}}', "--enable-lora"),
        ("no page /v1/load_lora_adapter", "--enable-lora"),
    ],
)
async def test_a_server_that_sees_no_folder_is_told_from_one_without_adapters(
    tmp_path: Path, said: str, fix: str
) -> None:
    async def refuse(_: Request, reply: Reply) -> None:
        await reply.status(404, said)

    version = VersionFolder(tmp_path / "versions", "world").publish(0, _adapter(4), {})
    async with loopback(refuse) as http:
        with pytest.raises(ConfigError, match=fix):
            await VllmAdapters(http.url, tmp_path / "a").load(version.adapter, version.name)
    assert list((tmp_path / "a").iterdir()) == []


async def test_a_server_that_refuses_a_version_ends_the_publisher(tmp_path: Path) -> None:
    async def refuse(request: Request, reply: Reply) -> None:
        await reply.status(*((400, "rank 32 is above 16") if request.method == "POST" else (200, '{"data": []}')))

    versions = VersionFolder(tmp_path / "versions", "world")
    versions.publish(0, _adapter(4), {})
    async with loopback(refuse) as http:
        publisher = Publisher(versions, VllmAdapters(http.url, tmp_path / "a"), keep_s=0, say=lambda _: None)
        with pytest.raises(ConfigError, match="rank 32 is above 16"):
            await publisher.run()
    assert list((tmp_path / "a").iterdir()) == []


async def test_a_folder_without_versions_is_waited_for_and_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    server = VllmAdapters("http://localhost:1", tmp_path / "a")
    with anyio.move_on_after(0.1):
        await Publisher(VersionFolder(tmp_path / "nowhere", "world"), server, keep_s=0, say=said.append).run(0.01)
    assert said == [f"waiting for a first version in {tmp_path / 'nowhere'}"]


async def test_e04_a_prediction_names_the_version_that_was_newest_when_it_was_asked_for(tmp_path: Path) -> None:
    done: list[Completion] = []
    async with opened(tmp_path) as place:
        client, publisher = place.client(), place.publisher(keep_s=60)

        async def ask() -> None:
            done.append(await client.generate((1,), ONE))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)  # there is no version yet
            await place.server.asked.wait()
            first = place.trained(0)
            await publisher.once()
            place.server.asked = anyio.Event()
            tasks.start_soon(ask)
            await place.server.asked.wait()
            last = place.trained(1)
            await publisher.once()
            place.server.go.set()
        await ask()
    assert [completion.weight_version for completion in done] == ["base", first.name, last.name]
    sent = [request.body["model"] for request in place.http.requests if request.path == "/v1/completions"]
    assert sent == ["base", first.name, last.name]


async def test_names_are_asked_for_once_in_a_while(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        place.server.go.set()
        client = NewestVersion(place.http.url, "base", poll_s=60.0)
        for _ in range(5):
            await client.generate((1,), ONE)
        assert place.server.listed == 1


async def test_nobody_is_sent_to_another_model_while_the_names_are_asked_for_the_first_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        first = place.trained(0)
        await place.publisher().once()
        place.server.go.set()
        client = NewestVersion(place.http.url, "base", poll_s=60.0)
        found: list[str] = []

        async def call() -> None:
            found.append((await client.generate((1,), ONE)).weight_version)

        place.server.listed = 0
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(call)
        assert found == [first.name] * 4
        assert place.server.listed == 1


async def test_a_first_call_that_fails_or_is_cancelled_holds_up_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        first = place.trained(0)
        await place.publisher().once()
        place.server.go.set()
        client = NewestVersion(place.http.url, "base", poll_s=60.0)
        place.server.down = True
        with pytest.raises(EngineError):
            await client.generate((1,), ONE)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await client.generate((1,), ONE)
        place.server.down = False
        assert (await client.generate((1,), ONE)).weight_version == first.name


async def test_a_server_that_lists_no_models_has_the_one_that_was_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        place.server.lists = False
        place.server.go.set()
        assert (await place.client().generate((1,), ONE)).weight_version == "base"


@pytest.mark.parametrize("status", [500, 503])
async def test_names_that_cannot_be_had_for_a_moment_leave_the_version_known_before(
    tmp_path: Path, status: int
) -> None:
    async with opened(tmp_path) as place:
        first, client = place.trained(0), place.client()
        place.server.go.set()
        place.server.status = status
        with pytest.raises(EngineError, match=str(status)):  # nothing is known yet
            await client.generate((1,), ONE)
        place.server.status = 0
        await place.publisher().once()
        assert (await client.generate((1,), ONE)).weight_version == first.name
        place.server.status = status
        assert (await client.generate((1,), ONE)).weight_version == first.name


async def test_workers_send_the_key_and_another_one_is_an_error_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as place:
        place.server.go.set()
        place.server.key = "secret"
        monkeypatch.setenv("OBSSPEC_API_KEY", "secret")
        engine = shared(VerlSettings(world_model_url=place.http.url, world_model_name="base")).engine
        assert engine is not None
        assert (await engine.generate((1,), ONE)).weight_version == "base"
        with pytest.raises(EngineError, match=r"refuses the API key \(401\): set OBSSPEC_API_KEY"):
            await place.client().generate((1,), ONE)
        place.trained(0)
        with pytest.raises(ConfigError, match="OBSSPEC_API_KEY"):
            await place.publisher().run()


async def test_a_version_that_is_gone_is_an_error_of_the_engine(tmp_path: Path) -> None:
    async with opened(tmp_path) as place:
        client = NewestVersion(place.http.url, "base", poll_s=60.0)
        first = place.trained(0)
        await place.publisher().once()
        place.server.go.set()
        assert (await client.generate((1,), ONE)).weight_version == first.name
        await place.adapters.unload(first.name)
        with pytest.raises(EngineError, match="does not exist"):
            await client.generate((1,), ONE)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("world-000012-5d0c1f2e", 12),
        ("world-1000012-5d0c1f2e", 1000012),
        ("policy-000012-5d0c1f2e", None),
        ("world-12-5d0c1f2e", None),
        ("world-model", None),
        ("a-world-000012-5d0c1f2e", None),
    ],
)
async def test_only_names_of_versions_have_a_number(name: str, number: int | None) -> None:
    assert number_of(name, "world") == number


async def test_the_highest_number_is_the_newest(tmp_path: Path) -> None:
    versions = VersionFolder(tmp_path, "world")
    names = [versions.publish(number, _adapter(number + 4), {}).name for number in (9, 2, 10)]
    assert newest_of(["base", *names, "policy-000099-5d0c1f2e"], "world") == names[-1]
    assert newest_of(["base"], "world") is None


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not holds():  # noqa: ASYNC110 - the publisher polls
            await anyio.sleep(0.01)
