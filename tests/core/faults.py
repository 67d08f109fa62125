"""Deliberate faults: what a careless change could do to the rules. Each names the check that must catch it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from obsspec import chain
from obsspec.history import History, Judgement
from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.rules import RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.beginning import Beginning
from obsspec.sandbox.commands import Commands
from obsspec.sandbox.output import canonical
from obsspec.speculation import settling
from obsspec.speculation.ahead import Ahead
from obsspec.speculation.commands import (
    Command,
    Decided,
    DiscardReason,
    ExecuteGuarded,
    Generate,
    HandOverFailure,
    Promote,
    Settle,
)
from obsspec.speculation.controller import Controller
from obsspec.speculation.node import Candidate, Generation, Node, Origin
from obsspec.speculation.session import Session, SessionSandbox
from obsspec.speculation.trace import Fate
from obsspec.speculation.works import Works
from obsspec.testing import toy_vocabulary
from obsspec.values import (
    Completion,
    GenerationKey,
    Guard,
    Observation,
    Outcome,
    Prediction,
    Refusal,
    Refused,
    Tokens,
    ToolCall,
)
from tests.core import checks

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`caught_by` must find something that begins with `finding` while `patch` is in force, and nothing without it."""

    name: str
    patch: Patch
    caught_by: Callable[[], list[str]]
    finding: str = ""


FAULTS: list[Fault] = []


def fault(caught_by: Callable[[], list[str]], finding: str = "") -> Callable[[Patch], Patch]:
    def register(patch: Patch) -> Patch:
        FAULTS.append(Fault(patch.__name__, patch, caught_by, finding))
        return patch

    return register


# What is kept ------------------------------------------------------------------------------------------------------


def _other_seed(key: GenerationKey) -> GenerationKey:
    return replace(key, sampling=replace(key.sampling, seed=key.sampling.seed + 1))


def _prune_nothing(self: Controller, observations: Sequence[Observation]) -> list[Command]:
    """Leave the settling to the next request, with every branch still there to be confused with."""
    return []


def _redraw(self: Controller, node: Node, key: GenerationKey) -> list[Command]:
    """Throw a right branch away and start its turn again."""
    return [*self._discard(node, DiscardReason.SUPERSEDED), *self._start_head(key, node.level)]


@fault(checks.episodes, "equality: ids")
def redraw_a_match_with_another_seed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "_promote", lambda self, node: _redraw(self, node, _other_seed(node.key)))


@fault(checks.walks)
def drop_the_generation_in_flight_on_a_match(patch: pytest.MonkeyPatch) -> None:
    """Draws the same again on a deterministic engine: the rule itself must be checked."""
    patch.setattr(Controller, "_promote", lambda self, node: _redraw(self, node, node.key))


@fault(checks.episodes, "equality: ids")
def first_finished_wins(patch: pytest.MonkeyPatch) -> None:
    original = Controller.requested

    def requested(self: Controller, key: GenerationKey) -> list[Command]:
        children = self.head.children if self.head else []
        done = next((child for child in children if child.completion is not None), None)
        return original(self, done.key if done is not None else key)

    patch.setattr(Controller, "observed", _prune_nothing)
    patch.setattr(Controller, "requested", requested)


@fault(checks.episodes, "equality: ids")
def wrong_seed_on_restart(patch: pytest.MonkeyPatch) -> None:
    original = Controller._start_head

    def start(self: Controller, key: GenerationKey, level: int) -> list[Command]:
        return original(self, _other_seed(key) if level else key, level)

    patch.setattr(Controller, "_start_head", start)


@fault(checks.walks)
def match_whatever_the_sampling(patch: pytest.MonkeyPatch) -> None:
    original = Controller.requested

    def requested(self: Controller, key: GenerationKey) -> list[Command]:
        children = self.head.children if self.head else []
        return original(self, next((child.key for child in children if child.key.prompt == key.prompt), key))

    patch.setattr(Controller, "requested", requested)


@fault(checks.episodes, "equality: ids")
def compare_observations_after_strip(patch: pytest.MonkeyPatch) -> None:
    original = Controller.requested

    def text(prompt: Tokens) -> str:
        vocabulary = toy_vocabulary()
        return "".join("|" if vocabulary.is_control(i) else vocabulary.decode((i,)).strip() for i in prompt)

    def requested(self: Controller, key: GenerationKey) -> list[Command]:
        children = self.head.children if self.head else []
        return original(self, next((c.key for c in children if text(c.key.prompt) == text(key.prompt)), key))

    patch.setattr(Controller, "observed", _prune_nothing)
    patch.setattr(Controller, "requested", requested)


