"""What programs touch that work on the files they are given: each from its own arguments."""

from __future__ import annotations

from obsspec.world.shell.names import names
from obsspec.world.shell.touches import ANYTHING, Rule, Touch, has_flag, operands


def grep(arguments: list[str]) -> Touch:
    given = has_flag(arguments, "ef", "--regexp", "--file")
    found = operands(arguments, "efmABCd")[0 if given else 1 :]
    recursive = has_flag(arguments, "rR", "--recursive")
    return Touch(reads=tuple(found or (["."] if recursive else [])))


def sed(arguments: list[str]) -> Touch:
    given = has_flag(arguments, "e", "--expression")
    script = " ".join(arguments)
    files = tuple(operands(arguments, "ef")[0 if given else 1 :])
    in_place = any(
        a.startswith(("-i", "--in-place")) or (a[:1] == "-" and a[:2] != "--" and a[-1:] == "i") for a in arguments
    )
    if has_flag(arguments, "f", "--file") or (any(mark in script for mark in ("w ", "/e", " e")) and not in_place):
        return Touch(None, None) if has_flag(arguments, "f", "--file") else Touch(files, None)
    return Touch(files, files if in_place else ())


def awk(arguments: list[str]) -> Touch:
    program = operands(arguments, "Fvf")
    if has_flag(arguments, "f", "--file"):
        return ANYTHING
    code = program[0] if program else ""
    unsafe = "system" in code or "getline" in code or "|" in code.replace("||", "") or ("print" in code and ">" in code)
    files = tuple(path for path in program[1:] if "=" not in path)
    return Touch(None, None) if unsafe else Touch(files, (), "rand()" in code or "systime" in code)


def sort(arguments: list[str]) -> Touch:
    files = tuple(operands(arguments, "kotTS"))
    out = tuple(arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-o")
    out += tuple(a[2:] for a in arguments if a.startswith("-o") and len(a) > 2)
    return Touch(files, out, has_flag(arguments, "R", "--random-sort"))


def tar(arguments: list[str]) -> Touch:
    flags = arguments[0].lstrip("-") if arguments and not arguments[0].startswith("--") else ""
    names = [a for a in arguments if a.startswith("--")]
    archive = next(
        (
            arguments[i + 1]
            for i, a in enumerate(arguments[:-1])
            if not a.startswith("--") and a.endswith("f") and (i == 0 or a[0] == "-")
        ),
        "",
    )
    folder = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a in ("-C", "--directory")), ".")
    files = tuple(a for a in operands(arguments[1:], "fC") if a != archive)
    if not archive or any(n.startswith(("--to", "--use", "--checkpoint", "--remove")) for n in names):
        return ANYTHING
    if "x" in flags or "--extract" in names:
        return Touch((archive,), (folder,))
    if "t" in flags or "--list" in names:
        return Touch((archive,))
    base = [f"{folder}/{path}" if folder != "." and not path.startswith("/") else path for path in files]
    return Touch((*base, archive), (archive,))


def compress(suffix: str) -> Rule:
    def rule(arguments: list[str]) -> Touch:
        files = operands(arguments, "S")
        if has_flag(arguments, "clt", "--stdout", "--list", "--test"):
            return Touch(tuple(files))
        both = tuple(p for f in files for p in (f, f + suffix, f.removesuffix(suffix)))
        return Touch(both, both) if not has_flag(arguments, "r") else ANYTHING

    return rule


def copy(arguments: list[str]) -> Touch:
    given = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-t"), None)
    files = operands(arguments, "tS")
    if given is not None:
        return Touch(tuple(files), (given,))
    return Touch(tuple(files), tuple(files[-1:]))


def unzip(arguments: list[str]) -> Touch:
    files = operands(arguments, "d")
    folder = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-d"), ".")
    return Touch(tuple(files[:1]), () if has_flag(arguments, "lptvZ") else (folder,))


_GIT_READ = names("status log diff show ls-files rev-parse blame describe shortlog reflog cat-file grep")


def git(arguments: list[str]) -> Touch:
    words = operands(arguments, "Cc")
    verb = words[0] if words else ""
    if verb in _GIT_READ and not any(a.startswith("--output") for a in arguments):
        return Touch(reads=None, reads_shell=True)
    if verb in ("branch", "remote", "tag", "stash") and len(words) == 1 and verb != "stash":
        return Touch(reads=None)
    return Touch(None, None, volatile=verb in ("clone", "fetch", "pull", "push", "commit", "gc"))


def hash_like(arguments: list[str]) -> Touch:
    return (
        Touch(tuple(path for path in operands(arguments) if path != "-"))
        if not has_flag(arguments, "c", "--check")
        else Touch(None)
    )
