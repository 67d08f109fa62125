"""Builtins of the shell that change it, and programs that say nothing when they succeed, whatever they do."""

from __future__ import annotations

import ast
import re

from obsspec.world.rules.program import Program, Run
from obsspec.world.rules.state import Absent, Directory, File
from obsspec.world.rules.streams import ASSUMED, SILENT, Outcome, failed, printed
from obsspec.world.shell.names import names
from obsspec.world.shell.paths import resolve

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")


def _cd(arguments: list[str], run: Run) -> Outcome | None:
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        return None
    if not arguments:
        home = run.state.variables.get("HOME")
        if home:
            run.state.cwd = home
        else:
            run.state.lose_directory()
        return ASSUMED
    target = arguments[0]
    key = resolve(target, run.state.cwd) if target else None
    match run.state.tree.get(key):
        case Absent() | File() as node:
            why = "Not a directory" if isinstance(node, File) else "No such file or directory"
            return run.complain(f"cd: {target}: {why}")
        case _:
            pass
    if key is None:
        run.state.lose_directory()
    else:
        if not isinstance(run.state.tree.get(key), Directory):
            run.state.tree.put(key, Directory())
        run.state.cwd = key
        if target.startswith("/"):
            run.state.place = SILENT.doubt
    return ASSUMED


def _pwd(arguments: list[str], run: Run) -> Outcome | None:
    if arguments or not run.state.cwd.startswith("/"):
        return None
    run.doubt |= run.state.place
    return printed(run.state.cwd + "\n")


def _export(arguments: list[str], run: Run) -> Outcome | None:
    """`export`, `declare` and the like, for plain values."""
    words = [a for a in arguments if not a.startswith("-")]
    if not words or any(a.startswith("-") and set(a[1:]) - set("xgr") for a in arguments):
        return None
    for word in words:
        name, sign, value = word.partition("=")
        if not _NAME.match(name):
            return None
        if sign:
            run.state.variables[name] = value
    return SILENT


def _unset(arguments: list[str], run: Run) -> Outcome | None:
    if not all(_NAME.match(argument) for argument in arguments):
        return None
    run.state.variables.update(dict.fromkeys(arguments, ""))
    return SILENT


def _alias(arguments: list[str], run: Run) -> Outcome | None:
    if not arguments or not all("=" in argument for argument in arguments):
        return None
    run.state.shadowed |= {argument.partition("=")[0] for argument in arguments}
    return SILENT


def _set(arguments: list[str], run: Run) -> Outcome | None:
    if not arguments or any(not a.startswith(("-", "+")) and a not in ("pipefail",) for a in arguments):
        return None
    if any("x" in a or "v" in a or "n" in a.replace("nounset", "") for a in arguments if a.startswith("-")):
        return None
    run.state.strict = True
    return SILENT


def _true(arguments: list[str], run: Run) -> Outcome | None:
    del arguments, run
    return SILENT


def _false(arguments: list[str], run: Run) -> Outcome | None:
    del arguments, run
    return Outcome(code=1)


def _sleep(arguments: list[str], run: Run) -> Outcome | None:
    del run
    return SILENT if arguments and all(re.fullmatch(r"\d+(\.\d+)?[smh]?", a) for a in arguments) else None


def _tar(arguments: list[str], run: Run) -> Outcome | None:
    """Archives made or unpacked without `-v`."""
    flags = arguments[0].lstrip("-") if arguments else ""
    if not re.fullmatch(r"[cxzjJfpC]+", flags) or any(a.startswith("--") for a in arguments) or "f" not in flags[-2:]:
        return None
    archive = arguments[1] if len(arguments) > 1 else ""
    if "x" in flags and isinstance(run.node(archive), Absent):
        text = f"tar: {archive}: Cannot open: No such file or directory\ntar: Error is not recoverable: exiting now\n"
        return failed(text, 2)
    members = [a for a in arguments[2:] if a != "-C"]
    if "c" in flags and (
        not members or any(m.startswith("/") or ".." in m or isinstance(run.node(m), Absent) for m in members)
    ):
        return None
    return ASSUMED


