"""What an update of the embedded engine costs, and whether it stays the same: python -m benchmarks.training.updates

Publishes one adapter again and again and times each update, and the first prediction after it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import mean

import anyio

from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.policy.llama_server import EngineSettings
from obsspec.train.live import open_live_policy
from obsspec.train.weights import EmbeddedServing
from obsspec.values import Sampling


async def measure(updates: int, folder: Path) -> list[dict[str, float]]:
    serving = EmbeddedServing(EngineSettings(slots=2, context=512), folder, "policy")
    found: list[dict[str, float]] = []
    async with open_live_policy(serving.open(shipped_adapter(), "v0")) as live:
        for number in range(1, updates + 1):
            begin = time.monotonic()
            await live.publish(serving.open(shipped_adapter(), f"v{number}"))
            published = time.monotonic()
            await live.generate(tuple(range(300, 332)), Sampling(max_tokens=8))
            found.append({"update_s": published - begin, "prediction_s": time.monotonic() - published})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(measure, options.updates, Path(folder))
    half = len(found) // 2
    for name in ("update_s", "prediction_s"):
        first, last = (mean(f[name] for f in part) for part in (found[:half], found[half:]))
        print(f"{name}: {first:.2f} in the first half, {last:.2f} in the second")  # noqa: T201
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
