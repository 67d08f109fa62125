"""Rollouts as JSON objects: what a run folder holds of each, and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, TypedDict, cast

from obsspec.rollout.collector import RolloutResult, Verdict
from obsspec.rollout.trajectory import Trajectory, TurnRecord
from obsspec.speculation.decisions import Decision, Said, What, Why
from obsspec.speculation.trace import Attempted, Fate, Span, SpanKind, SpeculationReport
from obsspec.values import Completion, FinishReason, Observation, Outcome, StopReason, Timing, ToolCall

Record = dict[str, Any]


class Message(TypedDict):
    role: str
    content: str


def to_record(result: RolloutResult) -> Record:
    """Everything of one rollout: token ids, masks, logprobs, messages, commands, outcomes, times."""
    trajectory = result.trajectory
    return {
        "task_id": result.task_id,
        "seed": result.seed,
        "group": result.group,
        "reward": result.verdict.reward,
        "failed_checks": list(result.verdict.failed_checks),
        "stop": trajectory.stop,
        "answer": trajectory.answer,
        "error": trajectory.error,
        "agent_s": trajectory.agent_s,
        "start_s": trajectory.start_s,
        "end_s": trajectory.end_s,
        "messages": messages(trajectory),
        "ids": trajectory.ids,
        "mask": trajectory.mask,
        "logprobs": trajectory.logprobs,
        "versions": trajectory.versions,
        "turns": [_turn_to_record(turn) for turn in trajectory.turns],
        "speculation": None if result.speculation is None else _report_to_record(result.speculation),
    }


def from_record(record: Record) -> RolloutResult:
    """The inverse of `to_record`, also for older records, without decisions or guarded calls.

    Raises `KeyError` for a missing field.
    """
    trajectory = Trajectory(
        instruction=record["messages"][0]["content"],
        ids=record["ids"],
        mask=record["mask"],
        logprobs=record["logprobs"],
        versions=record["versions"],
        turns=[_turn_from_record(turn) for turn in record["turns"]],
        stop=StopReason(record["stop"]),
        answer=record["answer"],
        error=record["error"],
        start_s=record["start_s"],
        end_s=record["end_s"],
    )
    return RolloutResult(
        task_id=record["task_id"],
        seed=record["seed"],
        group=record["group"],
        trajectory=trajectory,
        verdict=Verdict(record["reward"], tuple(record["failed_checks"])),
        speculation=None if record["speculation"] is None else _report_from_record(record["speculation"]),
    )


def messages(trajectory: Trajectory) -> list[Message]:
    """The rollout as a person reads it; never used to build a prompt."""
    found = [Message(role="user", content=trajectory.instruction)]
    for turn in trajectory.turns:
        calls = (call.command or repr(dict(call.arguments)) for call in turn.calls)
        found += [Message(role="assistant", content=call) for call in calls]
        found += [Message(role="tool", content=observation.text) for observation in turn.observations]
    if trajectory.answer is not None:
        found.append(Message(role="assistant", content=trajectory.answer))
    return found


def _turn_to_record(turn: TurnRecord) -> Record:
    completion = asdict(turn.completion)
    observations = [{**asdict(o), "raw": b64encode(o.raw).decode()} for o in turn.observations]
    return {
        "level": turn.level,
        "completion": completion,
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in turn.calls],
        "observations": observations,
        "generate_s": [turn.generate_start_s, turn.generate_end_s],
        "tool_s": [list(pair) for pair in zip(turn.tool_start_s, turn.tool_end_s, strict=True)],
        "error": turn.error,
    }


def _turn_from_record(record: Record) -> TurnRecord:
    completion = cast("Record", record["completion"])
    timing = completion["timing"]
    return TurnRecord(
        level=record["level"],
        completion=Completion(
            token_ids=tuple(completion["token_ids"]),
            logprobs=tuple(completion["logprobs"]),
            finish_reason=FinishReason(completion["finish_reason"]),
            weight_version=completion["weight_version"],
            timing=Timing(**timing) if timing else None,
        ),
        calls=tuple(ToolCall(call["name"], MappingProxyType(call["arguments"])) for call in record["calls"]),
        observations=tuple(_observation_from_record(observation) for observation in record["observations"]),
        generate_start_s=record["generate_s"][0],
        generate_end_s=record["generate_s"][1],
        tool_start_s=tuple(pair[0] for pair in record["tool_s"]),
        tool_end_s=tuple(pair[1] for pair in record["tool_s"]),
        error=record["error"],
    )


def _observation_from_record(record: Record) -> Observation:
    fields: Record = {**record, "raw": b64decode(record["raw"])}
    return Observation(**fields)


def _report_to_record(report: SpeculationReport) -> Record:
    return asdict(report)


def _report_from_record(record: Record) -> SpeculationReport:
    return SpeculationReport(
        attempts=[_attempted_from_record(attempted) for attempted in record["attempts"]],
        spans=[_span_from_record(span) for span in record["spans"]],
        decisions=[_decision_from_record(decision) for decision in record.get("decisions", ())],
        discarded_policy_tokens=record["discarded_policy_tokens"],
        realized_depth=record["realized_depth"],
        predictions_started=record["predictions_started"],
        learning_errors=record["learning_errors"],
        guarded_sent=record.get("guarded_sent", 0),
        guarded_ran=record.get("guarded_ran", 0),
        guarded_refused=record.get("guarded_refused", 0),
    )


def _attempted_from_record(record: Record) -> Attempted:
    said = tuple(Said(**said) for said in record.get("said", ()))
    fields: Record = {**record, "outcome": Outcome(record["outcome"]), "said": said}
    return Attempted(**fields)


def _decision_from_record(record: Record) -> Decision:
    fields: Record = {**record, "what": What(record["what"]), "why": Why(record["why"])}
    return Decision(**fields)


def _span_from_record(record: Record) -> Span:
    fate = record["fate"]
    fields: Record = {**record, "kind": SpanKind(record["kind"]), "fate": None if fate is None else Fate(fate)}
    return Span(**fields)
