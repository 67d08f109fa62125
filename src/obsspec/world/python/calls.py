"""Which tool calls are Python, and what in the code makes its output hard to know."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from obsspec.values import Exchange, Observation, ToolCall

NAMED = re.compile(
    r"python|jupyter|notebook|(^|_)(repl|interpreter|code)$|(run|exec\w*)_?(code|cell)|code_?(exec|run)", re.IGNORECASE
)
_VOLATILE = """
    random time datetime date now today input uuid uuid4 id hash perf_counter getpid urandom secrets requests urllib
    socket subprocess open default_rng shuffle choice randint
"""
VOLATILE = frozenset(_VOLATILE.split())
NUMBER = re.compile(r"^(?:Cell )?(?:In|Out) ?\[(\d+)\]|(?:Cell )In ?\[(\d+)\]", re.MULTILINE)


def python_code(call: ToolCall) -> str | None:
    """The code, if the only text argument of the call may be Python. Without what stands around it."""
    texts = [value for value in call.arguments.values() if isinstance(value, str)]
    if len(texts) != 1:
        return None
    code = texts[0].strip()
    if NAMED.search(call.name):
        return code
    return code if _parses(code) else None


def is_named(call: ToolCall) -> bool:
    """The name of the tool says that it runs Python."""
    return NAMED.search(call.name) is not None


def _parses(code: str) -> bool:
    """Python, and more than the bare words that other languages have too."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return any(isinstance(node, (ast.Assign, ast.Call, ast.Import, ast.ImportFrom)) for node in ast.walk(tree))


def volatile_names(code: str) -> str:
    """What the code uses that differs from run to run, "" for nothing: clocks, chance, input, files, networks."""
    return " ".join(sorted(set(re.findall(r"[A-Za-z_]\w*", code)) & VOLATILE))


def code_history(history: Sequence[Exchange], tool: str) -> list[tuple[str, Observation]]:
    """The codes that `tool` ran before, and what it showed."""
    ran: list[tuple[str, Observation]] = []
    for exchange in history:
        for call, observation in zip(exchange.calls, exchange.observations, strict=False):
            code = python_code(call) if call.name == tool else None
            if code is not None:
                ran.append((code, observation))
    return ran


def shown_number(text: str) -> int | None:
    """The number of the cell that an output belongs to, if it shows one."""
    found = NUMBER.search(text)
    return int(found[1] or found[2]) if found else None
