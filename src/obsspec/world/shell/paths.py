"""Paths as keys: normalised, absolute, or under a directory whose name is not known.

`START` stands for the directory that a shell started in, where nothing has told its name: the same one for the whole
rollout. `?/a/b` is then a path as good as `/home/x/a/b`, only that it may be the same file as an absolute one.
"""

from __future__ import annotations

import posixpath

START = "?"


def resolve(path: str, cwd: str | None) -> str | None:
    """The key of `path` seen from `cwd`. None if that is not known, or would lead above `START`."""
    if path.startswith("/"):
        return "/" + posixpath.normpath(path).lstrip("/")
    if cwd is None:
        return None
    if cwd.startswith("/"):
        return "/" + posixpath.normpath(f"{cwd}/{path}").lstrip("/")
    inside = posixpath.normpath(f"{cwd[2:]}/{path}".lstrip("/"))
    if inside == ".." or inside.startswith("../"):
        return None
    return START if inside == "." else f"{START}/{inside}"


def within(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or below it, as far as names tell."""
    return path == directory or (directory == "/" and path.startswith("/")) or path.startswith(directory + "/")


def may_be_same(first: str, second: str) -> bool:
    """Whether a known and a `START` path may name one file."""
    if first.startswith("/") == second.startswith("/"):
        return first == second
    known, unknown = (first, second) if first.startswith("/") else (second, first)
    return known.endswith(unknown[1:]) if len(unknown) > 1 else True


def overlap(first: frozenset[str] | None, second: frozenset[str] | None) -> bool:
    """Whether a change of what `first` names may be seen by who reads what `second` names. None names everything.

    A directory stands for all that is in it.
    """
    if first is None:
        return second is None or bool(second)
    if second is None:
        return bool(first)
    return any(_touch(a, b) for a in first for b in second)


def _touch(first: str, second: str) -> bool:
    if within(first, second) or within(second, first):
        return True
    if first.startswith("/") == second.startswith("/"):
        return False
    known, unknown = (first, second) if first.startswith("/") else (second, first)
    tail = unknown[1:] + "/"  # "/a/b/" of "?/a/b"; the known path may lie above, at or below it
    return tail == "/" or f"{known}/".find(tail) >= 0 or _ends_into(known + "/", tail)


def _ends_into(known: str, tail: str) -> bool:
    """Whether `known` may be a directory that holds what `tail` names: it may be an ancestor of `START` itself, too."""
    parts = [part for part in tail.split("/") if part]
    own = [part for part in known.split("/") if part]
    if not own:
        return True
    return any(own[-n:] == parts[:n] for n in range(1, min(len(own), len(parts)) + 1))
