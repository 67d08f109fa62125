"""A rollout of a Python tool, as the tests of the replica play it."""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.python.replica import PythonReplica


def python(code: str) -> ToolCall:
    return ToolCall("python", {"code": code})


@dataclass(slots=True)
class Play:
    """Predicts and commits turn by turn; `committed` shows what the tool really printed."""

    replica: PythonReplica
    tool: str = "python"
    history: list[Exchange] = field(default_factory=list)

    def context(self, *codes: str) -> Context:
        calls = tuple(ToolCall(self.tool, {"code": code}) for code in codes)
        return Context((), (), calls, tuple(self.history), "task", "task", len(self.history))

    async def predictions(self, *codes: str, breadth: int = 1) -> list[Prediction]:
        said: list[Prediction] = []
        await self.replica.predict(self.context(*codes), breadth, said.append)
        return said

    async def predict(self, *codes: str) -> str | None:
        """The text of the first observation of the best candidate."""
        said = await self.predictions(*codes)
        return said[0].observations[0].text if said else None

    def commit(self, code: str, shown: str) -> None:
        """The turn was `code`, and the tool showed `shown`."""
        context, observations = self.context(code), (Observation(shown),)
        self.replica.learn(context, observations)
        self.history.append(Exchange(context.calls, observations))

    async def turn(self, code: str, shown: str) -> str | None:
        """Predict, then commit."""
        said = await self.predict(code)
        self.commit(code, shown)
        return said
