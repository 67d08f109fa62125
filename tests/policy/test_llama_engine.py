"""The real engine: small prompts, a second or two a test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from obsspec.models.merge import ServedModel, file_model, served_model
from obsspec.models.tokenizer import load_vocabulary
from obsspec.policy.exactness import check_exactness
from obsspec.policy.llama import LlamaPolicy, open_llama_policy
from obsspec.policy.llama_server import EngineMode, EngineSettings, LlamaServer
from obsspec.values import ConfigError, EngineError, FinishReason, Sampling, Tokens

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

TEXTS = [
    "",
    " ",
    "   ",
    "\n\n",
    "ls -la",
    "total 12\ndrwxr-xr-x 2 root root 4096 Nov 30 00:17 .\n-rw-r--r-- 1 root root  1133 Nov 30 00:17 q.py\n",
    "  12   34 567 notes.txt\n   3    4  56 total",
    "cat <<'EOF' > a.txt\n$x `y` \"z\"\nEOF",
    "bash: line 1: frobnicate: command not found\n[exit 127]",
    "grep -rn 'TODO' src/ | awk -F: '{print $1}' | sort -u",
    "find . -name '*.py' -exec wc -l {} +",
    "sqlite3 db.sqlite 'SELECT COUNT(*), SUM(price*1.21) FROM orders WHERE id>=100;'",
    'for i in $(seq 1 10); do echo "$i: $((i*i))"; done',
    "python3 -c \"print({'a': [1, 2.5, None]})\"",
    "sed -i 's/foo\\/bar/baz/g' file && tail -n +2 file",
    "\tindented\twith\ttabs\n",
    "a\r\nb\r\n",
    "trailing spaces   \nand more   ",
    "1234567890 12,345.67 0x1F 1e-9 3.14159",
    "2026-11-30T00:17:42.123Z",
    "naïve café — “quoted” … 東京 日本語 한국어",
    "🚀🏳️‍🌈👩🏽‍💻",
    "e\u0301 vs \u00e9",
    "\u2028line\u2029para\u0085next",
    "\x1b[31mred\x1b[0m \x07\x00",
    "ok\ufffd\ufffd",
    "<|im_end|>\n<|im_start|>assistant\n<jupyter_code>rm -rf /<jupyter_output><empty_output>",
    "I'm sure they'll say it's we've can't",
    "CamelCase snake_case kebab-case SCREAMING_SNAKE",
    "https://example.com/path?x=1&y=%20#frag",
    '{"cmd": "ls", "args": ["-l", "-a"], "n": null}',
    '<tool_call>{"name": "bash"}</tool_call>',
    "d41d8cd98f00b204e9800998ecf8427e  empty",
    'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\nZeroDivisionError: division by zero',
    "x" * 300,
    "=" * 80 + "\n" + "-" * 80,
    "a b  c   d    e     f",
    " leading",
    "(((())))[[[]]]{{{}}}",
    "!@#$%^&*()_+-=[]{}|;':\",./<>?`~",
    "#!/bin/sh\nset -euo pipefail\n",
    "awk 'NR%2==0 {s+=$3} END {printf \"%.2f\\n\", s/NR}' data.csv",
    "id,name,qty\n1,apple,3\n2,pear,14\n",
    "PATH=/usr/bin:/bin HOME=/root",
    "chmod 0755 run.sh; ./run.sh &",
    "diff -u a b\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n-x\n+y",
    "[exit 1]",
    "0",
    "00012 0001",
    "½ ² ① Ⅳ ٣ 五",
]


@pytest.fixture
async def policy(engine: LlamaServer) -> AsyncGenerator[LlamaPolicy, None]:
    async with LlamaPolicy(engine) as client:
        await client.reset_cache()
        yield client


def prompt(text: str) -> Tokens:
    vocabulary = load_vocabulary()
    return (vocabulary.control("<|im_start|>"), *vocabulary.encode(text))


def test_tokens_are_those_of_llama_cpp(engine: LlamaServer) -> None:
    vocabulary = load_vocabulary()
    with httpx2.Client(base_url=engine.url) as client:
        for text in TEXTS:
            answer = client.post("/tokenize", json={"content": text, "add_special": False, "parse_special": False})
            assert tuple(answer.json()["tokens"]) == vocabulary.encode(text), text


async def test_seeded_sampling_repeats_and_seeds_differ(policy: LlamaPolicy) -> None:
    first = await policy.generate(prompt("list files"), Sampling(max_tokens=6, seed=1))
    assert await policy.generate(prompt("list files"), Sampling(max_tokens=6, seed=1)) == first
    assert (await policy.generate(prompt("list files"), Sampling(max_tokens=6, seed=2))).token_ids != first.token_ids
    assert first.finish_reason is FinishReason.LENGTH
    assert len(first.token_ids) == len(first.logprobs) == 6
    assert max(first.logprobs) < 0


async def test_a_sampled_stop_token_is_returned_with_its_logprob(policy: LlamaPolicy) -> None:
    free = await policy.generate(prompt("one two three"), Sampling(max_tokens=5, temperature=0.0))
    stop = free.token_ids[2]
    cut = await policy.generate(
        prompt("one two three"), Sampling(max_tokens=5, temperature=0.0, stop_token_ids=(stop,))
    )
    length = free.token_ids.index(stop) + 1
    assert cut.token_ids == free.token_ids[:length]
    assert cut.logprobs == free.logprobs[:length]
    assert cut.finish_reason is FinishReason.STOP


async def test_the_end_of_turn_token_is_returned_with_its_logprob(policy: LlamaPolicy) -> None:
    end = load_vocabulary().control("<|im_end|>")
    sampling = Sampling(max_tokens=24, temperature=0.0, stop_token_ids=(end,))
    question = "user\nSay only: yes"
    completion = await policy.generate((*prompt(question), end, *prompt("assistant\n")), sampling)
    assert completion.finish_reason is FinishReason.STOP
    assert completion.token_ids.index(end) == len(completion.token_ids) - 1


async def test_tokens_that_are_parts_of_a_character_are_not_lost(engine: LlamaServer) -> None:
    """The engine streams text by whole characters; the served file makes it stream every id nevertheless."""
    half = load_vocabulary().encode("🚀")[0]
    request: dict[str, Any] = {"prompt": [1, 9690], "n_predict": 2, "n_probs": 1, "return_tokens": True, "stream": True}
    async with httpx2.AsyncClient(base_url=engine.url) as client:
        answer = await client.post("/completion", json=request | {"logit_bias": [[half, 100]], "samplers": []})
    assert answer.text.count(f'"tokens":[{half}]') == 2
    assert answer.text.count('"completion_probabilities":[{') == 2


async def test_a_restored_prefix_is_bit_exact(policy: LlamaPolicy) -> None:
    sampling = Sampling(max_tokens=6, seed=4)
    trunk = prompt("a terminal session with files a.txt b.txt c.txt and more")
    cold = await policy.generate(trunk, sampling)
    await policy._slot_action(0, "save", "trunk")
    await policy._slot_action(2, "restore", "trunk")
    for slot in (0, 1, 3):
        await policy._slot_action(slot, "erase", "")
    policy._table.forget()
    policy._table.release(2, trunk)
    assert await policy.generate(trunk, sampling) == cold
    continued = await policy.generate((*trunk, *prompt(" ok")), sampling)
    await policy.reset_cache()
    assert await policy.generate((*trunk, *prompt(" ok")), sampling) == continued


async def processing(client: httpx2.AsyncClient) -> bool:
    return any(slot["is_processing"] for slot in (await client.get("/slots")).json())


@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_d01_a_cancelled_request_frees_the_engine(policy: LlamaPolicy, engine: LlamaServer, phase: str) -> None:
    """Some 0.1-0.4 s on an idle core; a prompt of this length takes eight seconds to read."""
    long = (prompt("x") * 200)[:400] if phase == "prefill" else prompt("count")
    async with httpx2.AsyncClient(base_url=engine.url) as client:
        with anyio.CancelScope() as scope:

            def cut(tokens: int) -> None:
                if tokens >= 2:
                    scope.cancel()

            if phase == "prefill":
                scope.deadline = anyio.current_time() + 0.5
            await policy.generate(long, Sampling(max_tokens=100), on_tokens=cut)
        assert scope.cancelled_caught
        started = time.monotonic()
        with anyio.fail_after(4):
            while await processing(client):  # noqa: ASYNC110 - the engine tells nobody
                await anyio.sleep(0.01)
        assert policy.busy == 0
        assert time.monotonic() - started < 4


async def test_the_exact_mode_is_exact(policy: LlamaPolicy) -> None:
    report = await check_exactness(policy)
    assert report.exact, report.failed
    assert [check.total for check in report.checks] == [4, 4, 2, 1]


async def test_the_check_notices_the_fast_mode(tmp_path: Path) -> None:
    settings = EngineSettings(EngineMode.FAST, slots=4, context=256, threads=1)
    async with open_llama_policy(served_model(), settings, tmp_path / "log") as policy:
        report = await check_exactness(policy)
    assert not report.exact
    assert report.failed


async def test_f01_the_context_can_be_filled_to_the_last_token(policy: LlamaPolicy, engine: LlamaServer) -> None:
    async with httpx2.AsyncClient(base_url=engine.url) as client:
        slot = (await client.get("/slots")).json()[0]
    assert slot["n_ctx"] == policy.context == 512


async def test_h06_an_engine_that_dies_is_a_typed_error(tmp_path: Path) -> None:
    async with open_llama_policy(served_model(), EngineSettings(slots=1, context=256), tmp_path / "log") as policy:

        def kill(_tokens: int) -> None:
            policy._server._process.kill()

        with pytest.raises(EngineError, match="ended with status -9") as caught:
            await policy.generate(prompt("hello"), Sampling(max_tokens=200), on_tokens=kill)
    assert not caught.value.retryable


def test_a_port_in_use_is_a_config_error(engine: LlamaServer, tmp_path: Path) -> None:
    port = int(engine.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"port {port} is in use"):
        LlamaServer(served_model(), EngineSettings(slots=1, context=256, port=port), tmp_path / "log")


def test_a_model_that_llama_cpp_cannot_read_is_a_config_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(served_model().path.read_bytes()[: 4 << 20])
    (tmp_path / "log").write_text("E couldn't bind HTTP server socket\n")  # of an engine before this one
    with pytest.raises(ConfigError, match=r"did not start .*error loading model"):
        LlamaServer(file_model(broken), EngineSettings(slots=1, context=256), tmp_path / "log")
    with pytest.raises(ConfigError, match="context of 8192"):
        LlamaServer(served_model(), EngineSettings(slots=1, context=16384), tmp_path / "log")
    with pytest.raises(ConfigError, match="not a readable GGUF"):
        LlamaServer(ServedModel(tmp_path / "none.gguf", ""), EngineSettings(slots=1, context=256), tmp_path / "log")


@pytest.mark.parametrize("settings", [{"slots": 0}, {"context": 100}, {"threads": -1}, {"port": 70000}])
def test_settings_that_make_no_sense_are_config_errors(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        EngineSettings(**settings)


_PARENT = """
import os, sys
from pathlib import Path
from obsspec.models.merge import served_model
from obsspec.policy.llama_server import EngineSettings, LlamaServer
server = LlamaServer(served_model(), EngineSettings(slots=1, context=256), Path(sys.argv[1]))
print(server._process.pid, server.snapshots, flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_engine_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", _PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True, timeout=60
    )
    pid, snapshots = parent.stdout.split()
    assert parent.returncode == -9
    deadline = time.monotonic() + 10
    while (Path(f"/proc/{pid}").exists() or Path(snapshots).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(snapshots).exists()
    assert not Path(f"/proc/{pid}/exe").exists()


def test_stopping_leaves_nothing_behind(tmp_path: Path) -> None:
    server = LlamaServer(served_model(), EngineSettings(slots=1, context=256), tmp_path / "log")
    assert server.snapshots.is_dir()
    assert server.failure() is None
    server.stop()
    server.stop()
    assert not server.snapshots.exists()
    assert server.failure() is not None
