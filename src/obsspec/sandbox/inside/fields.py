"""Reading the fields of a frame in order, and writing the ones that describe a sandbox."""

from __future__ import annotations

from .shell import Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Fields:
    """A cursor over the fields of one frame. Raises IndexError or ValueError on a malformed frame."""

    def __init__(self, fields: list[bytes]) -> None:
        self._fields = fields
        self.at = 0

    def raw(self) -> bytes:
        self.at += 1
        return self._fields[self.at - 1]

    @property
    def at_end(self) -> bool:
        return self.at >= len(self._fields)

    def text(self) -> str:
        return self.raw().decode()

    def number(self) -> int:
        return int(self.raw())

    def real(self) -> float:
        return float(self.raw())

    def items(self) -> list[bytes]:
        return [self.raw() for _ in range(self.number())]

    def mapping(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.number())}

    def rules(self) -> Rules:
        home, memory, processes, file, cpu, opened, user = (self.text() for _ in range(7))
        limits = map(int, (memory, processes, file, cpu, opened))
        return Rules(home, *limits, user=int(user) if user else None)


def number(value: float) -> bytes:
    return str(value).encode()


def text(value: str) -> bytes:
    return value.encode("utf-8", "replace")


def items(values: Iterable[bytes]) -> list[bytes]:
    values = list(values)
    return [number(len(values)), *values]


def mapping(values: Mapping[str, str]) -> list[bytes]:
    return [number(len(values)), *(text(part) for pair in values.items() for part in pair)]


def rules(value: Rules) -> list[bytes]:
    user = "" if value.user is None else str(value.user)
    numbers = (value.memory_bytes, value.processes, value.file_bytes, value.cpu_s, value.open_files)
    return [text(value.home), *map(number, numbers), text(user)]
