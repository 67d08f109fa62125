"""The world model: runs a turn's Python in a fork of the rollout's state and says what the tool will show."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from obsspec.protocols import Emit
from obsspec.values import Context, EngineError, Observation, Prediction, SandboxError, ToolCall
from obsspec.world.python.beliefs import Duels, Reliability, Votes
from obsspec.world.python.calls import code_history, is_named, python_code, shown_number, volatile_names
from obsspec.world.python.fork_server import ForkServer, open_fork_server
from obsspec.world.python.histories import Cell, Histories
from obsspec.world.python.interpreters import LIMITS, Interpreter, find_interpreter
from obsspec.world.python.outcomes import Engine, Kind, Outcome
from obsspec.world.python.styles import Style, write_down
from obsspec.world.python.surface import Surface

SOURCE = "python"
UNNAMED_TRIES = 8  # for a tool whose name does not say Python: this often it may be wrong before it is left alone


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run code: in which interpreter, by which engine, and whether a call sees what those before it did."""

    interpreter: int
    engine: Engine
    stateful: bool


@dataclass(frozen=True, slots=True)
class _Guess:
    mode: Mode
    style: Style
    kind: Kind
    core: str
    text: str | None  # None: nothing to say yet, but something to learn from
    path: tuple[object, ...]  # its class, from the general to the special


@dataclass(slots=True)
class _Tool:
    """What is known of one tool, shared by all rollouts."""

    surface: Surface = field(default_factory=Surface)
    reliability: Reliability = field(default_factory=Reliability)
    modes: Duels[Mode] = field(default_factory=lambda: Duels[Mode]())
    offsets: Votes[int] = field(default_factory=lambda: Votes[int]())
    tries: int = 0
    hits: int = 0


@dataclass(slots=True)
class Knowledge:
    """What replicas have learnt, by tool. Shared by rollouts; nothing in it is a recorded output."""

    tools: dict[str, _Tool] = field(default_factory=lambda: {})

    def of(self, tool: str) -> _Tool:
        return self.tools.setdefault(tool, _Tool())


Guesses = dict[tuple[str, ...], list[_Guess]]


