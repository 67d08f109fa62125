"""A toy shell in a few lines: enough for a fake to pass the conformance suite of real sandboxes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obsspec.values import Observation, ToolCall


def toy_shell(calls: Sequence[ToolCall]) -> Observation:
    """The answer to the last call, by running all of them: echo, cat, cd, pwd, export, true, sleep and (exit N)."""
    shell = _Shell()
    text, code = "", 0
    for call in calls:
        text, code = shell.run(call.command)
    return Observation(text + (f"\n[exit {code}]" if code else ""), exit_code=code, empty=not text)


def toy_shell_delay(call: ToolCall) -> float:
    """Seconds that a command sleeps."""
    return sum(float(seconds) for seconds in re.findall(r"sleep ([\d.]+)", call.command))


class _Shell:
    def __init__(self) -> None:
        self.directory = "/home/user"
        self.variables: dict[str, str] = {}
        self.files: dict[str, str] = {}

    def run(self, command: str) -> tuple[str, int]:
        printed: list[str] = []
        code = 0
        for simple in re.split(r"\s*;\s*", command):
            text, code = self._simple(simple)
            printed.append(text)
        return "\n".join(text for text in printed if text), code

    def _simple(self, command: str) -> tuple[str, int]:
        words, _, target = command.partition(" > ")
        name, _, rest = words.partition(" ")
        rest = re.sub(r"\$(\w+)", lambda m: self.variables.get(m[1], ""), rest)
        match name:
            case "echo" if target:
                self.files[self._path(target)] = rest
            case "echo":
                return rest, 0
            case "cat":
                text = self.files.get(self._path(rest))
                return (text, 0) if text is not None else (f"cat: {rest}: No such file or directory", 1)
            case "pwd":
                return self.directory, 0
            case "cd":
                self.directory = rest
            case "export":
                variable, _, value = rest.partition("=")
                self.variables[variable] = value
            case "(exit":
                return "", int(rest.rstrip(")"))
            case "true" | "sleep":
                pass
            case _:
                return f"bash: line 1: {name}: command not found", 127
        return "", 0

    def _path(self, name: str) -> str:
        return name if name.startswith("/") else f"{self.directory}/{name}"
