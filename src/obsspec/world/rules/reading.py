"""What an observation tells of the machine: the contents, listings and absences that a command has shown."""

from __future__ import annotations

import re

from obsspec.world.format import Body
from obsspec.world.rules.state import Directory, File, State
from obsspec.world.rules.streams import Hole, Outcome
from obsspec.world.shell.names import names
from obsspec.world.shell.paths import resolve

REPLACEMENT = "\ufffd"
_ABSENT = re.compile(
    r"^(?:\w+|\S*sh: line 1: cd): (?:cannot (?:access|stat|statx|open|remove|read:?) |can't read )?"
    r"['‘]?([^'’:\n]+?)['’]?(?: for reading)?: No such file or directory$"
)
_READERS = names("cat ls head tail stat rm wc grep cp mv chmod gzip gunzip zcat sed sort uniq cut diff cmp nl cd file")
_ERROR = re.compile(r"^(?:\w+|\S*sh: line \d+): .*", re.MULTILINE)


def shown(outcome: Outcome, body: Body) -> tuple[Hole, str] | None:
    """The one command whose output was not known, and what it printed; None if there is not exactly one."""
    known = ["", ""]
    hole: Hole | None = None
    for piece in outcome.pieces:
        if isinstance(piece.what, Hole):
            if hole is not None and piece.what != hole:
                return None
            hole = piece.what
        else:
            known[hole is not None] += piece.what
    before, after = known
    text = body.text
    if body.trimmed:
        after = after.rstrip()
    if hole is None or not hole.words or not (text.startswith(before) and text.endswith(after)):
        return None
    end = len(text) - len(after)
    return (hole, text[len(before) : end]) if len(before) <= end else None


def take_in(state: State, hole: Hole, text: str, body: Body, *, final: bool) -> list[str] | None:
    """Put what the command of `hole` showed into the state. Returns the names of a listing, in their order.

    `final`: the text is the end of the output, where blanks may be missing.
    """
    if body.cut or (text and not body.trimmed and not text.endswith("\n")):
        return None  # not all of it, or a message of the harness: programs end their last line
    words, trimmed = hole.words, body.trimmed and final
    gone = _ABSENT.match(text.rstrip("\n"))
    if gone is not None and gone[1] in words[1:]:
        path = resolve(gone[1], hole.cwd)
        if path is not None and words[0] in _READERS and not state.tree.get(path):
            state.tree.remove(path)
        return None
    if body.exit_code not in (0, None) or (body.exit_code is None and _ERROR.match(text)):
        return None
    if words[0] == "cat" and len(words) == 2:
        _content(state, resolve(words[1], hole.cwd), text, trimmed)
    elif words[0] == "ls" and all(word in ("-1", "-a", "-A") or not word.startswith("-") for word in words[1:]):
        return _listing(state, words, hole.cwd, text)
    elif words == ("pwd",) and text.startswith("/"):
        _place(state, hole.cwd, text.rstrip("\n"))
    return None


def _content(state: State, path: str | None, text: str, trimmed: bool) -> None:
    if path is None:
        return
    if trimmed:
        text = text + "\n" if text else ""
    known = REPLACEMENT not in text  # it stands for bytes that are not text
    state.tree.put(path, File(text if known else None, exact=not trimmed))


def _listing(state: State, words: tuple[str, ...], cwd: str, text: str) -> list[str] | None:
    operands = [word for word in words[1:] if not word.startswith("-")]
    path = resolve(operands[0] if operands else ".", cwd)
    entries = text.split("\n") if text else []
    entries = entries[:-1] if entries and not entries[-1] else entries
    if path is None or len(operands) > 1 or "" in entries or (operands and entries == operands):
        return None
    hidden = any("a" in word or "A" in word for word in words[1:] if word.startswith("-"))
    state.tree.put(path, Directory(frozenset(entries) - {".", ".."}, hidden))
    return entries


def _place(state: State, cwd: str, directory: str) -> None:
    if cwd.startswith("/"):
        return
    root, _, rest = cwd.partition("/")
    if rest and not directory.endswith("/" + rest):
        return
    name = directory[: len(directory) - len(rest)].rstrip("/") or "/" if rest else directory
    state.tree.rename_root(root, name)
    state.roots[root] = name
    if state.cwd == root or state.cwd.startswith(root + "/"):
        state.cwd = (name.rstrip("/") + state.cwd[len(root) :]) or "/"
