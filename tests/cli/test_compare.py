"""`obsspec compare` as a user runs it: a process, real sandboxes, a token endpoint by URL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.sandbox

KEYS = {
    "pairs",
    "identical",
    "reward_sequential",
    "reward_speculative",
    "agent_s_sequential",
    "agent_s_speculative",
    "reduction",
    "reduction_ci",
    "hidden_tool_time",
    "attempts",
    "match",
    "rollback",
    "cancel",
    "gated",
    "failed",
    "realized_depth",
    "realized_breadth",
    "decode_rate_sequential",
    "decode_rate_speculative",
    "prediction_p50_s",
    "discarded_policy_tokens",
    "match_nonempty",
    "match_trivial",
}


@contextmanager
def endpoint(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.cli.endpoint", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "obsspec.cli", "compare", *arguments]


def options(url: str, out: Path, tasks: int = 2, latency: str = "0.2") -> list[str]:
    return [
        *("--policy", url, "--policy-name", "scripted", "--tasks", str(tasks), "--latency", latency),
        *("--max-turn-tokens", "32", "--out", str(out)),
    ]


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=150, check=False)


def lines(out: Path) -> list[str]:
    file = out / "rollouts.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def test_a_run_over_a_token_endpoint_leaves_everything_in_its_folder(tmp_path: Path) -> None:
    with endpoint() as url:
        run = [*options(url, tmp_path / "run"), "--json", str(tmp_path / "figures.json")]
        done = compare(*run, "--sources", "lm", "--no-gate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical rollouts 2/2" in done.stdout
    assert "injected on the wire: 0.2 s" in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == json.loads((tmp_path / "figures.json").read_text())
    assert set(summary) >= KEYS
    assert 0 < summary["match"] < 1  # mkdir is silent, pwd is not
    assert summary["attempts"] + summary["gated"] + summary["failed"] == summary["turns_with_a_call"] == 4
    assert (tmp_path / "run" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert len(lines(tmp_path / "run")) == 6  # two tasks, three arms


def test_the_cascade_knows_what_the_language_model_guesses_wrong(tmp_path: Path) -> None:
    with endpoint() as url:
        done = compare(*options(url, tmp_path / "run"), "--group", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical rollouts 4/4" in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["would_match"] == summary["turns_with_a_call"] == 8
    assert set(summary["per_source"]) <= {"rules", "memory", "replica"}
    assert (tmp_path / "run" / "memory.sqlite").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_keeps_what_is_finished_and_resumes(tmp_path: Path, how: signal.Signals) -> None:
    out = tmp_path / "run"
    with endpoint() as url:
        first = subprocess.Popen(command(*options(url, out, 3)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while len(lines(out)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        first.send_signal(how)
        first.communicate(timeout=30)
        kept = [line for line in lines(out) if line.endswith("}")]
        assert len(kept) >= 2
        assert first.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
        again = compare(*options(url, out, 3))
    assert again.returncode == 0, again.stdout + again.stderr
    assert lines(out)[: len(kept)] == kept
    assert len(lines(out)) == 9
    assert "identical rollouts 3/3" in again.stdout


def test_a_pair_that_differs_is_an_error_on_an_engine_that_claims_to_be_exact(tmp_path: Path) -> None:
    with endpoint("--forgetful") as url:
        done = compare(*options(url, tmp_path / "run", 1))
    assert done.returncode == 1
    assert "identical rollouts 0/1; different:" in done.stdout


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    cases = {
        ("--policy", nobody, "--policy-name", "m"): "not reachable",
        ("--policy", nobody): "--policy-name",
        ("--policy", "missing.gguf"): "missing.gguf",
        ("--policy", "missing.safetensors"): "missing.safetensors",
        ("--families", "nope"): "unknown nope",
        ("--latency", "soon"): "soon",
        ("--sources", "lm,crystal"): "unknown crystal",
        ("--determinism", "total"): "total",
        ("--concurrency", "0"): "--concurrency must be at least 1",
    }
    for number, (arguments, named) in enumerate(cases.items()):
        done = compare(*arguments, "--out", str(tmp_path / str(number)))
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        message = [line for line in done.stderr.splitlines() if line.strip()]
        assert len(message) == 1, (arguments, done.stderr)
        assert named in message[0], (arguments, message)
