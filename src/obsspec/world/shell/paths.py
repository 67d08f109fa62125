"""Paths as keys: normalised and absolute, or under a directory whose name is not known.

`START` stands for the directory that a shell started in, where nothing has told its name: the same one for the whole
rollout. `?/a/b` is then a path as good as `/home/x/a/b`, only that it may name the same file as an absolute one. Other
unnamed directories are `?1`, `?2` and so on.
"""

from __future__ import annotations

import posixpath

START = "?"


def resolve(path: str, cwd: str | None) -> str | None:
    """The key of `path` seen from `cwd`. None if that is not known, or would lead above an unnamed directory."""
    if path.startswith("/"):
        return "/" + posixpath.normpath(path).lstrip("/")
    if cwd is None:
        return None
    root, _, rest = cwd.partition("/")
    inside = posixpath.normpath(f"{rest}/{path}" if rest else path)
    if not root:
        return "/" + posixpath.normpath(f"/{inside}").lstrip("/")
    if inside == ".." or inside.startswith("../"):
        return None
    return root if inside == "." else f"{root}/{inside}"


def root_of(path: str) -> str:
    """ "" of an absolute path, else the unnamed directory that it starts from."""
    return path.partition("/")[0]


def parent(path: str) -> str | None:
    """The directory that holds `path`. None above an unnamed directory, and of "/"."""
    head, slash, name = path.rpartition("/")
    if not slash or not name:
        return None
    return head or "/"


def within(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or below it, as far as names tell."""
    return path == directory or (directory == "/" and path.startswith("/")) or path.startswith(directory + "/")


def touching(first: str, second: str) -> bool:
    """Whether one may be the other, or be in it. Paths from different roots may be the same where their ends fit."""
    if within(first, second) or within(second, first):
        return True
    if root_of(first) == root_of(second):
        return False
    if root_of(first):
        first, second = second, first  # now only `second` surely has an unnamed root
    own = [part for part in first.split("/")[1:] if part]
    tail = second.split("/")[1:]
    if not own or not tail:
        return True
    return any(_fits(own[start:], tail) for start in range(len(own)))


def _fits(one: list[str], other: list[str]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def overlap(first: frozenset[str] | None, second: frozenset[str] | None) -> bool:
    """Whether a change of what `first` names may be seen by who reads what `second` names. None names everything.

    A directory stands for all that is in it.
    """
    if first is None:
        return second is None or bool(second)
    if second is None:
        return bool(first)
    return any(touching(a, b) for a in first for b in second)