@fault(checks.episodes, "equality")
def speculate_past_the_budget(patch: pytest.MonkeyPatch) -> None:
    """A branch is started with the whole turn limit, and claimed by the clamped call."""
    original = Controller.requested
    follow = Controller._follow

    def unclamped(self: Controller, node: Node, observations: Sequence[Observation]) -> Any:
        step = follow(self, node, observations)
        if step is None or step.key is None:
            return step
        return replace(step, key=replace(step.key, sampling=replace(step.key.sampling, max_tokens=40)))

    def requested(self: Controller, key: GenerationKey) -> list[Command]:
        children = self.head.children if self.head else []
        return original(self, next((child.key for child in children if child.key.prompt == key.prompt), key))

    patch.setattr(Controller, "_follow", unclamped)
    patch.setattr(Controller, "requested", requested)


@fault(checks.walks, "walk")
def do_not_go_deeper_after_a_match(patch: pytest.MonkeyPatch) -> None:
    original = Controller._maybe_predict

    def only_at_completion(self: Controller, node: Node) -> list[Command]:
        return original(self, node) if node.parent is None and not node.children else []

    patch.setattr(Controller, "_maybe_predict", only_at_completion)


@fault(checks.walks)
def let_a_claimed_branch_wait_among_the_guesses(patch: pytest.MonkeyPatch) -> None:
    original = Controller._promote

    def promote(self: Controller, node: Node) -> list[Command]:
        return [command for command in original(self, node) if not isinstance(command, Promote)]

    patch.setattr(Controller, "_promote", promote)


@fault(checks.walks)
def hand_over_twice(patch: pytest.MonkeyPatch) -> None:
    original = Controller._hand_over

    def twice(self: Controller, node: Node) -> list[Command]:
        commands = original(self, node)
        return commands * 2

    patch.setattr(Controller, "_hand_over", twice)


@fault(checks.walks)
def keep_stale_siblings(patch: pytest.MonkeyPatch) -> None:
    original = Controller._discard

    def lazy(self: Controller, node: Node, reason: DiscardReason) -> list[Command]:
        return [] if reason is DiscardReason.MISMATCH else original(self, node, reason)

    patch.setattr(Controller, "_discard", lazy)


@fault(checks.episodes, "equality: stop")
def let_the_failure_of_a_guess_reach_the_loop(patch: pytest.MonkeyPatch) -> None:
    original = Controller.generation_failed

    def failed(self: Controller, node_id: int) -> list[Command]:
        head = self.head
        if head is not None and head.id == node_id and head.origin is not None:
            return [HandOverFailure(node_id), *self._drop_head(DiscardReason.FAILED)]
        return original(self, node_id)

    patch.setattr(Controller, "generation_failed", failed)


