"""The key-value header of a GGUF file, read in some 50 ms.

`gguf.GGUFReader` maps every tensor and string and needs seconds for it; the tokenizer needs only this.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from obsspec.values import ConfigError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def read_metadata(path: Path) -> dict[str, Any]:
    """Every metadata field of the file: numbers, strings and (nested) lists of them.

    Raises `ConfigError` when the file is missing, not GGUF, or cut off inside the header.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).header()
    except (OSError, ValueError, struct.error, KeyError) as error:
        raise ConfigError(f"{path} is not a readable GGUF file ({error}): give another model file") from None


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def header(self) -> dict[str, Any]:
        if self._take("4s") != b"GGUF":
            raise ValueError("no GGUF magic")
        _version, _tensors, fields = self._take("I"), self._take("Q"), self._take("Q")
        return {self._string(): self._value(self._take("I")) for _ in range(fields)}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._take(_SCALARS[kind])
        inner, count = self._take("I"), self._take("Q")
        if inner in _SCALARS:
            return self._many(f"{count}{_SCALARS[inner]}")
        return [self._value(inner) for _ in range(count)]

    def _string(self) -> str:
        size = self._take("Q")
        if self._at + size > len(self._data):
            raise ValueError("cut off inside a string")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def _take(self, code: str) -> Any:
        return self._many(code)[0]

    def _many(self, code: str) -> list[Any]:
        values = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return list(values)