def _python(arguments: list[str], run: Run) -> Outcome | None:
    """`python3 -c` with code that prints nothing."""
    del run
    if len(arguments) < 2 or arguments[0] != "-c":
        return None
    try:
        tree = ast.parse(arguments[1])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    written = any(isinstance(node, ast.Call) and _opens_to_write(node) for node in ast.walk(tree))
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    named |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return ASSUMED if written and not named & _TALKING else None


_TALKING = names("print pprint stdout stderr system run call check_call Popen help warn warning info exit input main")


def _opens_to_write(node: ast.Call) -> bool:
    modes = [a.value for a in [*node.args[1:], *(k.value for k in node.keywords)] if isinstance(a, ast.Constant)]
    is_open = isinstance(node.func, ast.Name) and node.func.id == "open"
    return is_open and any(isinstance(mode, str) and mode[:1] in ("w", "a", "x") for mode in modes)


def _sqlite(arguments: list[str], run: Run) -> Outcome | None:
    """`sqlite3 DATABASE STATEMENTS` where no statement has a result."""
    del run
    words = [a for a in arguments if not a.startswith("-")]
    if len(words) != 2 or len(words) != len(arguments):
        return None
    text = re.sub(r"'[^']*'", "''", words[1])
    statements = [part.strip().lower() for part in text.split(";") if part.strip()]
    quiet = all(re.match(r"(?:create|insert|update|delete|drop|alter|begin|commit)\b", part) for part in statements)
    return ASSUMED if statements and quiet and "returning" not in text.lower() else None


_GIT_SILENT = names("add rm config")


def _git(arguments: list[str], run: Run) -> Outcome | None:
    del run
    quiet = "-q" in arguments or "--quiet" in arguments
    verb = arguments[0] if arguments else ""
    if verb == "config":
        return ASSUMED if len([a for a in arguments if not a.startswith("-")]) == 3 else None
    if verb == "add":
        return ASSUMED if not any(a in ("-v", "-n", "-i", "-p") for a in arguments) else None
    return ASSUMED if quiet and verb in ("init", "commit", "checkout", "clone", "reset") else None


def _silent(arguments: list[str], run: Run) -> Outcome | None:
    if not arguments or any(a in ("-v", "-i", "--verbose", "--help", "--version") for a in arguments):
        return None
    missing = [a for a in arguments if not a.startswith("-") and isinstance(run.node(a), Absent)]
    return ASSUMED if len(missing) <= 1 else None


def _sed_in_place(arguments: list[str], run: Run) -> Outcome | None:
    in_place = any(argument == "-i" or argument.startswith("-i.") for argument in arguments)
    if not in_place or any(argument in ("-n", "-ni", "-in", "--quiet") for argument in arguments):
        return None
    if isinstance(run.node(arguments[-1]), Absent):
        return failed(f"sed: can't read {arguments[-1]}: No such file or directory\n", 2)
    return ASSUMED


BUILTINS: dict[str, Program] = {
    "cd": _cd,
    "pwd": _pwd,
    "export": _export,
    "declare": _export,
    "readonly": _export,
    "unset": _unset,
    "alias": _alias,
    "set": _set,
    "true": _true,
    ":": _true,
    "false": _false,
    "sleep": _sleep,
}
# What these leave behind is not worked out: it is forgotten by their effects.
OPAQUE: dict[str, Program] = {
    "tar": _tar,
    "python": _python,
    "python3": _python,
    "sqlite3": _sqlite,
    "git": _git,
    "sed": _sed_in_place,
    **dict.fromkeys(
        ("ln", "install", "truncate", "split", "mkfifo", "bzip2", "bunzip2", "xz", "unxz", "chgrp"), _silent
    ),
}
