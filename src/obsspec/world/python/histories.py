"""The states of one rollout in one interpreter: which code was run after which, and the processes that hold it."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from obsspec.world.python.fork_server import ROOT, ForkServer, LostError
from obsspec.world.python.outcomes import Engine, Outcome

KEPT_STATES = 6
KEPT_ROOMS = 3
LATE = Outcome("", late=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """Code, and the number that IPython would give it."""

    code: str
    number: int


Key = tuple[Engine, tuple[str, ...]]


@dataclass(slots=True)
class _Room:
    """Rooms fork freely until files are written, which forks would share: then only `tip` goes on."""

    name: int
    tip: int | None = None


@dataclass(slots=True)
class _State:
    room: _Room
    name: int


@dataclass(slots=True)
class Histories:
    """Runs cells after the cells before them, each at most once as long as its state is kept, else again.

    Not for two callers at a time without waiting: calls are taken one after the other.
    """

    server: ForkServer
    limit_s: float
    _outcomes: dict[Key, Outcome] = field(default_factory=lambda: {})
    _states: dict[Key, _State] = field(default_factory=lambda: {})  # the most recently used is last
    _rooms: list[_Room] = field(default_factory=lambda: [])
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    async def run(self, engine: Engine, cells: tuple[Cell, ...]) -> Outcome:
        """The outcome of the last of `cells` in the state that the others lead to; the others are run if need be.

        Raises `SandboxError` when the fork server is gone. Cancelled: what runs is killed, what is known stays known.
        """
        async with self._turn:
            key = _key(engine, cells)
            if key not in self._outcomes:
                try:
                    await self._reach(engine, cells)
                except LostError:  # a state has gone meanwhile: begin again, once
                    await self._forget()
                    await self._reach_or_give_up(engine, cells)
            return self._outcomes[key]

    async def _reach_or_give_up(self, engine: Engine, cells: tuple[Cell, ...]) -> None:
        try:
            await self._reach(engine, cells)
        except LostError:
            self._outcomes[_key(engine, cells)] = LATE

    async def _reach(self, engine: Engine, cells: tuple[Cell, ...]) -> None:
        state, done = self._nearest(engine, cells)
        for end in range(done + 1, len(cells) + 1):
            key = _key(engine, cells[:end])
            if self._outcomes.get(key) is LATE:  # it would not end this time either
                self._outcomes[_key(engine, cells)] = LATE
                return
            new = _State(state.room, self.server.new_name())
            cell = cells[end - 1]
            try:
                outcome = await self.server.run(
                    state.room.name, state.name, new.name, engine, cell.code, cell.number, self.limit_s
                )
            except LostError as error:
                if state.name != ROOT and "not there" in str(error):
                    raise
                outcome = self._outcomes[key] = self._outcomes[_key(engine, cells)] = LATE
                return
            self._outcomes[key] = outcome
            if outcome.written:
                state.room.tip = new.name
            self._states[key] = state = new
        await self._tidy()

    def _nearest(self, engine: Engine, cells: tuple[Cell, ...]) -> tuple[_State, int]:
        for done in range(len(cells) - 1, 0, -1):
            key = _key(engine, cells[:done])
            state = self._states.get(key)
            if state is not None and state.room.tip in (None, state.name):
                self._states[key] = self._states.pop(key)
                return state, done
        room = next((room for room in self._rooms if room.tip is None), None)
        if room is None:
            room = _Room(self.server.new_name())
            self._rooms.append(room)
        return _State(room, ROOT), 0

    async def _tidy(self) -> None:
        while len(self._states) > KEPT_STATES:
            old = self._states.pop(next(iter(self._states)))
            if old.room.tip != old.name:
                await self.server.drop(old.room.name, old.name)
        while len(self._rooms) > KEPT_ROOMS:
            await self._leave(self._rooms.pop(0))

    async def _leave(self, room: _Room) -> None:
        self._states = {key: state for key, state in self._states.items() if state.room is not room}
        await self.server.close(room.name)

    async def _forget(self) -> None:
        while self._rooms:
            await self._leave(self._rooms.pop())

    async def close(self) -> None:
        """End every process of the rollout. Not interrupted by cancellation."""
        with anyio.CancelScope(shield=True):  # the deadline is that of the server's answers
            await self._forget()


def _key(engine: Engine, cells: tuple[Cell, ...]) -> Key:
    return engine, tuple(cell.code for cell in cells)
