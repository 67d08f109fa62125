"""What a simulated turn costs: processor time of the shipped session, collector and simulator together.

    python benchmarks/simulated_cost.py --rollouts 4096 --in-flight 256
    python benchmarks/simulated_cost.py --replicas 1000 --in-flight 16000 --rollouts 16000 --pipelines guarded

Each line is one whole arm of the reference workload: so many rollouts, so many of them in flight, on so many replicas
of the policy. `sequential` has no session: the difference is what a session and its speculation add. A cost a turn that
stays the same while rollouts and replicas grow says that nothing is quadratic. `python benchmarks/overhead.py` measures
the session alone, with clients that answer at once.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from obsspec.sim.paper import DEFAULT_TOOL_S, terminal
from obsspec.sim.reference import Reference, Variant

app = App(name="simulated-cost", help=__doc__)
PIPELINES: dict[str, Variant | None] = {
    "sequential": None,
    "observation": Variant(depth=1, gated=False, guarded=False),
    "guarded": Variant(),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one arm. `turn_ms`: of processor time; `memory_mb`: the most that this process ever had."""

    pipeline: str
    rollouts: int
    in_flight: int
    replicas: int
    turns: int
    cpu_s: float
    turn_ms: float
    memory_mb: float
    simulated_h: float


def measure(pipeline: str, rollouts: int, in_flight: int, replicas: int) -> Cost:
    simulation = Reference(Variant(replicas=replicas), rollouts, spec=terminal(DEFAULT_TOOL_S))
    variant = PIPELINES[pipeline]
    gc.collect()
    began_s = time.process_time()
    figures = simulation.run(variant, in_flight) if variant else simulation.sequential(in_flight)
    cpu_s = time.process_time() - began_s
    return Cost(
        pipeline,
        rollouts,
        in_flight,
        replicas,
        simulation.turns,
        cpu_s,
        1000 * cpu_s / simulation.turns,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        figures.ended_s / 3600,
    )


@app.default
def main(
    *,
    rollouts: Annotated[tuple[int, ...], Parameter(help="Rollouts of an arm.")] = (256, 1024, 4096),
    in_flight: Annotated[int, Parameter(help="Of them at a time.")] = 256,
    replicas: Annotated[int, Parameter(help="Of the policy.")] = 4,
    pipelines: Annotated[str, Parameter(help=f"Comma-separated: {', '.join(PIPELINES)}.")] = ",".join(PIPELINES),
    json_file: Annotated[Path | None, Parameter(name="--json", help="Also write the figures to this file.")] = None,
) -> None:
    sys.stdout.write("pipeline     rollouts  in flight  replicas     turns      CPU  ms a turn   memory  simulated\n")
    costs: list[Cost] = []
    for pipeline in pipelines.split(","):
        for count in rollouts:
            cost = measure(pipeline, count, in_flight, replicas)
            costs.append(cost)
            sys.stdout.write(
                f"{cost.pipeline:<12} {cost.rollouts:8,} {cost.in_flight:10,} {cost.replicas:9,} {cost.turns:9,} "
                f"{cost.cpu_s:6.0f} s {cost.turn_ms:10.2f} {cost.memory_mb:5.0f} MB {cost.simulated_h:8.1f} h\n"
            )
            sys.stdout.flush()
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
