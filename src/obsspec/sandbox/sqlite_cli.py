# ruff: noqa: T201 - it prints, that is its job
"""A stand-in for the `sqlite3` command line where the machine has none: `sqlite3 [OPTION]... DATABASE [SQL]...`.

Rows are printed `|`-separated. SQL comes from stdin when none is given; an error there ends the line, not the script.
Known options: -header, -csv, -separator X (others are ignored). Known dot commands: .tables, .schema [TABLE],
.headers on|off, .mode list|csv, .quit.
"""

from __future__ import annotations

import csv
import sqlite3
import sys
from collections.abc import Iterable, Iterator


class Shell:
    """One database and the way its rows are printed."""

    def __init__(self, database: str) -> None:
        self.connection = sqlite3.connect(database, isolation_level=None)
        self.header = False
        self.separator = "|"
        self.csv = False

    def run_argument(self, text: str) -> bool:
        """One SQL argument, or one dot command; stops at the first error."""
        if text.startswith("."):
            self.dot(text.split())
            return True
        try:
            for statement in _statements(text):
                self.execute(statement)
        except sqlite3.Error as error:
            return _complain(f"Error: in prepare, {error}")
        return True

    def run_script(self, lines: Iterable[str]) -> bool:
        """Line by line from stdin; goes on after an error."""
        good, pending = True, ""
        for number, line in enumerate(lines, 1):
            if not pending.strip() and line.startswith("."):
                if line.split()[0] in (".quit", ".exit"):
                    break
                self.dot(line.split())
                continue
            pending += line
            if sqlite3.complete_statement(pending):
                good = self._run_line(pending, number) and good
                pending = ""
        return self._run_line(pending, 0) and good

    def _run_line(self, text: str, number: int) -> bool:
        try:
            for statement in _statements(text):
                self.execute(statement)
        except sqlite3.Error as error:
            return _complain(f"Parse error near line {number}: {error}")
        return True

    def execute(self, statement: str) -> None:
        cursor = self.connection.execute(statement)
        if cursor.description and self.header:
            self.row(column[0] for column in cursor.description)
        for row in cursor:
            self.row(row)

    def row(self, values: Iterable[object]) -> None:
        cells = [_text(value) for value in values]
        if self.csv:
            csv.writer(sys.stdout, lineterminator="\n").writerow(cells)
        else:
            print(self.separator.join(cells))

    def dot(self, words: list[str]) -> None:
        argument = words[1] if len(words) > 1 else ""
        match words[0]:
            case ".tables":
                names = self.names("name", "name LIKE ?", argument or "%")
                print("  ".join(names))
            case ".schema":
                print("".join(f"{sql};\n" for sql in self.names("sql", "tbl_name LIKE ?", argument or "%")), end="")
            case ".headers" | ".header":
                self.header = argument in ("on", "1", "yes")
            case ".mode":
                self.csv = argument == "csv"
            case other:
                print(f'Error: unknown command or invalid arguments:  "{other[1:]}"', file=sys.stderr)

    def names(self, column: str, condition: str, argument: str) -> list[str]:
        query = f"SELECT {column} FROM sqlite_master WHERE {condition} AND sql IS NOT NULL ORDER BY rowid"
        found = [row[0] for row in self.connection.execute(query, (argument,))]
        return sorted(found) if column == "name" else found


def _statements(text: str) -> Iterator[str]:
    """The complete statements of `text`, then what is left of it."""
    start, at = 0, text.find(";")
    while at >= 0:
        if sqlite3.complete_statement(text[start : at + 1]):
            yield text[start : at + 1]
            start = at + 1
        at = text.find(";", at + 1)
    if text[start:].strip():
        yield text[start:]


def _complain(message: str) -> bool:
    sys.stdout.flush()
    print(message, file=sys.stderr)
    return False


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def main(arguments: list[str]) -> int:
    header = as_csv = False
    separator = "|"
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0).lstrip("-")
        header = header or option == "header"
        as_csv = as_csv or option == "csv"
        if option == "separator" and arguments:
            separator = arguments.pop(0)
    shell = Shell(arguments[0] if arguments else ":memory:")
    shell.header, shell.csv, shell.separator = header, as_csv, separator
    if len(arguments) < 2:
        return 0 if shell.run_script(sys.stdin) else 1
    return 0 if all(shell.run_argument(text) for text in arguments[1:]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
