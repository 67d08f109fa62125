"""Whether two rollouts are the same rollout: the standing oracle of every claim of losslessness."""

from __future__ import annotations

from obsspec.rollout.collector import RolloutResult


def differences(a: RolloutResult, b: RolloutResult) -> list[str]:
    """Names of the fields in which two rollouts differ; empty when identical.

    Compared: token ids, masks, logprobs (bit for bit), weight versions, commands, observations, answer, stop reason
    and reward. Not compared: times and errors' wording.
    """
    x, y = a.trajectory, b.trajectory
    pairs = {
        "task": (a.task_id, b.task_id),
        "seed": (a.seed, b.seed),
        "ids": (x.ids, y.ids),
        "mask": (x.mask, y.mask),
        "logprobs": (x.logprobs, y.logprobs),
        "versions": (x.versions, y.versions),
        "finish_reasons": (
            [t.completion.finish_reason for t in x.turns],
            [t.completion.finish_reason for t in y.turns],
        ),
        "commands": ([t.calls for t in x.turns], [t.calls for t in y.turns]),
        "observations": (
            [o.text for t in x.turns for o in t.observations],
            [o.text for t in y.turns for o in t.observations],
        ),
        "answer": (x.answer, y.answer),
        "stop": (x.stop, y.stop),
        "reward": (a.verdict.reward, b.verdict.reward),
    }
    return [name for name, (left, right) in pairs.items() if left != right]
