"""What error messages say: paths that are not there, directories, programs that are not installed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obsspec.world.shadow.facts import Kind, Known
from obsspec.world.shadow.reading.found import Found

_QUOTE = "[`'‘\"]?"
_END = "['’\"]?"
_NO_PROGRAM = (
    re.compile(r"(?:\S+: line \d+: |\S*sh: \d+: )([\w.+-]+): (?:command )?not found"),
    re.compile(rf"(?:find|xargs|env|timeout|nohup): {_QUOTE}([\w.+-]+){_END}: No such file or directory"),
)
_ABSENT = tuple(
    map(
        re.compile,
        (
            r"\S+: (?:cannot|can't) (?:access|stat|open|open directory|read|remove) [`'‘](.+?)['’](?: for reading)?: "
            r"No such file or directory",
            r"find: [`'‘](.*/.*)['’]: No such file or directory",
            r"[\w.-]+: (/?[^\s:]*[/.][^\s:]*): No such file or directory",
            r"\S+: cannot open (\S+) \(No such file or directory\)",
            r"\S+: can't read (\S+): No such file or directory",
            r"\S*sh: line \d+: (?:cd: )?(/\S*): No such file or directory",
        ),
    )
)
_DIRECTORY = re.compile(r"\S+: (?:\w+ \w+ )?[`'‘]?(/[^'’:]+)['’]?: Is a directory")
_PREFIXED = re.compile(
    r"(?:\S*/)?(?:find|ls|grep|egrep|cat|xargs|sort|head|tail|wc|du|md5sum|sha\d+sum|awk|sed|cut|uniq|tar|diff|stat|"
    r"\w*sh): "
)


def take_errors(lines: Sequence[str], found: Found) -> list[str]:
    """The lines that are no messages; what messages say is collected."""
    return [line for line in lines if not _is_message(line, found)]


def _is_message(line: str, found: Found) -> bool:
    for pattern in _NO_PROGRAM:
        if match := pattern.fullmatch(line):
            found.no_program(match[1])
            return True
    for pattern in _ABSENT:
        if match := pattern.fullmatch(line):
            found.absent(match[1])
            return True
    if match := _DIRECTORY.fullmatch(line):
        found.exists(match[1], Known(Kind.DIRECTORY))
        return True
    return _PREFIXED.match(line) is not None
