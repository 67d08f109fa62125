"""New weights for the real embedded engine: nobody is aborted, and nothing of a version is left."""

from __future__ import annotations

from pathlib import Path

import anyio
import numpy as np
import pytest
from safetensors.numpy import save_file

from obsspec.models.adapter import read_adapter
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.models.tokenizer import load_vocabulary
from obsspec.policy.llama_server import EngineSettings
from obsspec.render.terminal import TerminalRenderer
from obsspec.train.live import LivePolicy, open_live_policy
from obsspec.train.weights import EmbeddedServing
from obsspec.values import Completion, Sampling

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

LONG = Sampling(max_tokens=40, seed=1)  # no stop token: it samples all forty


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def serving(tmp_path: Path) -> EmbeddedServing:
    return EmbeddedServing(EngineSettings(slots=2, context=256), tmp_path / "engines", "policy")


def half(path: Path) -> Path:
    """The shipped adapter at half its strength."""
    adapter = read_adapter(shipped_adapter())
    factors = {name: values.astype(np.float16) for name, values in adapter.tensors.items()}
    save_file(factors, path, {"format": "obsspec-lora-1", "rank": "2", "alpha": str(adapter.scale)})
    return path


async def test_d12_e01_e04_a_running_request_ends_on_its_weights_and_the_next_is_on_the_new_ones(
    serving: EmbeddedServing, tmp_path: Path
) -> None:
    prompt = TerminalRenderer(load_vocabulary()).start("Make a directory named work.")
    done: dict[str, Completion] = {}

    async def ask(live: LivePolicy, name: str, started: anyio.Event) -> None:
        done[name] = await live.generate(prompt, LONG, on_tokens=lambda _: started.set())

    async with open_live_policy(serving.open(shipped_adapter(), "v1")) as live:
        await ask(live, "alone", anyio.Event())
        async with anyio.create_task_group() as tasks:
            started = anyio.Event()
            tasks.start_soon(ask, live, "across", started)
            await started.wait()
            await live.publish(serving.open(half(tmp_path / "half.safetensors"), "v2"))
            await ask(live, "new", anyio.Event())
        assert not list((tmp_path / "engines").glob("*.gguf")), "an engine has its file in memory"
        await live.publish(serving.open(shipped_adapter(), "v3"))
        await ask(live, "again", anyio.Event())
    versions = {name: completion.weight_version for name, completion in done.items()}
    assert versions == {"alone": "v1", "across": "v1", "new": "v2", "again": "v3"}
    assert done["across"].token_ids == done["alone"].token_ids == done["again"].token_ids
    assert done["across"].logprobs == done["alone"].logprobs == done["again"].logprobs
    assert done["new"].logprobs != done["alone"].logprobs
