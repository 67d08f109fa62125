"""A second book of what a controller did: every command is checked against the rules of speculation as it comes."""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.history import guard_after
from obsspec.protocols import Continuation
from obsspec.speculation.commands import (
    CancelPrediction,
    Command,
    Decided,
    Discard,
    DiscardReason,
    ExecuteGuarded,
    Generate,
    HandOver,
    HandOverFailure,
    Predict,
    Promote,
    Release,
    Settle,
)
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import What
from obsspec.values import Completion, GenerationKey, Observation, Outcome, Prediction, Tokens, Turn


@dataclass(slots=True)
class Entry:
    """What is known of one node."""

    key: GenerationKey
    level: int
    parent: int | None
    completion: Completion | None = None
    turn: Turn | None = None
    observations: tuple[Observation, ...] = ()  # predicted ones that led here
    sent_ahead: bool = False
    candidates: list[Tokens] = field(default_factory=list[Tokens])
    predicted: list[tuple[Observation, ...]] = field(default_factory=list[tuple[Observation, ...]])
    started: set[int] = field(default_factory=set[int])  # candidates by number
    refused: set[int] = field(default_factory=set[int])
    tentative: int | None = None  # the candidate that may be replaced
    replaced: int | None = None  # and the one that was
    branches: int = 0
    predict_asked: bool = False
    predict_ended: bool = False  # by itself, before anything else ended it
    silent: bool = True  # nothing was said of it, and nothing failed
    outcome: Outcome | None = None
    handed: bool = False
    gone: str = ""  # how it left the tree


