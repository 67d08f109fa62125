"""The world models of the proxy: one set for each set of credentials, so that nobody's tools teach anybody else's."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b

from obsspec.integrations.proxy.asked import Asked
from obsspec.integrations.proxy.fields import FieldHabits
from obsspec.integrations.proxy.habits import Habits
from obsspec.protocols import WorldModel
from obsspec.speculation.gate import Gate
from obsspec.values import Context, ToolCall
from obsspec.world.cascade import Cascade
from obsspec.world.memory.memory import Memory
from obsspec.world.memory.store import Store
from obsspec.world.rules.model import Rules
from obsspec.world.stages import CascadeMemory, Price, Stage
from obsspec.world.tools.source import Tools

TENANTS = 64  # sets of credentials that are remembered
CLIENTS = 256  # of one of them
MAX_PAGES, MAX_TEXT = 20_000, 16 << 20  # of the memory of each


@dataclass(frozen=True, slots=True)
class Client:
    """What one client was seen to do."""

    habits: Habits = field(default_factory=Habits)
    fields: FieldHabits = field(default_factory=FieldHabits)


@dataclass(slots=True)
class World:
    """What was learnt from the clients of one set of credentials."""

    gate: Gate
    remembered: Memory
    rules: Rules = field(default_factory=Rules)
    tools: Tools = field(default_factory=Tools)
    memory: CascadeMemory = field(default_factory=CascadeMemory)
    clients: OrderedDict[str, Client] = field(default_factory=OrderedDict[str, Client])

    def cascade(self, language: WorldModel | None) -> Cascade:
        """For one conversation. No source needs a sandbox: where the tools run is not known here."""
        stages = [
            Stage("rules", self.rules),
            Stage("memory", self.remembered),
            Stage("tools", self.tools),
        ]
        if language is not None:
            stages.append(Stage("lm", language, Price.EXPENSIVE))
        return Cascade(stages, gate=self.gate, memory=self.memory)

    def client(self, name: str) -> Client:
        found = self.clients.setdefault(name, Client())
        self.clients.move_to_end(name)
        while len(self.clients) > CLIENTS:
            self.clients.popitem(last=False)
        return found


class Worlds:
    """By credentials."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._all: OrderedDict[str, World] = OrderedDict()
        _warm_up()

    def of(self, asked: Asked) -> World:
        world = self._all.get(asked.credentials)
        if world is None:
            store = Store(max_pages=MAX_PAGES, max_text=MAX_TEXT)
            world = self._all[asked.credentials] = World(self._gate, Memory(store))
        self._all.move_to_end(asked.credentials)
        while len(self._all) > TENANTS:
            self._all.popitem(last=False)
        return world


def image_of(asked: Asked) -> str:
    """Conversations that begin with the same prompt are taken to begin in the same state."""
    found = blake2b(digest_size=16)
    for unit in asked.units:
        found.update(f"{unit}\n".encode())
    return found.hexdigest()


def _warm_up() -> None:
    """The first prediction of a process loads parsers: better now than while a client waits."""
    for command in ("ls | wc -l", "echo 1 > a; cat a"):
        Rules().answer(Context((), (), (ToolCall("bash", {"command": command}),)))
