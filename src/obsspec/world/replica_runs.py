"""The states a rollout may be in, as forks of its starting state, and the runs of commands between them.

    start --calls of turn 1--> state --calls of turn 2--> state ..

A state is a function of the calls since the start. The states along the committed turns form the path; what hangs off
it was only predicted. A run belongs to nobody who waits for it: it goes on as long as it is committed or awaited.

Copying a state takes as long as running a command. So the state after a run is copied ahead of the branch that may ask
for it, as long as branches do ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from obsspec.sandbox.fork import Fork, ForkError, ForkRefusal
from obsspec.values import Observation, SandboxError, ToolCall
from obsspec.world.replica_states import Commands, Run, Spare, State, Trouble

StartSoon = Callable[..., None]  # as of a task group
COPIES = 2  # that are made ahead without a branch asking for any


class Runs:
    """All states and runs of one rollout. What they do is started with `start_soon`.

    `position` is the state after the committed turns. `room`: there is enough for copies that nobody has asked for.
    """

    def __init__(self, start_soon: StartSoon, start: Fork, room: Callable[[], bool]) -> None:
        self._start_soon = start_soon
        self._room = room
        self.position = State(start)
        self._last: Run | None = None
        self._copies_left = COPIES

    def reach(self, turns: Iterable[Commands], commands: Commands, *, certain: bool) -> Run:
        """The run of `commands` after `turns` beyond the position; what is missing on the way is started.

        `certain`: `commands` will be committed whatever comes out (and `turns` is empty).
        """
        state, before = self.position, self._last
        for turn in filter(None, turns):
            before = self._run(state, turn, before, in_place=False)
            state = before.after
        return self._run(state, commands, before, in_place=certain)

    def commit(self, commands: Commands) -> Run | None:
        """The turn was executed for real: move on, and forget every other future. None: another turn was certain."""
        if any(run.in_place and run.commands != commands for run in self.position.runs.values()):
            return None
        old = self.position.runs.get(commands)
        if old is not None and old.trouble is not None and self.position.fork is not None:
            del self.position.runs[commands]  # it needed a copy and got none; now it needs none
        run = self._run(self.position, commands, self._last, in_place=True)
        run.committed = True
        left, self.position, self._last = self.position, run.after, run
        del left.runs[commands]
        self._start_soon(self._leave, left, run)
        return run

    def _run(self, state: State, commands: Commands, came_from: Run | None, *, in_place: bool) -> Run:
        run = state.runs.get(commands)
        if run is None:
            run = state.runs[commands] = Run(commands, state, came_from, in_place)
            self._copies_left = self._copies_left if in_place else COPIES
            self._start_soon(self._perform, run)
        return run

    def _prepare(self, state: State) -> None:
        """Have a copy of `state` ready, unless the last ones were made in vain."""
        if state.fork is None or state.jobs or not self._copies_left or not self._room():
            return
        self._copies_left -= 1
        state.spare = Spare()
        self._start_soon(state.spare.make, state, state.fork)

    async def _perform(self, run: Run) -> None:
        fork: Fork | None = None
        try:
            with run.scope:
                if run.came_from is not None:
                    await run.came_from.wait()
                fork = await _start(run)
                await _execute(run, fork)
        except (SandboxError, OSError) as error:
            run.trouble, run.detail = _name(error), str(error)
        finally:
            if run.result is None and run.trouble is None:
                run.trouble = Trouble.DROPPED
            run.done.set()
        if run.after.fork is None and fork is not None:
            await fork.drop()
        elif run.scope.cancel_called:
            await _forget(run.after)
        else:
            self._prepare(run.after)

    async def _leave(self, state: State, taken: Run) -> None:
        """Drop what hangs off `state`; the state itself once the run that left it has what it needs."""
        for run in list(state.runs.values()):
            await _drop(run)
        await taken.done.wait()
        await _forget(state)


async def _start(run: Run) -> Fork:
    """The fork to run on. Raises `SandboxError`."""
    before = run.came_from
    if before is not None and before.trouble is not None:
        raise ForkError(_REFUSALS.get(before.trouble, ForkRefusal.CLOSED), before.detail)
    fork = run.before.fork
    if fork is None:
        raise SandboxError("the state before is not held any more")
    try:
        if not run.in_place:
            spare = await run.before.spare.take() if run.before.spare is not None else None
            return spare or await fork.fork()
    except ForkError:
        if not run.committed:
            raise
    run.before.fork = None
    return fork


_REFUSALS = {Trouble.JOBS: ForkRefusal.JOBS, Trouble.TOO_MANY: ForkRefusal.TOO_MANY}


def _name(error: SandboxError | OSError) -> Trouble:
    named = {refusal: trouble for trouble, refusal in _REFUSALS.items()}
    return named.get(error.refusal, Trouble.SANDBOX) if isinstance(error, ForkError) else Trouble.SANDBOX


async def _execute(run: Run, fork: Fork) -> None:
    observations: list[Observation] = []
    for command in run.commands:
        run.jobs = run.jobs or fork.jobs
        result = await fork.execute(ToolCall("shell", {"command": command}))
        run.timed_out = run.timed_out or result.timed_out
        observations.append(fork.observe(result))
    run.result, run.after.fork = tuple(observations), fork


async def _drop(run: Run) -> None:
    """End a run that will never be committed, and all that follows from it."""
    run.scope.cancel()
    for later in list(run.after.runs.values()):
        await _drop(later)
    await run.done.wait()
    await _forget(run.after)


async def _forget(state: State) -> None:
    fork, state.fork = state.fork, None
    spare = await state.spare.take() if state.spare is not None else None
    for each in (fork, spare):
        if each is not None:
            await each.drop()
