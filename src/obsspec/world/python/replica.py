"""The world model: runs a turn's Python in a fork of the rollout's state and says what the tool will show."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from obsspec.protocols import Emit
from obsspec.values import Context, EngineError, Observation, Prediction, SandboxError, ToolCall
from obsspec.world.python.calls import code_history, is_named, python_code, shown_number
from obsspec.world.python.fork_server import ForkServer, open_fork_server
from obsspec.world.python.histories import Histories
from obsspec.world.python.interpreters import LIMITS, Interpreter, find_interpreter
from obsspec.world.python.knowledge import Guess, Knowledge, Mode
from obsspec.world.python.outcomes import Engine

SOURCE = "python"
UNNAMED_TRIES = 8  # for a tool whose name does not say Python: this often it may be wrong before it is left alone

Codes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """One Python call: the codes of its tool up to and with it, and what those of earlier turns showed."""

    call: ToolCall
    codes: Codes
    shown: tuple[str, ...]

    @property
    def key(self) -> tuple[str, Codes]:
        return self.call.name, self.codes


class PythonReplica:
    """The replica of one rollout. Use `PythonReplicas.open`."""

    def __init__(
        self, servers: Sequence[ForkServer], knowledge: Knowledge, *, limit_s: float, least_confidence: float
    ) -> None:
        self._servers = servers
        self._knowledge = knowledge
        self._least = least_confidence
        self._histories = [Histories(server, limit_s) for server in servers]
        self._guesses: dict[tuple[str, Codes], list[Guess]] = {}
        self._wrong: set[tuple[str, Codes]] = set()  # committed, and not as guessed

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Emits nothing for turns with calls that are not Python, and nothing that is less sure than the least.

        Raises `EngineError` when a fork server is gone. Cancelled: what runs for this prediction is killed.
        """
        candidates: list[tuple[float, tuple[str, ...]]] = [(1.0, ())]
        for turn in _turns(context):
            if turn is None or self._hopeless(turn.call):
                return
            ranked = self._knowledge.of(turn.call.name).rank(await self._guess(turn))[:breadth]
            shown = [(p, self._knowledge.framed.around(turn.call, context.history, text)) for p, text in ranked]
            candidates = [(p * q, (*texts, text)) for p, texts in candidates for q, text in shown]
        for confidence, texts in sorted(candidates, key=lambda item: -item[0])[:breadth]:
            if texts and confidence >= self._least:
                emit(Prediction(tuple(Observation(text) for text in texts), SOURCE, confidence))

    def _hopeless(self, call: ToolCall) -> bool:
        tool = self._knowledge.of(call.name)
        return not is_named(call) and tool.tries >= UNNAMED_TRIES and tool.hits * 3 < tool.tries

    async def _guess(self, turn: _Turn) -> list[Guess]:
        if turn.key not in self._guesses:
            self._guesses[turn.key] = await self._run(turn)
        return self._guesses[turn.key]

    async def _run(self, turn: _Turn) -> list[Guess]:
        """In every mode that the tool may have."""
        tool = self._knowledge.of(turn.call.name)
        cells = tool.number(turn.codes, turn.shown)
        drifted = any((turn.call.name, turn.codes[:end]) in self._wrong for end in range(len(turn.codes)))
        guesses: list[Guess] = []
        late: set[int] = set()  # how many cells took too long
        for mode in tool.modes.alive(self._modes()):
            used = cells if mode.stateful else cells[-1:]
            if len(used) in late:
                continue
            try:
                outcome = await self._histories[mode.interpreter].run(mode.engine, used)
            except SandboxError as error:
                raise EngineError(f"the Python replica: {error}") from error
            if outcome.late:
                late.add(len(used))
            paths = self._servers[mode.interpreter].paths
            guesses += tool.describe(mode, outcome, cells[-1], paths, drifted=drifted)
        return guesses

    def _modes(self) -> list[Mode]:
        modes: list[Mode] = []
        for number, server in enumerate(self._servers):
            engines = (Engine.IPYTHON, Engine.PLAIN) if server.ipython else (Engine.PLAIN,)
            modes += [Mode(number, engine, stateful=True) for engine in engines]
        return modes + [Mode(number, Engine.PLAIN, stateful=False) for number in range(len(self._servers))]

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """What the committed turn showed. Teaches little if nothing was predicted for it."""
        for turn, observation in zip(_turns(context), observations, strict=False):
            if turn is None:
                continue
            tool = self._knowledge.of(turn.call.name)
            number = shown_number(observation.text)
            if number is not None:
                tool.offsets.add(number - len(turn.codes))
            guesses = self._guesses.get(turn.key)
            shown = self._knowledge.framed.inside(turn.call, context.history, observation.text)
            # without a single guess the run was cut off: its state is not the tool's
            if guesses is not None and not (guesses and tool.learn(guesses, shown)):
                self._wrong.add(turn.key)
            self._knowledge.learn_frame(turn.call, observation.text)

    async def close(self) -> None:
        """End every process of the rollout."""
        for histories in self._histories:
            await histories.close()


def _turns(context: Context) -> list[_Turn | None]:
    """The calls of a turn in order; None for those that are not Python."""
    turns: list[_Turn | None] = []
    ran: dict[str, list[str]] = {}
    for call in context.calls:
        code = python_code(call)
        if code is None:
            turns.append(None)
            continue
        earlier = code_history(context.history, call.name)
        here = ran.setdefault(call.name, [before for before, _ in earlier])
        here.append(code)
        turns.append(_Turn(call, tuple(here), tuple(shown.text for _, shown in earlier)))
    return turns


@dataclass(frozen=True, slots=True)
class PythonReplicas:
    """Opens the replica of a rollout; all share the fork servers and what is learnt."""

    servers: tuple[ForkServer, ...]
    knowledge: Knowledge = field(default_factory=Knowledge)
    limit_s: float = 2.0
    least_confidence: float = 0.5

    @asynccontextmanager
    async def open(self, environment: object = None, seed: str = "") -> AsyncGenerator[PythonReplica]:
        """Leaving the context ends every process of the rollout."""
        replica = PythonReplica(
            self.servers, self.knowledge, limit_s=self.limit_s, least_confidence=self.least_confidence
        )
        try:
            yield replica
        finally:
            await replica.close()


@asynccontextmanager
async def open_python_replicas(
    interpreters: Sequence[Interpreter] = (), *, limit_s: float = 2.0, least_confidence: float = 0.5
) -> AsyncGenerator[PythonReplicas]:
    """Replicas that run code in `interpreters` (the one of this process if none is given), in that order at first.

    `limit_s`: processor time of each run; it may take twice as long in all. Starting takes seconds, as what code is
    likely to import is imported once here. Leaving the context leaves no process. Raises `ConfigError`, `SandboxError`.
    """
    chosen = interpreters or (await anyio.to_thread.run_sync(find_interpreter),)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(open_fork_server(interpreter, LIMITS)) for interpreter in chosen]
        yield PythonReplicas(tuple(servers), limit_s=limit_s, least_confidence=least_confidence)
