"""A rollout function for TRL's `GRPOTrainer`: called from its thread, rollouts are on a loop of their own."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from anyio.from_thread import BlockingPortal, start_blocking_portal

from obsspec.rollout.collector import RolloutResult
from obsspec.values import EngineError, Outcome, StopReason


class Collects(Protocol):
    """Makes rollouts with the weights that were last published."""

    async def publish(self, adapter: Path, name: str) -> None: ...

    async def collect(self, prompts: Sequence[str], step: int, label: str) -> list[RolloutResult]: ...


Open = Callable[[Path, str], AbstractAsyncContextManager[Collects]]  # the first adapter and its version
Save = Callable[[Any, Path], str]  # writes the trainer's adapter to a file; the name of the version


class RolloutFunction:
    """What `GRPOTrainer(rollout_func=...)` takes; also a context manager. It ends with the process at the latest.

    The first call opens the pipeline; a call at a new step of the trainer publishes its weights before, and so does the
    first call of each `train()`. The seeds of rollouts are functions of (step, prompt, number in the group). Rollouts
    in which a part failed have no reward and so no influence; if a part failed in all of them, `EngineError` is raised.
    """

    def __init__(self, open_: Open, save: Save, end: int) -> None:
        """`end`: the id that ends a turn, to fill rollouts in which nothing could be sampled."""
        self._open, self._save, self._end = open_, save, end
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._collects: Collects | None = None
        self._step: int = -1
        self._state: Any = None  # the trainer's, which makes another one whenever it begins to train
        self._calls = 0  # at this step
        atexit.register(self.close)

    def __enter__(self) -> RolloutFunction:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent. Ends the engines, the sandboxes and the event loop."""
        self._stack.close()
        self._portal = self._collects = None
        atexit.unregister(self.close)

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        step: int = trainer.state.global_step
        collects, portal = self._at_step(step, trainer)
        label = f"{step}" if trainer.model.training else f"evaluation-{step}"
        if self._calls:
            label += f".{self._calls}"
        self._calls += 1
        begin = monotonic()
        running = portal.start_task_soon(collects.collect, list(prompts), step, label)
        try:
            results = running.result()
        except BaseException:
            running.cancel()
            raise
        failed = [result for result in results if result.trajectory.stop.is_error]
        if failed and len(failed) == len(results):
            raise EngineError(f"a part failed in every rollout: {failed[0].trajectory.error}")
        _measure(trainer, results, monotonic() - begin)
        return as_trl(results, self._end)

    def _at_step(self, step: int, trainer: Any) -> tuple[Collects, BlockingPortal]:
        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal())
        if step != self._step or trainer.state is not self._state:
            with tempfile.TemporaryDirectory(prefix="obsspec-weights-") as folder:
                adapter = Path(folder) / "adapter.safetensors"
                name = self._save(trainer, adapter)
                if self._collects is None:
                    opened = self._portal.wrap_async_context_manager(self._open(adapter, name))
                    self._collects = self._stack.enter_context(opened)
                else:
                    self._portal.call(self._collects.publish, adapter, name)
            self._step, self._state, self._calls = step, trainer.state, 0
        assert self._collects is not None
        return self._collects, self._portal


def as_trl(results: Sequence[RolloutResult], end: int) -> dict[str, list[Any]]:
    """The rollouts as TRL wants them. `env_mask` is 1 where the policy sampled; logprobs are those recorded there.

    `verdict` is the reward, None for a rollout in which a part failed. `finished`: the policy ended it, and no limit.
    """
    out: dict[str, list[Any]] = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
    for result in results:
        t = result.trajectory
        start, stop = _sampled(t.mask)
        out["prompt_ids"].append(t.ids[:start] or [end])
        out["completion_ids"].append(t.ids[start:stop] or [end])
        out["logprobs"].append(t.logprobs[start:stop] or [0.0])
        out["env_mask"].append(t.mask[start:stop] or [0])
    out["verdict"] = [None if r.trajectory.stop.is_error else r.verdict.reward for r in results]
    out["finished"] = [r.trajectory.stop == StopReason.FINAL for r in results]
    return out


def _sampled(mask: list[int]) -> tuple[int, int]:
    """From the first sampled token to behind the last one: what comes after it trains nothing."""
    if 1 not in mask:
        return len(mask), len(mask)
    return mask.index(1), len(mask) - mask[::-1].index(1)


def _measure(trainer: Any, results: Sequence[RolloutResult], collect_s: float) -> None:
    """Into the trainer's own log, next to its reward."""
    good = [result for result in results if not result.trajectory.stop.is_error]
    outcomes = [a.outcome for r in good if r.speculation for a in r.speculation.attempts]
    attempts = [o for o in outcomes if o in (Outcome.MATCH, Outcome.ROLLBACK, Outcome.CANCEL)]
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    metrics["rollouts/collect_s"].append(collect_s)
    metrics["rollouts/agent_s"].append(_mean([r.trajectory.agent_s for r in good]))
    metrics["rollouts/turns"].append(_mean([len(r.trajectory.turns) for r in good]))
    metrics["rollouts/finished"].append(_mean([r.trajectory.stop == StopReason.FINAL for r in good]))
    metrics["rollouts/failed"].append((len(results) - len(good)) / len(results))
    metrics["rollouts/attempts"].append(len(attempts) / len(results))
    if attempts:
        metrics["rollouts/match"].append(attempts.count(Outcome.MATCH) / len(attempts))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def reward(prompts: Any, completions: Any, verdict: list[float | None], **_: Any) -> list[float | None]:
    """The reward function that goes with a rollout function: what the verifier said."""
    return verdict


def finished_reward(
    prompts: Any, completions: Any, verdict: list[float | None], finished: list[bool], **_: Any
) -> list[float | None]:
    """What the verifier said, but 0 where a rollout ran into a limit.

    A verifier that looks at what is left behind is content with a policy that never ends. Then going on costs nothing
    and may still help, and ending is only ever blamed.
    """
    return [each if each is None or ended else 0.0 for each, ended in zip(verdict, finished, strict=True)]
