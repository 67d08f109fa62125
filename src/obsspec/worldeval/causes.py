"""Why the same command printed two different texts: read off from what differs, then from the command."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from enum import StrEnum


class Cause(StrEnum):
    TIME = "time stamps"
    ELAPSED = "elapsed time"
    PROCESS = "process numbers"
    RANDOM = "random"
    ADDRESS = "addresses and hashes of objects"
    ORDER = "order"
    NETWORK = "network"
    MACHINE = "load and space of the machine"
    OTHER = "other"


_TOKEN = re.compile(r"0x[0-9a-fA-F]+|\w+(?:[.:/-]\w+)*|\s+|.")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{5,}$")
_CLOCK = re.compile(
    r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?$|\d{4}-\d{2}-\d{2}(?:[T_-].*)?$|\d{8}[-_T]?\d{6}$|\d{8}T\d{6}\w*$"
)
_EPOCH = re.compile(r"1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?$")
_NUMBER = re.compile(r"\d+(?:\.\d+)?$")
_DURATION = re.compile(r"(?:\d+m)?\d+(?:\.\d+)?(?:s|ms|us|ns|sec)$")
_ELAPSED_NEAR = re.compile(r"\b(?:real|user|sys|elapsed|took|time|seconds?|secs?|ms|ran|duration|in)\b", re.IGNORECASE)
_UNIQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$|tmp[.\w]{4,}$|[0-9a-f]{16,}$", re.IGNORECASE)
_PROCESS_NEAR = re.compile(r"\bpids?\b|\[\d+\]|^\s*\w+\s+\d+\s+\d", re.IGNORECASE | re.MULTILINE)

_ASKS = (
    (
        Cause.RANDOM,
        re.compile(r"\$\{?S?RANDOM|\brandom|\bshuf\b|uuid|mktemp|urandom|secrets\b|sort\s+-\w*R|openssl rand"),
    ),
    (
        Cause.NETWORK,
        re.compile(r"\b(?:curl|wget|ping|nslookup|dig|ssh|pip3? install|apt(?:-get)?|git (?:clone|fetch|pull))\b"),
    ),
    (Cause.PROCESS, re.compile(r"\bps\b|\bpgrep\b|\bpidof\b|\btop\b|\$\$|\$!|\$BASHPID|\$PPID|\bgetpid|\bjobs\b")),
    (Cause.ELAPSED, re.compile(r"\btime\b|\bSECONDS\b|perf_counter|timeit|\buptime\b|pytest|unittest")),
    (Cause.TIME, re.compile(r"\bdate\b|\bdatetime\b|\bstat\b|\bls\s+-\w*l|time\.time|EPOCH|\bnow\(|\bctime\b|%T|%s")),
    (Cause.MACHINE, re.compile(r"\b(?:df|free|vmstat|iostat|nproc|lscpu|loadavg|meminfo)\b|/proc/")),
)


def cause_of(command: str, first: str, second: str) -> Cause:
    """The most telling difference of two outputs of `command`."""
    if sorted(_TOKEN.findall(first)) == sorted(_TOKEN.findall(second)):
        return Cause.ORDER
    found = [cause for a, b, near in _differences(first, second) if (cause := _read(a, b, near)) is not None]
    asked = next((cause for cause, pattern in _ASKS if pattern.search(command)), None)
    if asked is Cause.RANDOM or not found:
        return asked or Cause.OTHER
    return max(set(found), key=lambda cause: (found.count(cause), cause))


def _differences(first: str, second: str) -> list[tuple[str, str, str]]:
    """Pairs of words that differ, each with the line that the first one stands in."""
    a, b = _TOKEN.findall(first[:20_000]), _TOKEN.findall(second[:20_000])
    pairs: list[tuple[str, str, str]] = []
    for kind, a_from, a_to, b_from, b_to in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            line = "".join(a[max(0, a_from - 12) : a_to + 12])
            words = zip(_words(a[a_from:a_to]), _words(b[b_from:b_to]), strict=False)
            pairs += [(x, y, line) for x, y in words if x != y]
    return pairs


def _words(tokens: list[str]) -> list[str]:
    return [token for token in tokens if not token.isspace()]


def _read(a: str, b: str, near: str) -> Cause | None:
    """What two words that stand in each other's place tell."""

    def both(pattern: re.Pattern[str]) -> bool:
        return pattern.match(a) is not None and pattern.match(b) is not None

    if both(_ADDRESS):
        return Cause.ADDRESS
    if both(_CLOCK) or (both(_EPOCH) and abs(float(a) - float(b)) <= 1e-4 * float(a)):
        return Cause.TIME
    if both(_UNIQUE):
        return Cause.RANDOM
    if both(_DURATION) or (both(_NUMBER) and ("." in a + b) and _ELAPSED_NEAR.search(near)):
        return Cause.ELAPSED
    if both(_NUMBER) and "." not in a + b and _PROCESS_NEAR.search(near):
        return Cause.PROCESS
    return None