@fault(checks.episodes, "equality")
def accept_what_broken_engines_return(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("obsspec.speculation.works.check_completion", lambda completion, sampling: None)
    patch.setattr("obsspec.rollout.loop.check_completion", lambda completion, sampling: None)


# What is executed --------------------------------------------------------------------------------------------------


@fault(checks.episodes, "executed")
def commit_twice(patch: pytest.MonkeyPatch) -> None:
    original = SessionSandbox.execute

    async def execute(self: SessionSandbox, call: ToolCall) -> Observation:
        await self._inner.execute(call)
        return await original(self, call)

    patch.setattr(SessionSandbox, "execute", execute)


@fault(checks.episodes)
def execute_a_speculative_command_early(patch: pytest.MonkeyPatch) -> None:
    wrap, run = Session.sandbox, Session._run

    def sandbox(self: Session, inner: Any) -> SessionSandbox:
        patch.setattr(Session, "inner", inner, raising=False)
        return wrap(self, inner)

    def eager(self: Session, commands: list[Command]) -> None:
        run(self, commands)
        for node in list(self._controller._tree._nodes.values()):
            early = node.parent is not None and node.turn is not None and node.turn.calls
            if early and not self.inner.running and self.inner.calls[-1:] != [node.turn.calls[0]]:
                self._tasks.start_soon(self.inner.execute, node.turn.calls[0])

    patch.setattr(Session, "sandbox", sandbox)
    patch.setattr(Session, "_run", eager)


# What is sent ahead ------------------------------------------------------------------------------------------------


@fault(checks.guarded_episodes, "executed")
def run_guarded_calls_whatever_was_answered(patch: pytest.MonkeyPatch) -> None:
    original = History.judge

    def judge(self: History, guard: Guard) -> Judgement:
        return Judgement.RUN if guard.after == self.number else original(self, guard)

    patch.setattr(History, "judge", judge)


@fault(checks.guarded_episodes, "executed")
def guard_by_the_last_answer_alone(patch: pytest.MonkeyPatch) -> None:
    """A call below a refused one runs when the call that was made instead answers the same."""
    original = chain.extend
    patch.setattr(chain, "extend", lambda digest, command, text: original(chain.START, "", text))


@fault(checks.guarded_episodes, "executed")
def run_again_what_is_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    async def execute_if(self: Commands, call: ToolCall, guard: Guard) -> Any:
        self._ran.clear()
        answer = await original(self, call, guard)
        return await self.execute(call) if isinstance(answer, Refused) and guard.after < self.history.number else answer

    original = Commands.execute_if
    patch.setattr(Commands, "execute_if", execute_if)


@fault(checks.guarded_episodes, "executed")
def make_a_lost_call_again(patch: pytest.MonkeyPatch) -> None:
    """As if an answer that never came meant that nothing ran."""

    async def ask(self: Ahead, sent: Any) -> Observation | Refused:
        if sent.done.is_set():
            sent.span.end_s, sent.span.fate = sent.span.start_s, Fate.DISCARDED
            return Refused(Refusal.HISTORY)
        return await original(self, sent)

    original = Ahead._ask
    patch.setattr(Ahead, "_ask", ask)


@fault(checks.guarded_episodes, "equality")
def hand_over_the_answer_of_another_guarded_call(patch: pytest.MonkeyPatch) -> None:
    async def take(self: Ahead, node: int, call: ToolCall) -> Observation | None:
        other = max(self._sent, default=node)
        return await original(self, other, self._sent[other].call if other in self._sent else call)

    original = Ahead.take
    patch.setattr(Ahead, "take", take)


@fault(checks.guarded_episodes, "executed")
def make_a_call_beside_its_guarded_one(patch: pytest.MonkeyPatch) -> None:
    async def take(self: Ahead, node: int, call: ToolCall) -> Observation | None:
        return None

    patch.setattr(Ahead, "take", take)


@fault(checks.guarded_episodes, "accounting: a span without an end")
def let_discarded_calls_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ahead, "withdraw", lambda self, node, reason: self._sent.pop(node, None))


@fault(checks.walks)
def send_calls_that_may_never_be_made(patch: pytest.MonkeyPatch) -> None:
    """Below a turn that is not at the sandbox itself."""
    original = Controller._maybe_send_ahead

    def send(self: Controller, node: Node) -> list[Command]:
        if self.guarded and node.may_be_sent_ahead:
            node.sent_ahead = True
            assert node.turn is not None
            return [ExecuteGuarded(node.id, node.turn.calls[0], self._tree.guard(node))]
        return original(self, node)

    def single_turns_are_skipped(self: Node) -> bool:
        return self.level % 2 == 0 and may(self)

    may = Node.may_be_sent_ahead.fget
    assert may is not None
    patch.setattr(Controller, "_maybe_send_ahead", send)
    patch.setattr(Node, "may_be_sent_ahead", property(single_turns_are_skipped))


# What is replaced --------------------------------------------------------------------------------------------------


@fault(checks.walks)
def send_ahead_what_may_be_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "is_tentative", property(lambda self: False))


@fault(checks.walks)
def replace_only_what_is_still_generated(patch: pytest.MonkeyPatch) -> None:
    """Short turns would be kept, and long ones drawn again."""
    original = Controller._replaced

    def replaced(self: Controller, node: Node) -> list[Node]:
        held = next(c for c in node.candidates if c.tentative)
        on_it = [child for child in node.children if child.key.prompt == held.prompt]
        if any(child.generation is Generation.DONE for child in on_it):
            held.tentative, held.replaced = False, True
            return []
        return original(self, node)

    patch.setattr(Controller, "_replaced", replaced)


@fault(checks.walks)
def replace_one_after_the_other(patch: pytest.MonkeyPatch) -> None:
    original = Controller._replaced

    def replaced(self: Controller, node: Node) -> list[Node]:
        gone = original(self, node)
        node.candidates[:] = [c for c in node.candidates if not c.replaced]
        return gone

    patch.setattr(Controller, "_replaced", replaced)


# What is heard early -----------------------------------------------------------------------------------------------