class Ledger:
    """Feeds events to a controller and holds it to its promises. Plays the loop and the driver at once."""

    def __init__(
        self,
        controller: Controller,
        continuation: Continuation,
        *,
        depth: int,
        breadth: int,
        gate_is_open: bool = True,
        guarded: bool = False,
    ) -> None:
        self.controller = controller
        controller.guarded = guarded
        self.guarded = guarded
        self.gate_is_open = gate_is_open
        self.continuation = continuation
        self.depth, self.breadth = depth, breadth
        self.entries: dict[int, Entry] = {}
        self.generating: set[int] = set()
        self.predicting: set[int] = set()
        self.waiting: GenerationKey | None = None
        self.head: int | None = None
        self.level = 0
        self.real: Tokens | None = None  # the prompt that the head's real observation leads to
        self.closed = False
        self.turns_with_calls = 0
        self.ran_ahead = 0
        self.dropped_early = 0
        self.commands = 0  # of the committed turns before the head
        self.beginning: str | None = None  # of the observation of the head's turn
        self._allowed: tuple[int, int] | None = None  # the node and candidate that the gate has just let start

    # Events -----------------------------------------------------------------------------------------------------

    def request(self, key: GenerationKey, observation: Observation | None = None) -> None:
        """`observation`: of the head's turn, when the key is the one that follows from it."""
        for node in self._tree():
            entry = self.entries[node]
            if entry.sent_ahead and entry.parent == self.head and entry.observations == (observation,):
                assert entry.key == key, "a guarded call that ran is asked for"
                self.ran_ahead += 1
        claimed = next((n for n in self._tree() if self.entries[n].parent == self.head and self._claims(n, key)), None)
        if self.head is not None:
            is_told = self.real is not None or claimed is not None  # what the head's turn answered
            self.commands += self._has_calls(self.head) and is_told
            self.real = self.real or key.prompt
            self.level = self.entries[self.head].level + 1
        self.waiting, self.beginning = key, None
        old, self.head = self.head, claimed
        commands = self.controller.requested(key)
        self._apply(commands, old_head=old)
        if claimed is not None:
            again = [c for c in commands if isinstance(c, Generate) and not c.speculative]
            assert not again, "a branch under this key was there: no new draw"
            done = self.entries[claimed].completion is not None
            promoted = [c.node for c in commands if isinstance(c, Promote)]
            assert promoted == ([] if done else [claimed]), "a running branch is wanted now, and said to be"
            assert (self.waiting is None) == done, "a finished branch is handed over at once, a running one is kept"
        self.real = None

    def complete(self, node: int, completion: Completion) -> None:
        entry = self.entries.get(node)
        if entry is not None and node in self.generating:
            entry.completion = completion
            entry.turn = self.continuation.parse(completion)
        self.generating.discard(node)
        self._apply(self.controller.completed(node, completion))

    def fail(self, node: int) -> None:
        self.generating.discard(node)
        self._apply(self.controller.generation_failed(node))

    def predict(self, node: int, observations: tuple[Observation, ...], *, tentative: bool = False) -> None:
        gone: set[int] = set()
        if node in self.predicting:
            self.entries[node].silent = False
            gone = self._note_candidate(node, observations, tentative)
        said = Prediction(observations, "test", 0.5, tentative=tentative)
        commands = self.controller.predicted(node, said)
        dropped = {c.node for c in commands if isinstance(c, Discard) and c.reason is DiscardReason.REPLACED}
        assert dropped == gone, "what stands on a replaced candidate is dropped, however far it is, and nothing else"
        assert not any(self.entries[each].sent_ahead for each in gone), "it had no consequences"
        self._apply(commands)

    def end_prediction(self, node: int, *, failed: bool = False) -> None:
        if node in self.predicting:
            self.predicting.discard(node)
            self.entries[node].predict_ended = True
            self.entries[node].silent &= not failed
        self._apply(self.controller.prediction_ended(node, failed=failed))

    def observe(self, observation: Observation) -> None:
        if self.head is not None and self.waiting is None and self.real is None:
            entry = self.entries[self.head]
            if entry.turn is not None and entry.turn.calls:
                self.real = self._next(entry, (observation,))
        self._apply(self.controller.observed([observation]))

    def hear(self, beginning: str, truth: Observation) -> None:
        """The tool of the head's turn will answer `truth`, and has said so much of it."""
        before = self._tree()
        commands = self.controller.partly_observed(self.commands + 1, beginning)
        if self.head is not None and self.waiting is None and self._has_calls(self.head):
            self.beginning = beginning
            for node in before:
                entry = self.entries[node]
                if entry.parent == self.head and not _may_be(entry.observations[0].text, beginning):
                    assert Discard(node, DiscardReason.MISMATCH) in commands, "what is wrong for sure is dropped"
        for command in commands:
            assert isinstance(command, Discard)
            entry = self.entries[command.node]
            assert entry.parent != self.head or entry.observations != (truth,), "what is right is never dropped"
            self.dropped_early += 1
        self._apply(commands)

    def abandon(self) -> None:
        """The loop drops its call, or the answer that it has not used yet."""
        if self.head is not None and self.entries[self.head].outcome is None:
            self.level = self.entries[self.head].level
            if self.entries[self.head].handed and self._has_calls(self.head):
                self.turns_with_calls -= 1
            head, self.head, self.waiting, self.beginning = self.head, None, None, None
            self._apply(self.controller.abandoned())
            assert self.entries[head].gone == "discard"
        else:
            assert self.controller.abandoned() == []

    def close(self) -> None:
        self.closed = True
        head, self.head, self.waiting = self.head, None, None
        self._apply(self.controller.closed(), old_head=head)
        assert not self._tree(), "nothing is left"
        assert not self.predicting
        assert not self.generating
        settled = [entry.outcome for entry in self.entries.values() if entry.outcome is not None]
        assert len(settled) == self.turns_with_calls, "one outcome for every committed turn with a tool call"

    # Checks -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Holds after every event."""
        assert self.controller.nodes == len(self._tree())
        assert self.generating <= set(self._tree()), "what left the tree does not run"
        assert self.predicting <= set(self._tree())
        for node in self._tree():
            assert self._unverified(node) <= self.depth
            entry = self.entries[node]
            assert entry.branches <= self.breadth + (entry.replaced is not None)
            assert sum(self.entries[n].parent == node for n in self._tree()) <= self.breadth
            assert not self._is_missed(node), "what may be predicted is predicted at once"
            assert entry.sent_ahead or not self._may_be_sent(node), "what may be sent ahead is sent at once"

    def _apply(self, commands: list[Command], old_head: int | None = None) -> None:
        for command in commands:
            match command:
                case Generate():
                    self._generate(command)
                case Promote():
                    assert command.node == self.head
                    assert command.node in self.generating
                case Predict():
                    self._predict(command.node)
                case CancelPrediction():
                    assert command.node in self.predicting, "only what runs is cancelled"
                    self.predicting.discard(command.node)
                case ExecuteGuarded():
                    assert self._may_be_sent(command.node), "sent in order, and only what is certain to be asked for"
                    assert not self.entries[command.node].sent_ahead, "a call is sent ahead once"
                    context = self.controller.context(command.node)
                    assert context is not None
                    assert context.calls == (command.call,)
                    assert guard_after(context.history) == command.guard
                    self.entries[command.node].sent_ahead = True
                case HandOver():
                    self._hand_over(command)
                case HandOverFailure():
                    assert self.entries[command.node].key == self.waiting
                    self.waiting = None
                    self.level = self.entries[command.node].level
                    self.head = None
                case Discard():
                    assert not self.entries[command.node].handed or self.head is None, "a committed turn is not dropped"
                    self._leave(command.node, "discard")
                case Release():
                    assert self.entries[command.node].handed
                    assert command.node not in self.predicting, "its prediction is over"
                    self._leave(command.node, "release")
                case Settle():
                    self._settle(command, old_head)
                case Decided():
                    self._decided(command)
        assert self._allowed is None, "what may start is started at once"
        self.check()

    def _decided(self, command: Decided) -> None:
        entry, decision = self.entries[command.node], command.decision
        assert decision.level == entry.level
        if command.candidate is None:
            assert decision.what is What.PREDICT
            assert not entry.predict_asked
            return
        assert decision.what is What.START
        assert command.candidate < len(entry.candidates), "it is a candidate, whether it may start or not"
        assert command.candidate not in entry.started, "a candidate is started once"
        if decision.allowed:
            self._allowed = (command.node, command.candidate)
            entry.refused.discard(command.candidate)
        else:
            entry.refused.add(command.candidate)

    def _generate(self, command: Generate) -> None:
        assert command.node not in self.entries, "a node is started once"
        if not command.speculative:
            assert command.key == self.waiting, "a committed generation is the one the loop asked for"
            self.entries[command.node] = Entry(command.key, self.level, None)
            self.head = command.node
        else:
            assert self._allowed is not None, "nothing starts that the gate did not allow"
            above, number = self._allowed
            self._allowed = None
            parent = self.entries[above]
            if above == self.head and self.beginning is not None:
                assert _may_be(parent.predicted[number][0].text, self.beginning), "nor what is wrong for sure"
            siblings = [e for e in self.entries.values() if e.parent == above]
            assert command.key not in [e.key for e in siblings], "equal candidates count once"
            assert command.key.prompt == parent.candidates[number]
            parent.started.add(number)
            parent.branches += 1
            entry = self.entries[command.node] = Entry(command.key, parent.level + 1, above)
            entry.observations = parent.predicted[number]
        self.generating.add(command.node)

    def _predict(self, node: int) -> None:
        entry = self.entries[node]
        assert node in self._tree()
        assert not entry.predict_asked, "one attempt per turn"
        assert entry.turn is not None
        assert entry.turn.calls, "there is something to predict"
        assert self._unverified(node) < self.depth
        assert self.breadth > 0
        entry.predict_asked = True
        self.predicting.add(node)

    def _hand_over(self, command: HandOver) -> None:
        entry = self.entries[command.node]
        assert command.node in self._tree(), "nothing that was discarded is used"
        assert not entry.handed, "at most once"
        assert entry.key == self.waiting, "only for a call with an equal key"
        assert command.completion is entry.completion, "the first and only draw"
        entry.handed, entry.parent = True, None
        self.waiting, self.head = None, command.node
        self.turns_with_calls += self._has_calls(command.node)

    def _settle(self, command: Settle, old_head: int | None) -> None:
        entry = self.entries[command.node]
        assert entry.handed
        assert entry.outcome is None, "one outcome per turn"
        assert command.node in (self.head, old_head)
        entry.outcome = command.outcome
        assert command.outcome is self._expected(command.node), f"{command.outcome} for {entry}"
        assert command.branches == entry.branches == len(entry.started)
        assert [said.started for said in command.said] == [n in entry.started for n in range(len(command.said))]
        matched = [None if self.real is None else prompt == self.real for prompt in entry.candidates]
        assert [said.matched for said in command.said] == matched, "refused candidates are compared like the others"

    def _expected(self, node: int) -> Outcome:
        entry = self.entries[node]
        if not entry.predict_asked:
            return Outcome.GATED
        if not entry.candidates:
            ended = Outcome.GATED if entry.silent else Outcome.FAILED
            return ended if entry.predict_ended else Outcome.CANCEL
        if len(entry.refused) == len(entry.candidates):
            return Outcome.GATED
        if self.real is None:
            return Outcome.CANCEL
        right = entry.candidates.index(self.real) if self.real in entry.candidates else None
        lost = right is None or right in entry.refused or right == entry.replaced
        return Outcome.ROLLBACK if lost else Outcome.MATCH

    def _note_candidate(self, node: int, observations: tuple[Observation, ...], tentative: bool) -> set[int]:
        """What this candidate should count as. Returns the nodes that have to make room for it."""
        entry = self.entries[node]
        if entry.turn is None or len(observations) != len(entry.turn.calls):
            return set()
        full = len(entry.candidates) - (entry.replaced is not None) >= self.breadth
        prompt = self._next(entry, observations)
        if prompt in entry.candidates or (full and entry.tentative is None):
            return set()
        gone: set[int] = set()
        if full:
            entry.replaced, entry.tentative = entry.tentative, None
            assert entry.replaced is not None
            top = [n for n in self._tree() if self.entries[n].parent == node]
            gone = self._below({n for n in top if self.entries[n].key.prompt == entry.candidates[entry.replaced]})
        if tentative and entry.replaced is None and entry.tentative is None:
            entry.tentative = len(entry.candidates)
        entry.candidates.append(prompt)
        entry.predicted.append(observations)
        return gone

    def _below(self, nodes: set[int]) -> set[int]:
        """With all that stands on them."""
        more = {n for n in self._tree() if self.entries[n].parent in nodes} - nodes
        return self._below(nodes | more) if more else nodes

    def _next(self, entry: Entry, observations: tuple[Observation, ...]) -> Tokens:
        assert entry.completion is not None
        return self.continuation.follow(entry.level, entry.key, entry.completion, observations).prompt

    def _is_missed(self, node: int) -> bool:
        """Whether nothing forbids a prediction here and none was asked for."""
        entry = self.entries[node]
        if entry.predict_asked or entry.outcome is not None or entry.turn is None or self.head is None:
            return False
        allowed = self.gate_is_open and self.continuation.speculable(entry.level, entry.turn)
        return allowed and self.breadth > 0 and self._unverified(node) < self.depth

    def _may_be_sent(self, node: int) -> bool:
        """One call and nothing else, complete, unverified, with all calls above it at the sandbox."""
        entry = self.entries[node]
        if not self.guarded or node not in self._tree() or entry.parent is None or entry.turn is None:
            return False
        above = self.entries[entry.parent]
        held = above.candidates[above.tentative] if above.tentative is not None else None
        if entry.parent in self.predicting and entry.key.prompt == held:
            return False
        one_call = len(entry.turn.calls) == 1 and entry.turn.error is None and entry.turn.stop is None
        return one_call and (entry.parent == self.head or self.entries[entry.parent].sent_ahead)

    def _has_calls(self, node: int) -> bool:
        turn = self.entries[node].turn
        return turn is not None and bool(turn.calls)

    def _claims(self, node: int, key: GenerationKey) -> bool:
        return self.head is not None and self.entries[node].key == key

    def _tree(self) -> list[int]:
        return [node for node, entry in self.entries.items() if not entry.gone]

    def _unverified(self, node: int) -> int:
        parents = 0
        parent = self.entries[node].parent
        while node != self.head and parent is not None:
            parents += 1
            node, parent = parent, self.entries[parent].parent
        return parents

    def _leave(self, node: int, how: str) -> None:
        entry = self.entries[node]
        assert not entry.gone, "a node leaves once"
        entry.gone = how
        self.generating.discard(node)
        self.predicting.discard(node)


def _may_be(predicted: str, beginning: str) -> bool:
    """Both are ASCII."""
    return predicted.strip().startswith(beginning.strip())
