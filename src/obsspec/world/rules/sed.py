"""A small sed: `s`, `d`, `p`, `q` with line numbers, ranges of them, `$` and patterns as addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from obsspec.world.rules.pattern import compiled
from obsspec.world.rules.program import UndeterminedError, lines_of

_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_COMMAND = re.compile(rf"\s*(?:({_ADDRESS})(?:,({_ADDRESS}))?)?\s*(!?)\s*([sdpq])")


@dataclass(frozen=True, slots=True)
class _Command:
    first: str
    last: str
    negated: bool
    verb: str
    pattern: str = ""
    replacement: str = ""
    flags: str = ""


def sed(script: str, text: str, *, quiet: bool, extended: bool) -> str:
    """What sed prints for `text`. Raises `UndeterminedError` for what is not covered."""
    commands = _parse(script)
    lines = lines_of(text)
    out: list[str] = []
    open_ranges: set[int] = set()
    for number, line in enumerate(lines, 1):
        final = number == len(lines)
        deleted = leaving = False
        for index, command in enumerate(commands):
            if not _selected(command, index, number, line, final, open_ranges, extended):
                continue
            if command.verb == "d":
                deleted = True
                break
            if command.verb == "p":
                out.append(line)
            elif command.verb == "q":
                leaving = True
                break
            else:
                line, changed = _substitute(command, line, extended)
                if changed and "p" in command.flags:
                    out.append(line)
        if not deleted and not quiet:
            out.append(line)
        if leaving:
            return "".join(line + "\n" for line in out)
    whole = "".join(line + "\n" for line in out)
    if text and not text.endswith("\n"):
        if len(out) != len(lines):
            raise UndeterminedError  # it is not clear that the last thing printed is the unended last line
        return whole[:-1]
    return whole


def _parse(script: str) -> list[_Command]:
    commands: list[_Command] = []
    at = 0
    while at < len(script):
        if script[at] in "; \t\n":
            at += 1
            continue
        found = _COMMAND.match(script, at)
        if found is None:
            raise UndeterminedError
        first, last, negated, verb = found[1] or "", found[2] or "", bool(found[3]), found[4]
        at = found.end()
        if verb == "s":
            pattern, replacement, flags, at = _arguments(script, at)
            commands.append(_Command(first, last, negated, verb, pattern, replacement, flags))
        else:
            commands.append(_Command(first, last, negated, verb))
        rest = script[at:].lstrip(" \t")
        if rest and rest[0] not in ";\n":
            raise UndeterminedError
    return commands


def _arguments(script: str, at: int) -> tuple[str, str, str, int]:
    mark = script[at : at + 1]
    if not mark or mark in "\\\n":
        raise UndeterminedError
    parts: list[str] = []
    at += 1
    for _ in range(2):
        start = at
        while at < len(script) and script[at] != mark:
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            raise UndeterminedError
        parts.append(script[start:at])
        at += 1
    flags = re.compile(r"[gIp]*").match(script, at)
    end = flags.end() if flags else at
    pattern = parts[0] if mark == "/" else parts[0].replace("\\" + mark, mark)
    if mark != "/" and "\\" + mark in parts[0] and mark in ".*[]^$+?(){}|":
        raise UndeterminedError
    return pattern, parts[1], script[at:end], end


def _selected(
    command: _Command, index: int, number: int, line: str, final: bool, open_ranges: set[int], extended: bool
) -> bool:
    chosen = _in_range(command, index, number, line, final, open_ranges, extended)
    return chosen != command.negated


def _in_range(
    command: _Command, index: int, number: int, line: str, final: bool, open_ranges: set[int], extended: bool
) -> bool:
    if not command.first:
        return True
    if not command.last:
        return _hit(command.first, number, line, final, extended)
    if index in open_ranges:
        if _hit(command.last, number, line, final, extended) or (
            command.last.isdigit() and number >= int(command.last)
        ):
            open_ranges.discard(index)
        return not (command.last.isdigit() and number > int(command.last))
    if not _hit(command.first, number, line, final, extended):
        return False
    if not (command.last.isdigit() and int(command.last) <= number):
        open_ranges.add(index)
    return True


def _hit(address: str, number: int, line: str, final: bool, extended: bool) -> bool:
    if address == "$":
        return final
    if address.isdigit():
        if address == "0":
            raise UndeterminedError
        return number == int(address)
    return compiled(address[1:-1].replace("\\/", "/"), extended).search(line) is not None


def _substitute(command: _Command, line: str, extended: bool) -> tuple[str, bool]:
    if "|" in command.pattern or not command.pattern:
        raise UndeterminedError  # the longest alternative counts, which is not Python's rule
    regex = compiled(command.pattern.replace("\\/", "/"), extended, "I" in command.flags)
    replacement = _replacement(command.replacement, regex.groups)
    made, count = regex.subn(replacement, line, count=0 if "g" in command.flags else 1)
    return made, count > 0


def _replacement(text: str, groups: int) -> str:
    def one(found: re.Match[str]) -> str:
        token = found[0]
        if token == "&":
            return r"\g<0>"
        following = token[1]
        if following.isdigit():
            if int(following) > groups:
                raise UndeterminedError
            return rf"\g<{following}>"
        if following == "n":
            return r"\n"
        if following.isalpha() or following == "\n":
            raise UndeterminedError
        return re.escape(following) if following == "\\" else following

    if "\n" in text:
        raise UndeterminedError
    return re.sub(r"\\(.)|&", one, text, flags=re.DOTALL)