@fault(checks.walks)
def keep_what_begins_like_a_prediction(patch: pytest.MonkeyPatch) -> None:
    original = Controller.partly_observed

    def partly_observed(self: Controller, number: int, beginning: str) -> list[Command]:
        for candidate in self.head.candidates if self.head else []:
            if candidate.observations[0].text.startswith(beginning):
                return self.observed(candidate.observations)
        return original(self, number, beginning)

    patch.setattr(Controller, "partly_observed", partly_observed)


@fault(checks.walks)
def start_what_is_known_to_be_wrong(patch: pytest.MonkeyPatch) -> None:
    original = Controller._maybe_start

    def start(
        self: Controller, node: Node, number: int, version: str | None, elapsed_s: float, frees: int = 0
    ) -> list[Command]:
        node.candidates[number].dropped = False
        return original(self, node, number, version, elapsed_s, frees)

    patch.setattr(Controller, "_maybe_start", start)


@fault(checks.walks)
def hear_of_another_command(patch: pytest.MonkeyPatch) -> None:
    original = Controller.partly_observed
    patch.setattr(Controller, "partly_observed", lambda self, number, text: original(self, number + 1, text))


@fault(checks.beginnings)
def tell_what_may_still_go(patch: pytest.MonkeyPatch) -> None:
    def add(self: Beginning, lines: bytes) -> bool:
        self.text = canonical(lines)
        return True

    patch.setattr(Beginning, "add", add)


# What is counted ---------------------------------------------------------------------------------------------------


@fault(checks.walks)
def count_a_late_prediction_as_a_match(patch: pytest.MonkeyPatch) -> None:
    original = settling.outcome

    def outcome(head: Node, right: Candidate | None, real_prompt: Tokens | None) -> Outcome:
        found = original(head, right, real_prompt)
        return Outcome.MATCH if found is Outcome.CANCEL else found

    patch.setattr(settling, "outcome", outcome)


@fault(checks.walks)
def count_silence_as_a_failure(patch: pytest.MonkeyPatch) -> None:
    original = Controller.prediction_ended
    patch.setattr(Controller, "prediction_ended", lambda self, node, *, failed=False: original(self, node, failed=True))


@fault(checks.episodes, "accounting")
def lose_failed_predictions(patch: pytest.MonkeyPatch) -> None:
    original = settling.settle

    def settle(head: Node, real_prompt: Tokens | None) -> list[Command]:
        commands = original(head, real_prompt)
        return [c for c in commands if not (isinstance(c, Settle) and c.outcome is Outcome.FAILED)]

    patch.setattr("obsspec.speculation.controller.settle", settle)


@fault(checks.episodes, "accounting")
def one_level_too_deep(patch: pytest.MonkeyPatch) -> None:
    original = Controller.__init__

    def init(self: Controller, *args: Any, depth: int, breadth: int) -> None:
        original(self, *args, depth=depth + 1, breadth=breadth)

    patch.setattr(Controller, "__init__", init)


@fault(checks.walks)
def one_candidate_too_many(patch: pytest.MonkeyPatch) -> None:
    original = Controller.__init__

    def init(self: Controller, *args: Any, depth: int, breadth: int) -> None:
        original(self, *args, depth=depth, breadth=breadth + 1)

    patch.setattr(Controller, "__init__", init)


@fault(checks.walks)
def count_equal_candidates_twice(patch: pytest.MonkeyPatch) -> None:
    def branch(
        self: Controller, node: Node, prediction: Prediction, version: str | None, elapsed_s: float
    ) -> list[Command]:
        if node.turn is None or len(prediction.observations) != len(node.turn.calls):
            return []
        follow = self._follow(node, prediction.observations)
        if follow is None or follow.key is None:
            return []
        origin = Origin(prediction.source, prediction.confidence)
        node.candidates.append(Candidate(follow.prompt, origin, prediction.observations, follow.key))
        return self._maybe_start(node, len(node.candidates) - 1, version, elapsed_s)

    patch.setattr(Controller, "_branch", branch)


@fault(checks.walks)
def start_what_the_gate_refused(patch: pytest.MonkeyPatch) -> None:
    original = Controller._maybe_start

    def start(self: Controller, node: Node, number: int, version: str | None, elapsed_s: float) -> list[Command]:
        commands = original(self, node, number, version, elapsed_s)
        candidate = node.candidates[number]
        if not candidate.refused or candidate.key is None:
            return commands
        child = self._tree.add(candidate.key, node.level + 1, node, candidate.origin, candidate.observations)
        node.branches_started += 1
        return [*commands, Generate(child.id, child.key, speculative=True)]

    patch.setattr(Controller, "_maybe_start", start)


