"""What must hold of a finished episode. Every broken promise is a line that begins with the promise's name."""

from __future__ import annotations

from obsspec.protocols import Followup
from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import RolloutRules
from obsspec.speculation.decisions import What
from obsspec.speculation.trace import Fate, SpanKind, SpeculationReport
from obsspec.testing.arm import Arm
from obsspec.testing.episodes import Episode
from obsspec.values import Outcome, StopReason


def audit(episode: Episode, sequential: Arm, speculative: Arm) -> list[str]:
    """Every broken promise of a finished episode, by name; none when all is well."""
    problems = [f"open: {what}" for what in left_open(speculative)]
    if sequential.executed != speculative.executed:
        problems.append("executed: the sandboxes saw something else")
    for a, b in zip(sequential.results, speculative.results, strict=True):
        problems += [f"equality: {name}" for name in differences(a, b)]
        problems += retold(episode, b)
        problems += accounting(episode, b)
        problems += learning(speculative, b)
    problems += tokens(speculative)
    return problems


def audit_cancelled(sequential: Arm, cancelled: Arm) -> list[str]:
    """A cancelled arm leaves nothing running, and its sandboxes saw a beginning of what they would have seen."""
    problems = [f"open: {what}" for what in left_open(cancelled)]
    for whole, part in zip(sequential.executed, cancelled.executed, strict=False):
        done = part[:-1] if part and part[-1][1] is None else part
        if whole[: len(done)] != done or [c for c, _ in whole[: len(part)]] != [c for c, _ in part]:
            problems.append("executed: not a beginning of the sequential commands")
    return problems


def left_open(arm: Arm) -> list[str]:
    found = {
        "policy requests": len(arm.policy.open),
        "predictions": sum(world_model.open for world_model in arm.world_models),
        "generations in the books of the gate": arm.believed_running,
        "sandboxes": sum(environment.open_now for environment in arm.environments),
        "commands": sum(sandbox.running for environment in arm.environments for sandbox in environment.sandboxes),
    }
    return [f"{count} {what}" for what, count in found.items() if count]


def retold(episode: Episode, result: RolloutResult) -> list[str]:
    """The trajectory is its prompts, the sampled ids verbatim and the frames of its observations, with mask and
    logprobs exactly on what was sampled."""
    trajectory = result.trajectory
    rules = RolloutRules(episode.renderer, episode.limits, result.seed)
    follow = rules.first(trajectory.instruction)
    mask, logprobs = [0] * len(follow.prompt), [0.0] * len(follow.prompt)
    for turn in trajectory.turns:
        ids = (*follow.prompt, *turn.completion.token_ids)
        mask += [1] * len(turn.completion.token_ids)
        logprobs += turn.completion.logprobs
        follow = Followup(ids, None)
        if rules.parse(turn.completion).stop is None:
            frames = episode.renderer.extend(ids, (), turn.observations)
            follow = Followup(frames if len(frames) <= episode.limits.max_context else ids, None)
        mask += [0] * (len(follow.prompt) - len(ids))
        logprobs += [0.0] * (len(follow.prompt) - len(ids))
    told = list(zip(follow.prompt, mask, logprobs, strict=True))
    found = list(zip(trajectory.ids, trajectory.mask, trajectory.logprobs, strict=True))
    unfinished = found[len(told) :]  # a turn whose call the sandbox failed on
    if found[: len(told)] == told and all(sampled for _, sampled, _ in unfinished):
        return []
    return ["trajectory: not what was sampled and seen"]


def accounting(episode: Episode, result: RolloutResult) -> list[str]:
    """One outcome for each committed turn with a tool call, within D and K; every span has an end."""
    report = result.speculation
    if report is None:
        return ["accounting: the session ended in an error, so there is no report"]
    trajectory = result.trajectory
    expected = [turn.level for turn in trajectory.turns if turn.calls]
    if trajectory.stop is StopReason.SANDBOX_ERROR:
        expected.append(len(trajectory.turns))  # the call that failed was a turn's
    problems: list[str] = []
    if [attempt.level for attempt in report.attempts] != expected:
        problems.append("accounting: outcomes are not one per turn with a call")
    if report.realized_depth > episode.depth or any(a.branches > episode.breadth + 1 for a in report.attempts):
        problems.append("accounting: deeper or broader than allowed")
    predicted = sum(attempt.outcome is not Outcome.GATED for attempt in report.attempts)
    if predicted > report.predictions_started or (predicted and not episode.depth * episode.breadth):
        problems.append("accounting: more outcomes than predictions")
    if any(span.end_s is None or span.fate is None for span in report.spans):
        problems.append("accounting: a span without an end")
    started = sum(span.speculative and span.kind is SpanKind.GENERATE for span in report.spans)
    if started != sum(d.allowed and d.what is What.START for d in report.decisions):
        problems.append("accounting: not every branch was allowed, or not every allowed one was started")
    problems += guarded_accounting(report)
    if any(a.outcome is Outcome.MATCH and not a.would_match for a in report.attempts):
        problems.append("accounting: a match without a candidate that matched")
    return problems


def guarded_accounting(report: SpeculationReport) -> list[str]:
    """Every guarded call that ran was handed to the loop; every one that was sent has a span."""
    spans = [span for span in report.spans if span.kind is SpanKind.EXECUTE]
    kept = sum(span.fate is Fate.KEPT for span in spans)
    if len(spans) == report.guarded_sent and kept == report.guarded_ran:
        return []
    return [f"accounting: of {report.guarded_sent} guarded calls {report.guarded_ran} ran and {kept} were kept"]


def learning(arm: Arm, result: RolloutResult) -> list[str]:
    """Every world model was told of each committed turn once, in order, with what really happened."""
    real = [(turn.calls, turn.observations) for turn in result.trajectory.turns if turn.calls]
    for world_model in arm.world_models:
        if [(c.calls, o) for c, o in world_model.learned if c.task_id == result.task_id] != real:
            return ["learning: not told of each committed turn once"]
    return []


def tokens(arm: Arm) -> list[str]:
    """Every token the engine sampled is in a trajectory or counted as discarded."""
    kept = sum(sum(result.trajectory.mask) for result in arm.results)
    discarded = sum(result.speculation.discarded_policy_tokens for result in arm.results if result.speculation)
    sampled = arm.policy.tokens
    return [] if kept + discarded == sampled else [f"tokens: {kept} + {discarded} of {sampled}"]
