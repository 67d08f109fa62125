"""What calls answered before: a store shared by rollouts, workers and epochs, and the memories that live in it."""

from obsspec.world.memory.memory import Memory as Memory
from obsspec.world.memory.memory import Mode as Mode
from obsspec.world.memory.store import Store as Store