@fault(checks.walks)
def forget_what_the_gate_refused(patch: pytest.MonkeyPatch) -> None:
    """Then nothing would be learnt while the gate is closed, and it would stay closed."""
    original = Controller._branch

    def branch(self: Controller, node: Node, *args: Any) -> list[Command]:
        commands = original(self, node, *args)
        node.candidates[:] = [candidate for candidate in node.candidates if not candidate.refused]
        return commands

    patch.setattr(Controller, "_branch", branch)


@fault(checks.episodes, "open: ")
def tell_the_gate_nothing_of_discarded_generations(patch: pytest.MonkeyPatch) -> None:
    original = Works._ended

    def ended(self: Works, work: Any, tokens: int, *, finished: bool) -> None:
        if finished:
            original(self, work, tokens, finished=finished)
        else:
            work.generating = None

    patch.setattr(Works, "_ended", ended)


@fault(checks.episodes, "accounting")
def lose_the_decisions(patch: pytest.MonkeyPatch) -> None:
    original = Session._run

    def run(self: Session, commands: list[Command]) -> None:
        original(self, [command for command in commands if not isinstance(command, Decided)])

    patch.setattr(Session, "_run", run)


@fault(checks.episodes, "learning")
def learn_from_a_prediction_before_commit(patch: pytest.MonkeyPatch) -> None:
    run = Session._run

    def eager(self: Session, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Generate) and command.speculative:
                node = self._controller._tree._nodes[command.node]
                context = self._controller.context(node.parent.id) if node.parent else None
                assert context is not None
                self._world_model.learn(replace(context, task_id=self._task_id), node.observations)
        run(self, commands)

    patch.setattr(Session, "_run", eager)


@fault(checks.episodes, "tokens")
def forget_tokens_of_cancelled_generations(patch: pytest.MonkeyPatch) -> None:
    original = Works.discard

    def discard(self: Works, node: int, reason: str) -> None:
        work = self._by_node[node]
        if work.generating is not None:
            work.tokens = 0
        original(self, node, reason)

    patch.setattr(Works, "discard", discard)


# What stops --------------------------------------------------------------------------------------------------------


@fault(checks.discarded_work_ends_at_the_engine)
def let_discarded_generations_run(patch: pytest.MonkeyPatch) -> None:
    original = Works.discard

    def discard(self: Works, node: int, reason: str) -> None:
        self._by_node[node].generating = None
        original(self, node, reason)

    patch.setattr(Works, "discard", discard)


@fault(checks.a_late_prediction_ends_at_once)
def let_late_predictions_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Works, "cancel_prediction", lambda self, node: None)


@fault(checks.episodes, "crash")
def keep_an_abandoned_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Controller, "abandoned", lambda self: [])


# What is recorded --------------------------------------------------------------------------------------------------


@fault(checks.episodes, "trajectory")
def mask_the_frames_as_sampled(patch: pytest.MonkeyPatch) -> None:
    def append(self: Trajectory, ids: Tokens) -> None:
        self.ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += [0.0] * len(ids)

    patch.setattr(Trajectory, "append_prompt", append)


@fault(checks.sampled_ids_are_never_encoded_again)
def encode_sampled_ids_again(patch: pytest.MonkeyPatch) -> None:
    original = TerminalRenderer.extend

    def extend(self: TerminalRenderer, prompt: Tokens, completion: Tokens, observations: Sequence[Observation]) -> Any:
        vocabulary = toy_vocabulary()
        code, end = self.call("")
        body = vocabulary.encode(vocabulary.decode(completion[1:-1]))
        return original(self, prompt, (code, *body, end), observations)

    patch.setattr(TerminalRenderer, "extend", extend)


@fault(checks.versions_are_those_that_sampled)
def read_the_version_again_at_commit(patch: pytest.MonkeyPatch) -> None:
    original = Session._hand_over

    def hand_over(self: Session, node: int, completion: Completion) -> None:
        original(self, node, replace(completion, weight_version=self.weight_version))

    patch.setattr(Session, "_hand_over", hand_over)


@fault(checks.episodes, "equality")
def draw_the_seed_from_the_number_of_requests(patch: pytest.MonkeyPatch) -> None:
    """A seed that is not a function of (rollout, turn): speculation then changes the noise."""
    original = RolloutRules._call
    made: list[int] = []

    def numbered(self: RolloutRules, prompt: Tokens, level: int) -> Any:
        made.append(level)
        step = original(self, prompt, level)
        if step.key is None:
            return step
        return replace(step, key=replace(step.key, sampling=replace(step.key.sampling, seed=len(made))))

    patch.setattr(RolloutRules, "_call", numbered)
