"""Every order of events, right, late and repeated, thrown at a controller with any depth and breadth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count, cycle
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import Ask, Decision, Look, Seen, Start, What, Why
from obsspec.testing import toy_vocabulary
from obsspec.values import Completion, FinishReason, GenerationKey, Observation, Tokens
from tests.core.ledger import Ledger

VOCABULARY = toy_vocabulary()
RENDERER = TerminalRenderer(VOCABULARY)
END = RENDERER.stop_token_ids[0]
TURNS: dict[str, tuple[Tokens, FinishReason]] = {
    "call": (RENDERER.call("ls"), FinishReason.STOP),
    "other call": (RENDERER.call("cat f"), FinishReason.STOP),
    "final": (RENDERER.answer("ok"), FinishReason.STOP),
    "malformed": (RENDERER.call(""), FinishReason.STOP),
    "cut": (RENDERER.call("ls")[:-1], FinishReason.LENGTH),
    "empty": ((), FinishReason.STOP),
}


class Action(StrEnum):
    COMPLETE = "complete"
    PREDICT = "predict"
    REQUEST = "request"
    OBSERVE = "observe"
    HEAR = "hear"  # how the observation begins
    END_PREDICTION = "end prediction"
    OTHER_REQUEST = "other request"
    FAIL = "fail"
    ABANDON = "abandon"
    STRAY = "stray"
    CLOSE = "close"


OFTEN = [Action.COMPLETE, Action.PREDICT]
NOW_AND_THEN = [Action.REQUEST, Action.REQUEST, Action.OBSERVE, Action.END_PREDICTION, Action.STRAY]
RARELY = [Action.FAIL, Action.HEAR, Action.OTHER_REQUEST, Action.ABANDON, Action.CLOSE]
ACTIONS = OFTEN * 40 + NOW_AND_THEN * 4 + RARELY
TURN = ["call"] * 30 + list(TURNS)
OBSERVATION = [Observation(text) for text in ("", "a", "", "\n", "", "b", "", "x" * 60)]
TIMES = [1] * 9 + [0, 2]  # observations in one prediction
TENTATIVE = [False, False, True]


@dataclass(frozen=True, slots=True)
class Draw:
    """What a step may need; `pick` chooses among the nodes that the action fits."""

    action: Action
    pick: int
    turn: str
    observation: Observation
    times: int
    tentative: bool


DRAWS = st.builds(
    Draw,
    st.sampled_from(ACTIONS),
    st.integers(0, 40),
    st.sampled_from(TURN),
    st.sampled_from(OBSERVATION),
    st.sampled_from(TIMES),
    st.sampled_from(TENTATIVE),
)


class PlannedGate:
    """Says yes, or no, as drawn beforehand: of turns, and of candidates."""

    def __init__(self, turns: list[bool], candidates: list[bool]) -> None:
        self._turns = cycle(turns)
        self._candidates = cycle(candidates)

    def predicts(self, look: Look) -> Decision:
        return Decision(What.PREDICT, look.level, look.kind, "", next(self._turns), Why.PLANNED)

    def starts(self, start: Start) -> Decision:
        allowed, p = next(self._candidates), start.chain / 2
        return Decision(What.START, start.level, start.kinds[-1], start.source, allowed, Why.PLANNED, p)

    def asks(self, ask: Ask) -> Decision:
        raise AssertionError("a controller asks no source")

    def saw(self, seen: Seen) -> None:
        raise AssertionError("a controller tells a gate nothing")


@dataclass(frozen=True, slots=True)
class Setting:
    depth: int
    breadth: int
    max_turns: int
    max_context: int
    gate: list[bool]
    starts: list[bool]
    guarded: bool


DEPTHS = BREADTHS = [4, 4, 3, 3, 2, 1, 0]
MAX_TURNS = [32, 32, 32, 6, 3, 1]
MAX_CONTEXTS = [4000, 4000, 4000, 4000, 200, 60]
GATES = [[True]] * 6 + [[False], [True, False]]
STARTS = [[True]] * 4 + [[False], [True, False], [False, False, True], [True, True, True, False]]
GUARDED = [True, False]
SETTINGS = (DEPTHS, BREADTHS, MAX_TURNS, MAX_CONTEXTS, GATES, STARTS, GUARDED)


class Driver:
    """The loop asks, tools answer, generations and predictions end, as drawn, and the ledger looks on."""

    def __init__(self, setting: Setting) -> None:
        self.rules = RolloutRules(RENDERER, Limits(setting.max_turns, 30, setting.max_context), "seed")
        gate = PlannedGate(setting.gate, setting.starts)
        controller = Controller(self.rules, gate, depth=setting.depth, breadth=setting.breadth)
        self.ledger = Ledger(
            controller,
            self.rules,
            depth=setting.depth,
            breadth=setting.breadth,
            gate_is_open=setting.gate == [True],
            guarded=setting.guarded,
        )
        self.seen: Observation | None = None  # what the tools of the head's turn answered
        self.coming: Observation | None = None  # what they will answer, once they have begun to
        self.draws = count()

    def step(self, draw: Draw) -> None:
        ledger = self.ledger
        match draw.action:
            case Action.REQUEST | Action.OTHER_REQUEST:
                self._request(draw)
            case Action.OBSERVE:
                self._observe(self.coming or draw.observation)
            case Action.HEAR:
                self._hear(draw)
            case Action.COMPLETE if ledger.generating:
                ledger.complete(_choose(ledger.generating, draw.pick), self._completion(draw.turn))
            case Action.FAIL if ledger.generating:
                ledger.fail(_choose(ledger.generating, draw.pick))
            case Action.PREDICT if ledger.predicting:
                self._predict(_choose(ledger.predicting, draw.pick), draw)
            case Action.END_PREDICTION if ledger.predicting:
                ledger.end_prediction(_choose(ledger.predicting, draw.pick), failed=draw.pick % 3 == 0)
            case Action.ABANDON:
                self._abandon()
            case Action.STRAY:
                self._stray(draw)
            case Action.CLOSE:
                ledger.close()
            case _:
                pass

    # The loop ---------------------------------------------------------------------------------------------------

    def _request(self, draw: Draw) -> None:
        """The next call, under the key that follows, or under another one."""
        if self.ledger.closed or self.ledger.waiting is not None:
            return
        observation: Observation | None = self.seen or self.coming or draw.observation
        key = self._next_key(observation)
        if key is None:
            return
        if draw.action is Action.OTHER_REQUEST:
            seed = replace(key, sampling=replace(key.sampling, seed=key.sampling.seed + 1))
            key = seed if draw.pick % 2 else replace(key, prompt=(*key.prompt, 7))
            observation = None
        self.seen = self.coming = None
        self.ledger.request(key, observation)

    def _next_key(self, observation: Observation) -> GenerationKey | None:
        head = self.ledger.head
        if head is None:
            return self.rules.first("go").key
        entry = self.ledger.entries[head]
        assert entry.completion is not None
        return self.rules.follow(entry.level, entry.key, entry.completion, (observation,)).key

    def _observe(self, observation: Observation) -> None:
        if self.ledger.head is not None and self.ledger.waiting is None and self.seen is None:
            self.seen = observation
        self.ledger.observe(self.seen or observation)

    def _hear(self, draw: Draw) -> None:
        head = self.ledger.head
        if head is None or self.ledger.waiting is not None or self.seen is not None:
            return
        self.coming = self.coming or draw.observation
        self.ledger.hear(self.coming.text[: draw.pick], self.coming)

    def _abandon(self) -> None:
        head = self.ledger.head
        if head is not None and self.ledger.entries[head].outcome is None:
            self.seen = self.coming = None
        self.ledger.abandon()

    # What runs --------------------------------------------------------------------------------------------------

    def _predict(self, node: int, draw: Draw) -> None:
        observations = (draw.observation,) * draw.times
        self.ledger.predict(node, observations, tentative=draw.tentative)

    def _stray(self, draw: Draw) -> None:
        """An event for a node that does not expect it: unknown, gone, or already told."""
        node, ledger = draw.pick, self.ledger
        if node not in ledger.generating:
            ledger.complete(node, self._completion(draw.turn))
            ledger.fail(node)
        if node not in ledger.predicting:
            ledger.predict(node, (draw.observation,))
            ledger.end_prediction(node)

    def _completion(self, turn: str) -> Completion:
        ids, reason = TURNS[turn]
        return Completion(ids, tuple(-float(next(self.draws)) for _ in ids), reason)


class ControllerMachine(RuleBasedStateMachine):
    @initialize(setting=st.builds(Setting, *(st.sampled_from(v) for v in SETTINGS)))
    def open(self, setting: Setting) -> None:
        self.driver = Driver(setting)

    @rule(draws=st.lists(DRAWS, min_size=1, max_size=12))
    def steps(self, draws: list[Draw]) -> None:
        for draw in draws:
            self.driver.step(draw)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.ledger.close()


def walk(seed: int, steps: int = 150) -> Ledger:
    """The same at random and in volume: what chains of many right guesses need. Returns the closed ledger."""
    random = Random(seed)
    driver = Driver(Setting(*(random.choice(v) for v in SETTINGS)))
    for _ in range(steps):
        action, turn, observation = random.choice(ACTIONS), random.choice(TURN), random.choice(OBSERVATION)
        times, tentative = random.choice(TIMES), random.choice(TENTATIVE)
        driver.step(Draw(action, random.randrange(40), turn, observation, times, tentative))
    driver.ledger.close()
    return driver.ledger


def _choose(nodes: set[int], pick: int) -> int:
    return sorted(nodes)[pick % len(nodes)]
