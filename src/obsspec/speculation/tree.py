"""The speculation tree of one rollout: its nodes, the committed history it hangs on, and what follows from both."""

from __future__ import annotations

from itertools import count

from obsspec.history import FRESH, advance
from obsspec.speculation.node import Node, Origin
from obsspec.values import Context, Exchange, GenerationKey, Guard, Observation


class Tree:
    """Structure only: what may be added, and when something goes, are the controller's rules.

    It hangs on `head`, the node of the loop's latest call. `history`: exchanges of the committed turns, the head's own
    once it is known. `before`: the commands before those of the head's turn, or of the next head's.
    """

    def __init__(self) -> None:
        self.head: Node | None = None
        self.history: list[Exchange] = []
        self.before = FRESH
        self._ids = count()
        self._nodes: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node_id: int) -> Node | None:
        """None for a node that is not, or no more, in the tree."""
        return self._nodes.get(node_id)

    def add(
        self,
        key: GenerationKey,
        level: int,
        parent: Node | None = None,
        origin: Origin | None = None,
        observations: tuple[Observation, ...] = (),
    ) -> Node:
        node = Node(next(self._ids), level, key, parent, origin, observations)
        self._nodes[node.id] = node
        if parent is not None:
            parent.children.append(node)
        return node

    def cut(self, node: Node) -> list[Node]:
        """Take a subtree out, parents first."""
        if node.parent is not None:
            node.parent.children.remove(node)
        gone = node.subtree()
        for each in gone:
            self._nodes.pop(each.id, None)
        return gone

    def release(self, head: Node) -> None:
        """Its turn is over; a child may become the head."""
        del self._nodes[head.id]
        for child in head.children:
            child.parent = None

    def commit(self, head: Node, child: Node | None) -> None:
        """The head's turn is over, and `child` stands on what it answered, if any does."""
        if len(self.history) == head.level:  # nobody told what the turn's observations were
            calls = head.turn.calls if head.turn else ()
            self.history.append(Exchange(calls, child.observations if child else ()))
        self.before = advance(self.before, self.history[head.level])

    # What follows for a node ------------------------------------------------------------------------------------

    def unverified(self, node: Node) -> int:
        """Predicted observations above it."""
        return node.level - self.head.level if self.head is not None else 0

    def context(self, node: Node) -> Context | None:
        """What a prediction of its turn may know: token history and exchanges, predicted ones included."""
        if node.completion is None or node.turn is None:
            return None
        predicted: list[Exchange] = []
        above = node
        while above.parent is not None:
            assert above.parent.turn is not None
            predicted.append(Exchange(above.parent.turn.calls, above.observations))
            above = above.parent
        committed = self.history[: above.level]
        history = (*committed, *reversed(predicted))
        calls = node.turn.calls
        return Context(node.key.prompt, node.completion.token_ids, calls, history, committed=len(committed))

    def guard(self, node: Node) -> Guard:
        """What the sandbox has executed before the node's turn, if all observations above it are right."""
        if node.parent is None:
            return self.before
        if node.before is None:
            assert node.parent.turn is not None
            node.before = advance(self.guard(node.parent), Exchange(node.parent.turn.calls, node.observations))
        return node.before

    @staticmethod
    def chain(node: Node) -> tuple[tuple[str, ...], float]:
        """Command classes from the head down to the node, and the probability that the node will be committed."""
        kinds, chain = [node.kind], 1.0
        while node.parent is not None:
            assert node.origin is not None
            chain *= node.origin.p
            node = node.parent
            kinds.append(node.kind)
        return tuple(reversed(kinds)), chain
