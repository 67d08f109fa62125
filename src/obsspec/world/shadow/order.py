"""In which order a file system gives the entries of a directory, from listings that nothing sorted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

MAX_PATHS = 800


def sequences(paths: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Directories with at least two entries, and these in the order of their first appearance."""
    found: dict[str, dict[str, None]] = {}
    for path in paths[:MAX_PATHS]:
        for directory, name in _steps(path):
            found.setdefault(directory, {})[name] = None
    return [(directory, list(names)) for directory, names in found.items() if len(names) > 1]


def _steps(path: str) -> Iterator[tuple[str, str]]:
    """Each directory on the way up, and the entry of it that the path goes through."""
    while path != "/":
        directory, _, name = path.rpartition("/")
        path = directory or "/"
        yield path, name


def merge_order(known: list[str], seen: Sequence[str]) -> bool:
    """Bring `known` into line with `seen`, in place. True if anything changed."""
    before = list(known)
    common = set(known) & set(seen)
    rank = iter([name for name in seen if name in common])
    known[:] = [next(rank) if name in common else name for name in known]
    for index, name in enumerate(seen):
        if name not in common:
            known.insert(_place(known, seen, index), name)
    return known != before


def _place(known: Sequence[str], seen: Sequence[str], index: int) -> int:
    if index:
        return known.index(seen[index - 1]) + 1
    later = [known.index(name) for name in seen if name in known]
    return min(later, default=len(known))


def by_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """`names` as the file system gives them; those whose place is not known come last."""
    rank = {name: index for index, name in enumerate(order)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))
