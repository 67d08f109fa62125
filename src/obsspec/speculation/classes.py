"""The class of a turn's calls: what reliability and durations are remembered by. Cheap, and coarse on purpose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from obsspec.values import ToolCall

WORDS = 4  # programs of a command line that count
CALLS = 3
AND = "&"  # between the calls of one turn

_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_BODY = re.compile(r"(<<-?\s*\S+[^\n]*)\n.*", re.DOTALL)  # a here-document, and whatever follows it
_BREAKS = re.compile(r"(\|\||&&|[;\n|]|(?<!>)&(?![>\d]))")
_PREFIX = re.compile(r"^(?:[({!\s]|\w+=\S*\s|(?:then|do|else|sudo|time|env|command|exec|nohup)\s)*")
_PROGRAM = re.compile(r"[\w.+-]+$")
_REDIRECT = re.compile(r"(?<![<&\d-])>{1,2}(?!&)")
_VOLATILE = re.compile(
    r"\b(?:date|uptime|ps|top|mktemp|uuidgen|random|urandom|RANDOM|shuf|datetime|perf_counter|ls\s+-\w*l\w*|stat|du|df)\b"
    r"|\$\$|\btime\.|\bnow\(",
    re.IGNORECASE,
)


def command_class(calls: Sequence[ToolCall]) -> str:
    """Tool names with the programs of shell commands, e.g. `bash:cd;grep|wc`; `>`: it redirects, `~`: looks volatile.

    Equal calls have equal classes. The texts of arguments do not count.
    """
    return AND.join(_of_call(call) for call in calls[:CALLS]) + (AND if len(calls) > CALLS else "")


def is_sent_ahead(kinds: Sequence[str]) -> bool:
    """Whether unverified turns of these classes are sent ahead, with guards: those of one call each."""
    return not any(AND in kind for kind in kinds)


def _of_call(call: ToolCall) -> str:
    command = call.arguments.get("command")
    if isinstance(command, str):
        return f"{call.name}:{_of_shell(command)}"
    query = call.arguments.get("query")
    if isinstance(query, str):
        words = query.split(None, 1)
        return f"{call.name}:{words[0][:12].lower() if words else ''}"
    code = call.arguments.get("code")
    return f"{call.name}~" if isinstance(code, str) and _VOLATILE.search(code) else call.name


@lru_cache(maxsize=4096)
def _of_shell(command: str) -> str:
    line = _BODY.sub(r"\1", _QUOTED.sub("''", command[:2000]))
    parts = _BREAKS.split(line)
    words = [_program(parts[0])]
    for mark, part in zip(parts[1::2], parts[2::2], strict=True):
        word = _program(part)
        if word and len(words) < WORDS:
            words.append(("|" if mark == "|" else ";") + word)
    marks = (">" if _REDIRECT.search(line) else "") + ("~" if _VOLATILE.search(command) else "")
    return "".join(words) + marks


def _program(text: str) -> str:
    """The first word of a simple command, without its directory; "?" for one that is no plain name."""
    words = _PREFIX.sub("", text.strip() + " ", count=1).split(None, 1)
    if not words or words[0].startswith("#"):
        return ""
    name = words[0].rpartition("/")[2]
    return name[:16] if _PROGRAM.match(name) else "?"
