"""HTTP as a proxy has to see it: which headers travel, what JSON texts are the same, and events in a stream."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from typing import Any, cast

Headers = tuple[tuple[bytes, bytes], ...]  # names in lower case, order and repetition kept

# These belong to one connection. Everything else is passed on.
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_OURS = frozenset((b"host", b"content-length", b"expect"))  # the client of the engine says these itself


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Without the headers of the connection, those that `Connection` names included."""
    found = [(name.lower(), value) for name, value in headers]
    named = {name.strip().lower() for key, value in found if key == b"connection" for name in value.split(b",")}
    return tuple((name, value) for name, value in found if name not in _HOP_BY_HOP and name not in named)


def outgoing(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What is sent to the engine of a client's headers; host and length are for the client of the engine to say."""
    return tuple((name, value) for name, value in end_to_end(headers) if name not in _OURS)


def header(headers: Headers, name: bytes) -> str:
    """The first of this name, "" if there is none."""
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def read_object(body: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything that two readers may understand differently (repeated keys, NaN, no UTF-8)."""
    try:
        value: Any = json.loads(body.decode(), object_pairs_hook=_distinct, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def canonical(value: Any) -> str:
    """The same text for the same JSON value, and only for it. The order of keys counts: a chat template may print an
    object as it came. Raises `ValueError` for what JSON has no text for."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is too large")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class Inflater:
    """Reads a copy of a body that is passed on as it is. Raises `ValueError` for a coding it does not know."""

    def __init__(self, coding: str) -> None:
        coding = coding.strip().lower()
        if coding not in ("", "identity", "gzip", "deflate"):
            raise ValueError(f"content coding {coding}")
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding in ("gzip", "deflate") else None

    def feed(self, chunk: bytes, limit: int) -> bytes:
        """At most `limit` + 1 bytes of text. Raises `ValueError`."""
        if self._zlib is None:
            return chunk
        try:
            return self._zlib.decompress(chunk, limit + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error


class EventReader:
    """The data of server-sent events, chunk by chunk, however they are cut. Lines end with LF or CRLF."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> int:
        """Bytes of an event that is not complete."""
        return len(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
