"""Does it hold on a GPU, and what does it gain there? One command, at most ten minutes.

    python benchmarks/gpu/check.py --vllm /path/to/env/bin/python --out runs/gpu

1. the tests of tests/vllm in float32 on the GPU: equality, cancellation, prefixes, priorities, versions;
2. `obsspec compare` in bfloat16 at several concurrencies, both arms on one engine: speed and equal distributions.

`--vllm` is the interpreter of an environment with vLLM; this one needs the `dev` extra. What fails is reported, and
the rest goes on. Writes check.json: every figure, the exit status of each step, and the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console

from obsspec.models.hf_folder import write_hf_folder
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.testing.vllm_server import NAME, serve

ROOT = Path(__file__).parents[2]
BUDGET_S = 570.0  # for everything
TESTS_S = 270.0  # at most, of these
STOP_S = 30.0  # for what was told to stop
SHOWN = ("pairs", "identical", "agent_s_sequential", "agent_s_speculative", "reduction", "reduction_ci")
SHOWN += ("hidden_tool_time", "match", "decode_rate_sequential", "decode_rate_speculative", "distribution_p")
app = App(name="gpu-check", help=__doc__)


@app.default
def check(
    *,
    vllm: Annotated[Path, Parameter(help="Python of an environment with vLLM.")],
    out: Annotated[Path, Parameter(help="Folder for check.json, the runs and the engines' logs.")] = Path("runs/gpu"),
    tasks: Annotated[int, Parameter(help="Tasks of each comparison.")] = 24,
    concurrency: Annotated[tuple[int, ...], Parameter(help="Rollouts in flight, one comparison for each.")] = (1, 8),
) -> int:
    console, deadline = Console(), time.monotonic() + BUDGET_S
    out.mkdir(parents=True, exist_ok=True)
    machine, steps = _machine(), dict[str, dict[str, Any]]()

    def note(name: str, figures: dict[str, Any]) -> None:
        steps[name] = figures
        (out / "check.json").write_text(json.dumps({"machine": machine, **steps}, indent=2), encoding="utf-8")

    note("tests", _tests(vllm, min(TESTS_S, deadline - time.monotonic()), console))
    model = write_hf_folder(out / "model", shipped_adapter())
    try:
        with serve(str(vllm), model, out, "--dtype", "bfloat16") as server:
            for number in concurrency:
                left_s = deadline - time.monotonic()
                note(f"concurrency {number}", _compare(server.url, number, tasks, out, left_s, console))
    except AssertionError as error:
        note("server", {"status": -1, "why": str(error)})
    console.print_json(data={"machine": machine, **steps})
    return int(any(step["status"] for step in steps.values()))


def _tests(vllm: Path, seconds: float, console: Console) -> dict[str, Any]:
    options = {"OBSSPEC_VLLM_PYTHON": str(vllm), "OBSSPEC_VLLM_OPTIONS": "--dtype float32"}
    return _run([sys.executable, "-m", "pytest", "tests/vllm", "-v"], seconds, console, options)


def _compare(url: str, number: int, tasks: int, out: Path, seconds: float, console: Console) -> dict[str, Any]:
    folder = out / f"concurrency-{number}"
    command = [sys.executable, "-m", "obsspec.cli", "compare", "--policy", url, "--policy-name", NAME]
    command += ["--tasks", str(tasks), "--concurrency", str(number), "--out", str(folder)]
    result = _run(command, seconds, console, {})
    if (folder / "summary.json").is_file():
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        result |= {name: summary[name] for name in SHOWN}
    return result


def _run(command: list[str], seconds: float, console: Console, env: dict[str, str]) -> dict[str, Any]:
    if seconds <= 0:
        return {"status": -1, "why": "no time was left"}
    console.print(" ".join(command), style="bold", highlight=False, markup=False)
    start = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | env) as process:
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that it ends the engine that it has started
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return {"status": -1, "why": f"stopped after {seconds:.0f} s"}
    return {"status": status, "seconds": round(time.monotonic() - start, 1)}


def _machine() -> str:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no GPU found"


if __name__ == "__main__":
    app()
