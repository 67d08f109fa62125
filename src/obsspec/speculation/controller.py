"""Every rule of speculation, in one pure state machine: events in, commands out.

It never awaits, reads no clock and does no I/O. One controller serves one rollout, whose loop makes one call at a time.

The tree hangs on the *head*: the node of the loop's latest call. Below it stand predicted continuations; a node's
level minus the head's level is the number of unverified observations above it. Late and repeated events, and events
for nodes that left the tree, change nothing: the machine is total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from obsspec.protocols import Continuation, Followup
from obsspec.speculation.classes import command_class
from obsspec.speculation.commands import (
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
)
from obsspec.speculation.completions import extends
from obsspec.speculation.contradiction import contradicts
from obsspec.speculation.decisions import Look, Start
from obsspec.speculation.gate import Gate
from obsspec.speculation.node import Attempt, Candidate, Generation, Node, Origin
from obsspec.speculation.settling import settle
from obsspec.speculation.tree import Tree
from obsspec.values import (
    Completion,
    Context,
    Exchange,
    GenerationKey,
    Observation,
    Prediction,
    Turn,
)


class Controller:
    """The speculation tree of one rollout.

    `depth` (D): how many predicted observations may stand unverified in a chain; `breadth` (K): how many distinct
    candidates may be drafted for one observation. Either 0 means: exactly the sequential pipeline.

    `guarded`: calls of unverified turns may be sent ahead. Only for a loop that does what the continuation says.
    """

    def __init__(self, continuation: Continuation, gate: Gate, *, depth: int, breadth: int) -> None:
        self._continuation = continuation
        self._gate = gate
        self._depth = depth
        self._breadth = breadth
        self._tree = Tree()
        self._waiting = False
        self._next_level = 0  # the level of the next head when there is none
        self._begun = (0, "")  # the command that was last heard of, and how its observation begins
        self._closed = False
        self.guarded = False
        self.deepest = 0  # the longest chain of unverified observations that started a generation

    @property
    def nodes(self) -> int:
        return len(self._tree)

    @property
    def head(self) -> Node | None:
        return self._tree.head

    def level(self, node_id: int) -> int:
        """The turn number of a node in the tree."""
        node = self._tree.get(node_id)
        assert node is not None
        return node.level

    def candidates(self, node_id: int) -> int:
        """How many distinct observations of a node's turn were predicted in time; 0 for a node not in the tree."""
        node = self._tree.get(node_id)
        return len(node.candidates) if node is not None else 0

    # Events -----------------------------------------------------------------------------------------------------

    def requested(self, key: GenerationKey) -> list[Command]:
        """The loop makes its next call. A branch with exactly this key becomes the head; all others are dropped."""
        if self._closed:
            raise RuntimeError("the session is closed")
        head = self._tree.head
        if self._waiting:
            raise RuntimeError("one call at a time: the previous call is not answered yet")
        if head is None:
            return self._start_head(key, self._next_level)
        commands = settle(head, key.prompt)
        child = next((each for each in head.children if each.key == key), None)
        for other in list(head.children):
            if other is not child:
                same = other.key.prompt == key.prompt
                commands += self._discard(other, DiscardReason.SUPERSEDED if same else DiscardReason.MISMATCH)
        commands += self._release(head)
        self._tree.commit(head, child)
        if child is None:
            return commands + self._start_head(key, head.level + 1)
        return commands + self._promote(child)

    def observed(self, observations: Sequence[Observation]) -> list[Command]:
        """All tools of the head's turn are done: branches on another observation are dropped at once."""
        head = self._tree.head
        if head is None or self._waiting or not head.has_calls or head.settled or head.completion is None:
            return []
        follow = self._follow(head, observations) if head.candidates else None
        real = follow.prompt if follow else ()
        commands = settle(head, real)
        assert head.turn is not None
        self._tree.history.append(Exchange(head.turn.calls, tuple(observations)))
        for child in list(head.children):
            if child.key.prompt != real:
                commands += self._discard(child, DiscardReason.MISMATCH)
        return commands + self._send_ahead_below(head)

    def partly_observed(self, number: int, beginning: str) -> list[Command]:
        """The observation of the sandbox's command `number` is certain to begin like this, however it ends: branches
        on another one are dropped at once. Nothing is ever kept for it: that takes the whole observation.
        """
        self._begun = (number, beginning)
        return self._contradict()

    def completed(self, node_id: int, completion: Completion) -> list[Command]:
        node = self._tree.get(node_id)
        if node is None or node.generation is not Generation.RUNNING:
            return []
        node.generation = Generation.DONE
        node.completion = completion
        node.turn = self._parse(completion)
        return [*self._hand_over(node), *self._maybe_send_ahead(node), *self._maybe_predict(node)]

    def generation_failed(self, node_id: int) -> list[Command]:
        """A speculative node leaves the tree. If the loop asks for its key, or waits for it, the call is made afresh:
        what went wrong with a guess never reaches the loop."""
        node = self._tree.get(node_id)
        if node is None or node.generation is not Generation.RUNNING:
            return []
        node.generation = Generation.FAILED
        if node is not self._tree.head:
            return self._discard(node, DiscardReason.FAILED)
        if node.origin is not None:
            return [*self._drop_head(DiscardReason.FAILED), *self._start_head(node.key, node.level)]
        return [HandOverFailure(node.id), *self._drop_head(DiscardReason.FAILED)]

    def abandoned(self) -> list[Command]:
        """The loop gave its call up before it had the result: if it calls again, that is the same turn again."""
        if self._tree.head is None or self._tree.head.settled:
            return []
        return self._drop_head(DiscardReason.ABANDONED)

    def predicted(
        self, node_id: int, prediction: Prediction, weight_version: str | None = None, elapsed_s: float = 0.0
    ) -> list[Command]:
        """A candidate arrived. At most K distinct ones may start a branch; one that overflows the context starts none.

        If there are K and one of them is tentative, this one replaces it; that happens once a turn. Whether it does
        depends on predictions alone, and never on what a branch has sampled: or else some samples would be kept and
        others drawn again.

        `weight_version`: the policy's version now, when only a call on the same version may claim the branch.
        `elapsed_s`: since the head's turn was handed over.
        """
        node = self._tree.get(node_id)
        if node is None or node.attempt is not Attempt.PENDING or not node.has_room(self._breadth):
            return []
        node.spoken = True
        return self._branch(node, prediction, weight_version, elapsed_s)

    def prediction_ended(self, node_id: int, *, failed: bool = False) -> list[Command]:
        """No more candidates will come. A world model that had nothing to say has not `failed`."""
        node = self._tree.get(node_id)
        if node is not None and node.attempt is Attempt.PENDING:
            silent = Attempt.FAILED if failed or node.spoken else Attempt.SILENT
            node.attempt = Attempt.PREDICTED if node.candidates else silent
            return self._send_ahead_below(node)
        return []

    def closed(self) -> list[Command]:
        """The rollout is over, however it ended: every outcome is settled and the tree is empty afterwards."""
        if self._closed:
            return []
        self._closed = True
        head = self._tree.head
        if head is None:
            return []
        if self._waiting:
            return self._drop_head(DiscardReason.CLOSED)
        commands = settle(head, None)
        for child in list(head.children):
            commands += self._discard(child, DiscardReason.CLOSED)
        self._tree.head = None
        return commands + self._release(head)

    def context(self, node_id: int) -> Context | None:
        """The world model's view of a node in the tree: token history and exchanges, predicted ones included."""
        node = self._tree.get(node_id)
        return self._tree.context(node) if node is not None else None

    # Transitions ------------------------------------------------------------------------------------------------

    def _start_head(self, key: GenerationKey, level: int) -> list[Command]:
        head = self._tree.head = self._tree.add(key, level)
        self._waiting, self._begun = True, (0, "")  # whatever was heard was not of this turn
        return [Generate(head.id, key, speculative=False)]

    def _promote(self, node: Node) -> list[Command]:
        """The branch is the committed turn now: whatever it sampled, it is kept and finished."""
        self._tree.head = node
        node.parent = None
        self._waiting = True
        commands: list[Command] = self._hand_over(node) or [Promote(node.id)]
        commands += self._contradict()
        for below in node.subtree():  # one observation is verified: the chain may grow by one, and is more likely
            commands += self._maybe_send_ahead(below)
            commands += self._maybe_predict(below)
            for number, candidate in enumerate(below.candidates):
                if candidate.refused:
                    commands += self._maybe_start(below, number, node.key.weight_version, 0.0)
        return commands

    def _hand_over(self, node: Node) -> list[Command]:
        if node is not self._tree.head or not self._waiting or node.completion is None:
            return []
        self._waiting = False
        return [HandOver(node.id, node.completion)]

    def _maybe_send_ahead(self, node: Node) -> list[Command]:
        """In order: the sandbox has, or is about to get, the calls above."""
        if not self.guarded or not node.may_be_sent_ahead:
            return []
        if node.parent is not self._tree.head and not (node.parent and node.parent.sent_ahead):
            return []
        assert node.turn is not None
        node.sent_ahead = True
        return [ExecuteGuarded(node.id, node.turn.calls[0], self._tree.guard(node))]

    def _send_ahead_below(self, node: Node) -> list[Command]:
        """What stood on a tentative observation need not wait any more."""
        return [command for below in node.subtree()[1:] for command in self._maybe_send_ahead(below)]

    def _contradict(self) -> list[Command]:
        """Drop what stands on an observation of the head's turn that begins otherwise than the real one."""
        head = self._tree.head
        if head is None or self._waiting or head.settled or head.turn is None:
            return []
        number, beginning = self._begun
        call = number - self._tree.before.after - 1
        if not 0 <= call < len(head.turn.calls):
            return []
        commands: list[Command] = []
        for candidate in head.candidates:
            if candidate.dropped or not contradicts(candidate.observations[call].text, beginning):
                continue
            candidate.dropped = True
            for child in [child for child in head.children if child.key.prompt == candidate.prompt]:
                commands += self._discard(child, DiscardReason.MISMATCH)
        return commands

    def _maybe_predict(self, node: Node) -> list[Command]:
        head = self._tree.head
        if head is None or node.turn is None or not node.turn.calls or node.attempt is not Attempt.NONE or node.settled:
            return []
        depth = self._tree.unverified(node)
        if self._breadth == 0 or depth >= self._depth:
            return []
        if not self._continuation.speculable(node.level, node.turn):
            node.attempt = Attempt.GATED
            return []
        node.kind = command_class(node.turn.calls)
        decision = self._gate.predicts(Look(node.level, node.kind, depth))
        node.attempt = Attempt.PENDING if decision.allowed else Attempt.GATED
        decided = Decided(node.id, decision)
        return [decided, Predict(node.id)] if decision.allowed else [decided]

    def _branch(self, node: Node, prediction: Prediction, version: str | None, elapsed_s: float) -> list[Command]:
        assert node.turn is not None
        assert node.completion is not None
        if len(prediction.observations) != len(node.turn.calls):
            return []  # a turn is speculated on only if all its observations are predicted
        follow = self._follow(node, prediction.observations)
        if follow is None or not extends(follow.prompt, node.key.prompt, node.completion.token_ids):
            return []
        if any(known.prompt == follow.prompt for known in node.candidates):
            return []
        gone = self._replaced(node) if node.is_full(self._breadth) else []
        commands: list[Command] = [Discard(each.id, DiscardReason.REPLACED) for each in gone]
        frees = sum(each.generation is Generation.RUNNING for each in gone)
        origin = Origin(prediction.source, prediction.confidence)
        node.candidates.append(Candidate(follow.prompt, origin, prediction.observations, follow.key))
        node.candidates[-1].tentative = prediction.tentative and not any(
            c.replaced or c.tentative for c in node.candidates
        )
        commands += self._contradict()
        return commands + self._maybe_start(node, len(node.candidates) - 1, version, elapsed_s, frees)

    def _replaced(self, node: Node) -> list[Node]:
        """The tentative candidate makes room, and what stands on it leaves the tree."""
        held = next(c for c in node.candidates if c.tentative)
        held.dropped = held.replaced = True
        held.tentative = False
        tops = [child for child in node.children if child.key.prompt == held.prompt]
        return [each for top in tops for each in self._tree.cut(top)]

    def _maybe_start(
        self, node: Node, number: int, version: str | None, elapsed_s: float, frees: int = 0
    ) -> list[Command]:
        """A branch for one of the node's candidates, if the gate lets it start now."""
        candidate = node.candidates[number]
        if candidate.key is None or candidate.dropped:
            return []
        kinds, chain = self._tree.chain(node)
        origin = candidate.origin
        start = Start(node.level, kinds, origin.source, origin.confidence, chain, elapsed_s, frees)
        decision = self._gate.starts(start)
        candidate.refused = not decision.allowed
        candidate.origin = origin = replace(origin, p=decision.p / chain if chain else 0.0)
        decided = Decided(node.id, decision, number)
        if candidate.refused:
            return [decided]
        key = replace(candidate.key, weight_version=version)
        child = self._tree.add(key, node.level + 1, node, origin, candidate.observations)
        node.branches_started += 1
        candidate.started = True
        self.deepest = max(self.deepest, self._tree.unverified(child))
        return [decided, Generate(child.id, child.key, speculative=True)]

    # The loop's rules. An error in them is the loop's to meet, should the turn be committed; here nothing follows. ---

    def _parse(self, completion: Completion) -> Turn | None:
        try:
            return self._continuation.parse(completion)
        except Exception:  # noqa: BLE001 - typed: no turn, so nothing is predicted
            return None

    def _follow(self, node: Node, observations: Sequence[Observation]) -> Followup | None:
        assert node.completion is not None
        try:
            return self._continuation.follow(node.level, node.key, node.completion, observations)
        except Exception:  # noqa: BLE001 - typed: no followup, so no branch
            return None

    # The tree ---------------------------------------------------------------------------------------------------

    def _drop_head(self, reason: DiscardReason) -> list[Command]:
        head = self._tree.head
        assert head is not None
        self._tree.head, self._waiting, self._next_level = None, False, head.level
        return self._discard(head, reason)

    def _release(self, head: Node) -> list[Command]:
        self._tree.release(head)
        return [Release(head.id)]

    def _discard(self, node: Node, reason: DiscardReason) -> list[Command]:
        return [Discard(gone.id, reason) for gone in self._tree.cut(node)]
