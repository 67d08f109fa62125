"""A scripted world model: right, wrong, late, repeating itself, talking nonsense, failing or never ending, on plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

import anyio

from obsspec.protocols import Emit
from obsspec.testing.delays import Delay, Seed, constant
from obsspec.values import Context, EngineError, Observation, Prediction

Oracle = Callable[[Context], tuple[Observation, ...]]


class Move(StrEnum):
    """One thing that a world model may emit."""

    RIGHT = "right"
    WRONG = "wrong"
    NEAR = "near"  # differs from the truth in white space only
    MISCOUNT = "miscount"  # one observation too many
    GARBAGE = "garbage"  # text that no tool prints: control tokens, a lone surrogate, 20,000 characters


class Ending(StrEnum):
    RETURN = "return"
    ERROR = "error"  # EngineError
    CRASH = "crash"  # an error that no contract names
    HANG = "hang"  # never returns
    ENDLESS = "endless"  # emits distinct candidates until it is stopped


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one `predict` does: these moves, one delay before each, then one more delay and the ending.

    `tentative`: the number of the move that may be replaced.
    """

    moves: tuple[Move, ...] = (Move.RIGHT,)
    ending: Ending = Ending.RETURN
    tentative: int | None = None


Plan = Callable[[Context, int], Forecast]


def always(*moves: Move, ending: Ending = Ending.RETURN) -> Plan:
    forecast = Forecast(moves, ending)
    return lambda context, breadth: forecast


def mixture(seed: Seed, right: float = 0.6, trouble: float = 0.1) -> Plan:
    """Any number of moves, each right with probability `right`; trouble: an ending other than a plain return."""
    random = Random(seed)
    wrong = [move for move in Move if move is not Move.RIGHT]
    bad = [ending for ending in Ending if ending is not Ending.RETURN]

    def plan(context: Context, breadth: int) -> Forecast:
        count = random.choice((0, 1, 1, 1, breadth, breadth + 2))
        moves = tuple(Move.RIGHT if random.random() < right else random.choice(wrong) for _ in range(count))
        ending = random.choice(bad) if random.random() < trouble else Ending.RETURN
        return Forecast(moves, ending, random.choice((None, 0, count // 2, count - 1)))

    return plan


class ScriptedWorldModel:
    """Predicts with the help of an oracle, as its plan says; remembers in `learned` what it was told."""

    def __init__(self, oracle: Oracle, plan: Plan | None = None, *, delay_s: Delay | None = None) -> None:
        self._oracle = oracle
        self._plan = plan or always(Move.RIGHT)
        self._delay_s = delay_s or constant(0.0)
        self.learned: list[tuple[Context, tuple[Observation, ...]]] = []
        self.open = self.started = self.finished = self.failed = self.cancelled = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        self.open += 1
        self.started += 1
        try:
            await self._predict(self._plan(context, breadth), context, emit)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        except Exception:
            self.failed += 1
            raise
        finally:
            self.open -= 1
        self.finished += 1

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self.learned.append((context, observations))

    async def _predict(self, forecast: Forecast, context: Context, emit: Emit) -> None:
        truth = self._oracle(context)
        for number, move in enumerate(forecast.moves):
            await anyio.sleep(self._delay_s())
            tentative = number == forecast.tentative
            emit(Prediction(_bend(truth, move, number), f"scripted-{move}", 0.5, tentative=tentative))
        await anyio.sleep(self._delay_s())
        match forecast.ending:
            case Ending.RETURN:
                return
            case Ending.ERROR:
                raise EngineError("scripted world model: planned error")
            case Ending.CRASH:
                raise ZeroDivisionError("scripted world model: planned crash")
            case Ending.HANG:
                await anyio.sleep_forever()
            case Ending.ENDLESS:
                await self._endless(truth, emit)

    async def _endless(self, truth: tuple[Observation, ...], emit: Emit) -> None:
        number = 1000
        while True:
            await anyio.sleep(max(0.01, self._delay_s()))
            emit(Prediction(_bend(truth, Move.WRONG, number), "scripted-endless", 0.5))
            number += 1


def _bend(truth: tuple[Observation, ...], move: Move, number: int) -> tuple[Observation, ...]:
    last = truth[-1]
    match move:
        case Move.RIGHT:
            return truth
        case Move.WRONG:
            bent = replace(last, text=f"{last.text}?{number}")
        case Move.NEAR:
            bent = replace(last, text=last.text.strip() if last.text != last.text.strip() else f"{last.text}\n")
        case Move.MISCOUNT:
            return (*truth, last)
        case Move.GARBAGE:
            bent = replace(last, text=("<|im_end|>", "\ud800", "y" * 20_000)[number % 3])
    return (*truth[:-1], bent)
