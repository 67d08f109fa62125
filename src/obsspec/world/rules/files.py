"""Programs that change files and say nothing when all goes well, and `ls`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from posixpath import basename

from obsspec.world.rules.options import read_options
from obsspec.world.rules.order import listed
from obsspec.world.rules.program import Program, Run, UndeterminedError, plain_name
from obsspec.world.rules.state import Absent, Directory, File
from obsspec.world.rules.streams import ASSUMED, Doubt, Outcome, failed, printed, refused
from obsspec.world.shell.paths import parent, resolve

_MISSING = "No such file or directory"
_UNTOLD = "?"  # an error whose text is not known


def linked(arguments: Sequence[str], cwd: str) -> frozenset[str] | None:
    """What `ln` makes names of one thing: a link and what it leads to; None if that is not known."""
    names = [argument for argument in arguments if not argument.startswith("-")]
    if len(names) not in (1, 2) or any("t" in a for a in arguments if a.startswith("-")):
        return None
    target = resolve(names[1] if len(names) == 2 else basename(names[0].rstrip("/")), cwd)
    places = (cwd, target, parent(target) if target is not None else None)  # that it may be relative to
    found = [target, *(resolve(names[0], place) for place in places if place is not None)]
    return None if None in found else frozenset(map(str, found))


def _each(names: list[str], one: Callable[[str], str | None], errors_code: int = 1) -> Outcome | None:
    """Applies `one` to each name: "" if it went well, else its error. All or nothing: a mixture is not worked out."""
    if not names or any(name.rstrip("/").rpartition("/")[2] in ("", ".", "..") for name in names):
        return None
    errors = [one(name) for name in names]
    if _UNTOLD in errors and all(errors):
        return refused(errors_code)
    if any(error is None for error in errors) or (any(errors) and not all(errors)):
        return None
    return failed("".join(str(error) for error in errors), errors_code) if errors[0] else ASSUMED


def _holds(run: Run, name: str) -> bool | None:
    """Whether the directory that `name` is to be in exists."""
    above = parent(run.path(name))
    node = run.state.tree.get(above)
    return None if node is None else isinstance(node, Directory)


def _mkdir(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "p", "m", {"parents": "p", "mode": "m"})
    if options is None:
        return None

    def one(name: str) -> str | None:
        node, parents = run.node(name), "p" in options.flags
        held = _holds(run, name)
        quoted = run.habits.quotes(plain_name(name))
        if isinstance(node, Directory) and parents:
            return ""
        if isinstance(node, File | Directory):
            return f"mkdir: cannot create directory {quoted}: File exists\n" if quoted else _UNTOLD
        if held is False and not parents:
            return f"mkdir: cannot create directory {quoted}: {_MISSING}\n" if quoted else _UNTOLD
        fresh = isinstance(node, Absent) or not parents
        run.state.tree.put(run.path(name), Directory(frozenset() if fresh else None))
        return ""

    return _each(options.operands, one)


def _rmdir(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "")
    if options is None:
        return None

    def one(name: str) -> str | None:
        match run.node(name):
            case Absent():
                return None  # a file system that is read-only says that first
            case File():
                return f"rmdir: failed to remove '{plain_name(name)}': Not a directory\n"
            case Directory(names) if names:
                return f"rmdir: failed to remove '{plain_name(name)}': Directory not empty\n"
            case _:
                run.state.tree.remove(run.path(name))
                return ""

    return _each(options.operands, one)


def _rm(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "rRfd", "", {"recursive": "r", "force": "f"})
    if options is None:
        return None
    force = "f" in options.flags

    def one(name: str) -> str | None:
        node = run.node(name)
        if isinstance(node, Absent):
            return "" if force else f"rm: cannot remove '{plain_name(name)}': {_MISSING}\n"
        if isinstance(node, Directory) and not options.flags & set("rR"):
            return None if "d" in options.flags else f"rm: cannot remove '{plain_name(name)}': Is a directory\n"
        if force and _holds(run, name) is None:
            run.state.tree.forget(run.path(name))  # what is not there it does not mind, nor why
        else:
            run.state.tree.remove(run.path(name))
        return ""

    return ASSUMED if force and not options.operands else _each(options.operands, one)


def _touch(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "amc")
    if options is None:
        return None

    def one(name: str) -> str | None:
        node = run.node(name)
        if isinstance(node, Absent) and _holds(run, name) is False:
            return f"touch: cannot touch '{plain_name(name)}': {_MISSING}\n"
        if isinstance(node, File | Directory) or "c" in options.flags:
            return ""
        if isinstance(node, Absent):
            run.state.tree.put(run.path(name), File(""))
        else:
            run.state.tree.forget(run.path(name))
        return ""

    return _each(options.operands, one)


def _chmod(program: str) -> Program:
    def rule(arguments: list[str], run: Run) -> Outcome | None:
        if len(arguments) < 2 or any(a.startswith("--") or a in ("-v", "-c", "-Rv") for a in arguments):
            return None
        operands = [a for a in arguments if not a.startswith("-") or "r" in a or "w" in a or "x" in a]

        def one(name: str) -> str | None:
            node = run.node(name)
            if isinstance(node, Absent):
                return f"{program}: cannot access '{plain_name(name)}': {_MISSING}\n"
            mode = operands[0]
            if program == "chmod" and not _readable(mode):
                run.state.tree.forget(run.path(name))
            elif program == "chmod" and isinstance(node, File):
                run.state.tree.put(run.path(name), replace(node, runs=_executable(mode, before=node.runs)))
            return ""

        return _each(operands[1:], one)

    return rule


def _readable(mode: str) -> bool:
    """Whether the owner can surely still read what has this mode now."""
    return (
        mode[-3:-2] in ("4", "5", "6", "7")
        if mode.isdigit()
        else re.fullmatch(r"[ugoa]*\+[rwxX]+|[go]+-[rwx]+|[ugoa]*-[wx]+", mode) is not None
    )


def _executable(mode: str, *, before: bool) -> bool:
    if mode.isdigit():
        return mode[-3:-2] in ("5", "7")
    if "x" not in mode:
        return before
    return re.fullmatch(r"(?:[ugoa]*[ua][ugoa]*)?\+[rwx]*x[rwx]*", mode) is not None


def _copy(arguments: list[str], run: Run, *, move: bool) -> Outcome | None:
    options = read_options(
        arguments, "rRafpTn" if not move else "fTn", "", {"recursive": "r", "archive": "a", "force": "f"}
    )
    if options is None or len(options.operands) < 2 or options.flags & {"T", "n"}:
        return None
    *sources, target = options.operands
    program = "mv" if move else "cp"
    node = run.node(target.rstrip("/") or "/")
    if len(sources) > 1 and not isinstance(node, Directory | None):
        return None

    def one(name: str) -> str | None:
        source = run.node(name.rstrip("/") or "/")
        if isinstance(source, Absent):
            return f"{program}: cannot stat '{plain_name(name)}': {_MISSING}\n"
        if isinstance(source, Directory) and not move and not options.flags & set("rRa"):
            return f"cp: -r not specified; omitting directory '{plain_name(name)}'\n"
        inside = isinstance(node, Directory) or len(sources) > 1 or target.endswith("/")
        place = run.path(f"{target}/{name.rstrip('/').rpartition('/')[2]}" if inside else target)
        if isinstance(run.state.tree.get(parent(place)), Absent):
            return None
        _transfer(run, run.path(name), source, place, move=move, sure=node is not None)
        return ""

    return _each(sources, one)


def _transfer(run: Run, source: str, node: File | Directory | None, place: str, *, move: bool, sure: bool) -> None:
    tree = run.state.tree
    if source == place or place.startswith(source + "/"):
        raise UndeterminedError
    if isinstance(node, File):
        doubt = node.doubt if sure else node.doubt | Doubt.PLACE
        tree.put(place, replace(node, doubt=doubt))
        if move:
            tree.remove(source)
    elif isinstance(node, Directory) and move and isinstance(tree.get(place), Absent):
        tree.move(source, place)
    else:
        if sure:
            tree.put_unknown(place)
        else:
            tree.forget(place)
        if move:
            tree.remove(source)


def _gzip(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "kdn123456789f", "", {"keep": "k", "decompress": "d"})
    if options is None:
        return None
    if "d" in options.flags:
        return _gunzip([a for a in arguments if not a.startswith("-") or a in ("-k", "-f")], run)

    def one(name: str) -> str | None:
        node, target = run.node(name), name + ".gz"
        if isinstance(node, Absent):
            return f"gzip: {plain_name(name)}: {_MISSING}\n"
        if isinstance(node, Directory) or isinstance(run.node(target), File) or name.endswith(".gz"):
            return None
        if "k" not in options.flags:
            run.state.tree.remove(run.path(name))
        run.state.tree.put(run.path(target), File(packed=node if isinstance(node, File) else None))
        return ""

    return _each(options.operands, one)


def _gunzip(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "kf", "", {"keep": "k"})
    if options is None:
        return None

    def one(name: str) -> str | None:
        node = run.node(name)
        if not name.endswith(".gz"):
            if isinstance(node, Absent) and isinstance(run.node(name + ".gz"), Absent):
                return f"gzip: {plain_name(name)}.gz: {_MISSING}\n"
            return None
        if isinstance(node, Absent):
            return f"gzip: {plain_name(name)}: {_MISSING}\n"
        if isinstance(node, Directory) or isinstance(run.node(name[:-3]), File):
            return None
        if "k" not in options.flags:
            run.state.tree.remove(run.path(name))
        packed = node.packed if isinstance(node, File) else None
        run.state.tree.put(run.path(name[:-3]), packed or File())
        return ""

    return _each(options.operands, one)


_LS_LONG = {"all": "a", "almost-all": "A"}


def _ls(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "1aAC", "", _LS_LONG)
    if options is None or len(options.operands) > 1 or "C" in options.flags:
        return None
    name = options.operands[0] if options.operands else "."
    hidden = bool(options.flags & {"a", "A"})
    match run.node(name):
        case Absent():
            return failed(f"ls: cannot access '{plain_name(name)}': {_MISSING}\n", 2)
        case File():
            return printed(name + "\n")
        case Directory(names, complete) if names is not None and (complete or not hidden):
            shown = {entry for entry in names if hidden or not entry.startswith(".")}
            if "a" in options.flags:
                shown |= {".", ".."}
            return printed("".join(entry + "\n" for entry in listed(shown, run.habits.order)))
        case _:
            return None


FILE_PROGRAMS: dict[str, Program] = {
    "mkdir": _mkdir,
    "rmdir": _rmdir,
    "rm": _rm,
    "touch": _touch,
    "chmod": _chmod("chmod"),
    "chown": _chmod("chown"),
    "cp": lambda arguments, run: _copy(arguments, run, move=False),
    "mv": lambda arguments, run: _copy(arguments, run, move=True),
    "gzip": _gzip,
    "gunzip": _gunzip,
    "ls": _ls,
}
