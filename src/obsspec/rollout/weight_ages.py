"""How many updates ago a version of the weights was current."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from obsspec.protocols import SEVERAL, OnTokens, Policy, Promotes
from obsspec.values import Completion, ConfigError, Priority, Sampling, Tokens


class WeightAges:
    """The versions of a policy in the order in which they came, as far as anybody looked.

    `on_update` is called whenever a new one is seen. A version that comes back, as after a restart from a checkpoint,
    is new again. Engines that get the same new version one after the other have had one update.
    """

    def __init__(self, policy: Policy, on_update: Callable[[], None]) -> None:
        self._policy = policy
        self._on_update = on_update
        self._current = policy.weight_version
        self._serving = frozenset(self._current.split(SEVERAL))
        self._numbers = dict.fromkeys(self._serving, 0)
        self.updates = 0

    def look(self) -> None:
        """Notices an update."""
        version = self._policy.weight_version
        if version == self._current:
            return
        serving = frozenset(version.split(SEVERAL))
        new = serving - self._serving
        self._current, self._serving = version, serving
        if new:
            self.updates += 1
            self._numbers.update(dict.fromkeys(new, self.updates))
            self._on_update()

    def age(self, versions: Iterable[str]) -> int:
        """Updates since the oldest of these was current; 0 for none. Raises `ConfigError` for one never seen."""
        return max((self.updates - self._number(version) for version in versions), default=0)

    def _number(self, version: str) -> int:
        try:
            return min(self._numbers[part] for part in version.split(SEVERAL))
        except KeyError:
            raise ConfigError(f"tokens were sampled by weights {version!r}, which the policy never had") from None


class Watched:
    """A `Policy` whose version is looked at before each request, so that no version samples anything unseen."""

    def __init__(self, policy: Policy, ages: WeightAges) -> None:
        self._policy = policy
        self._ages = ages

    @property
    def weight_version(self) -> str:
        return self._policy.weight_version

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        if isinstance(self._policy, Promotes):
            self._policy.promote(prompt, sampling)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        self._ages.look()
        return await self._policy.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