class PythonReplica:
    """The replica of one rollout. Use `PythonReplicas.open`."""

    def __init__(
        self, servers: Sequence[ForkServer], knowledge: Knowledge, *, limit_s: float, least_confidence: float
    ) -> None:
        self._servers = servers
        self._knowledge = knowledge
        self._least = least_confidence
        self._histories = [Histories(server, limit_s) for server in servers]
        self._guesses: dict[str, Guesses] = {}
        self._diverged: dict[str, set[tuple[str, ...]]] = {}

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Emits nothing for turns with calls that are not Python, and nothing that is less sure than the least.

        Raises `EngineError` when a fork server is gone. Cancelled: what runs for this prediction is killed.
        """
        candidates: list[tuple[float, tuple[str, ...]]] = [(1.0, ())]
        ran: dict[str, list[str]] = {}
        for call in context.calls:
            guesses = await self._guess(context, call, ran)
            ranked = self._ranked(call.name, guesses)[:breadth]
            candidates = [(p * q, (*texts, text)) for p, texts in candidates for q, text in ranked]
        for confidence, texts in sorted(candidates, key=lambda item: -item[0])[:breadth]:
            if texts and confidence >= self._least:
                emit(Prediction(tuple(Observation(text) for text in texts), SOURCE, confidence))

    def _ranked(self, tool: str, guesses: Sequence[_Guess]) -> list[tuple[float, str]]:
        """Different texts, the most likely first."""
        best: dict[str, float] = {}
        for guess in guesses:
            reliability = self._knowledge.of(tool).reliability
            far_fetched = guess.style is Style.ASSIGNED and guess.kind is Kind.SILENT
            if guess.text is None or (far_fetched and not reliability.known(guess.path[:2])):
                continue
            mean = reliability.mean(guess.path)
            best[guess.text] = max(mean, best.get(guess.text, 0.0))
        return sorted(((mean, text) for text, mean in best.items()), key=lambda item: -item[0])

    async def _guess(self, context: Context, call: ToolCall, ran: dict[str, list[str]]) -> list[_Guess]:
        """Every guess for one call; `ran` are the codes of the calls before it in this turn, which it extends."""
        code = python_code(call)
        tool = self._knowledge.of(call.name)
        if code is None or (not is_named(call) and tool.hits * 3 < tool.tries and tool.tries >= UNNAMED_TRIES):
            return []
        earlier = code_history(context.history, call.name)
        here = ran.setdefault(call.name, [])
        codes = (*(before for before, _ in earlier), *here, code)
        here.append(code)
        known = self._guesses.setdefault(call.name, {})
        if codes not in known:
            known[codes] = await self._run_all(call.name, codes, [shown.text for _, shown in earlier])
        return known[codes]

    async def _run_all(self, name: str, codes: tuple[str, ...], shown: Sequence[str]) -> list[_Guess]:
        tool = self._knowledge.of(name)
        cells = _numbered(codes, shown, tool.offsets.best() or 0)
        guesses: list[_Guess] = []
        for mode in tool.modes.alive(self._modes()):
            used = cells if mode.stateful else cells[-1:]
            try:
                outcome = await self._histories[mode.interpreter].run(mode.engine, used)
            except SandboxError as error:
                raise EngineError(f"the Python replica: {error}") from error
            guesses += self._describe(name, mode, outcome, codes, cells[-1])
        return guesses

    def _modes(self) -> list[Mode]:
        modes: list[Mode] = []
        for number, server in enumerate(self._servers):
            engines = [Engine.IPYTHON] if server.ipython else []
            for engine in (*engines, Engine.PLAIN):
                modes.append(Mode(number, engine, stateful=True))
        modes += [Mode(number, Engine.PLAIN, stateful=False) for number in range(len(self._servers))]
        return modes

    def _describe(self, name: str, mode: Mode, outcome: Outcome, codes: tuple[str, ...], cell: Cell) -> list[_Guess]:
        if outcome.late or outcome.clipped:
            return []
        surface = self._knowledge.of(name).surface
        paths = [path for path in self._servers[mode.interpreter].paths if path]
        drifted = any(codes[:end] in self._diverged.get(name, ()) for end in range(len(codes)))
        detail = _detail(outcome, cell.code)
        return [
            _Guess(
                mode,
                style,
                outcome.kind,
                core,
                surface.dress(style, core, paths),
                ((mode, style), outcome.kind, drifted, detail),
            )
            for style, core in write_down(outcome, cell.code, cell.number).items()
        ]

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """What the committed turn showed. Teaches nothing about conventions if nothing was predicted for it."""
        ran: dict[str, list[str]] = {}
        for call, observation in zip(context.calls, observations, strict=False):
            code = python_code(call)
            if code is None:
                continue
            earlier = code_history(context.history, call.name)
            here = ran.setdefault(call.name, [])
            codes = (*(before for before, _ in earlier), *here, code)
            here.append(code)
            self._learn(call, codes, observation.text)

    def _learn(self, call: ToolCall, codes: tuple[str, ...], shown: str) -> None:
        tool = self._knowledge.of(call.name)
        number = shown_number(shown)
        if number is not None:
            tool.offsets.add(number - len(codes))
        guesses = self._guesses.get(call.name, {}).get(codes, [])
        if not guesses:
            return
        ranked = self._ranked(call.name, guesses)
        modes: dict[Mode, bool] = {}
        for guess in guesses:
            if guess.text is None:
                continue
            right = guess.text == shown
            modes[guess.mode] = modes.get(guess.mode, False) or right
            tool.reliability.add(guess.path, right=right)
        for guess in guesses:  # surfaces are learnt from what is near the truth
            if guess.core.strip() or guess.kind is Kind.SILENT:
                paths = self._servers[guess.mode.interpreter].paths
                tool.surface.learn(guess.style, guess.core, paths, shown)
        tool.modes.add(modes)
        tool.tries += 1
        tool.hits += any(modes.values())
        if ranked:
            tool.reliability.add_said(right=ranked[0][1] == shown)
        if ranked and ranked[0][1] != shown:
            self._diverged.setdefault(call.name, set()).add(codes)

    async def close(self) -> None:
        for histories in self._histories:
            await histories.close()


def _numbered(codes: Sequence[str], shown: Sequence[str], offset: int) -> tuple[Cell, ...]:
    """Each code with the number of its cell: counted on from the last one that an output showed."""
    for index in range(len(shown) - 1, -1, -1):
        number = shown_number(shown[index])
        if number is not None:
            offset = number - index - 1
            break
    return tuple(Cell(code, max(1, index + 1 + offset)) for index, code in enumerate(codes))


def _detail(outcome: Outcome, code: str) -> str:
    """What makes outcomes of one kind more or less predictable: the error that is seen, or what the code uses."""
    if outcome.kind is Kind.ERROR:
        return f"{outcome.error}: {outcome.message[:60]}"
    return volatile_names(code)


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

    `limit_s`: of each run. Starting takes seconds, as what code is likely to import is imported once here. Leaving the
    context leaves no process. Raises `ConfigError`, `SandboxError`.
    """
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(open_fork_server(interpreter, LIMITS))
            for interpreter in interpreters or (find_interpreter(),)
        ]
        yield PythonReplicas(tuple(servers), limit_s=limit_s, least_confidence=least_confidence)
