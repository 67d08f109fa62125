"""What a program sees when it is evaluated: arguments, input, files. A program that is not sure returns None."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from obsspec.world.rules.habits import Habits
from obsspec.world.rules.state import Absent, Directory, File, Node, State
from obsspec.world.rules.streams import Doubt, Outcome, Piece, failed, refused
from obsspec.world.rules.undetermined import UndeterminedError
from obsspec.world.shell.paths import resolve

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_./+,:@%-]+\Z")


@dataclass(slots=True)
class Run:
    """One evaluation of one program. `stdin`: None where its input is not known. `last`: its output is the end of all
    output, so that trailing blanks that the format hides do not matter."""

    state: State
    habits: Habits
    stdin: str | None = ""
    doubt: Doubt = Doubt.NONE
    last: bool = False
    unseen: bool = False  # the program asked for a path of which nothing is known
    one_line: bool = False  # the script has one line, so that the shell's own messages say "line 1"

    def complain(self, message: str, code: int = 1) -> Outcome:
        """A message of the shell itself; unknown where it is not known how that begins."""
        if self.habits.shell is None or not self.one_line:
            return refused(code)
        return failed(f"{self.habits.shell}: line 1: {message}\n", code)

    def path(self, name: str) -> str:
        """The key of a path. Raises `UndeterminedError`."""
        key = resolve(name, self.state.cwd) if name and "\n" not in name else None
        if key is None:
            raise UndeterminedError
        return key

    def node(self, name: str) -> Node | None:
        """What is at `name`; None if that is not known."""
        node = self.state.tree.get(self.path(name))
        self.unseen = self.unseen or node is None
        if name.endswith("/") and isinstance(node, File):
            raise UndeterminedError
        return node

    def text(self, name: str, *, ending: bool = True) -> str | None:
        """The content of the file `name`, or of the input for "-"; None if the file does not exist.

        `ending`: trailing line ends matter for what is made of it. Raises `UndeterminedError`.
        """
        if name == "-":
            return self.input()
        match self.node(name):
            case File(str() as text, exact, _, doubt):
                self.doubt |= doubt
                if ending and not exact:
                    self.doubt |= Doubt.ENDING
                return text
            case Absent():
                return None
            case Directory() | File() | None:
                raise UndeterminedError

    def input(self) -> str:
        if self.stdin is None:
            raise UndeterminedError
        return self.stdin

    def texts(self, names: list[str], complaint: str, *, ending: bool = True) -> tuple[list[str], str]:
        """The contents of all files, or the input without any, and the errors for those that do not exist.

        `complaint`: its text for one file, with `{}` for the name.
        """
        if not names:
            return [self.input()], ""
        found = [(name, self.text(name, ending=ending)) for name in names]
        errors = [complaint.format(plain_name(name)) + "\n" for name, text in found if text is None]
        return [text for _, text in found if text is not None], "".join(errors)


__all__ = ["MISSING", "Program", "Run", "UndeterminedError", "ascii_only", "lines_of", "plain_name", "result"]
MISSING = "No such file or directory"
Program = Callable[[list[str], Run], Outcome | None]


def plain_name(name: str) -> str:
    """The name, if messages show it without quoting."""
    if not _PLAIN_NAME.match(name):
        raise UndeterminedError
    return name


def lines_of(text: str) -> list[str]:
    """The lines without their ends."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def ascii_only(*texts: str) -> None:
    """Where programs count bytes or know classes of characters, only ASCII is sure."""
    if not all(text.isascii() for text in texts):
        raise UndeterminedError


def result(text: str, errors: str = "", code: int = 1) -> Outcome:
    """What a program printed; `code` is its exit code if there were errors."""
    pieces = [Piece(errors, error=True)] if errors else []
    return Outcome((Piece(text), *pieces) if text else tuple(pieces), code if errors else 0)
