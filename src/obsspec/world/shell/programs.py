"""What known programs touch, from their arguments: paths read, paths written, and whether time or chance shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from obsspec.world.shell.names import names


@dataclass(frozen=True, slots=True)
class Touch:
    """Paths as the program was given them, "." for its directory. None: anything."""

    reads: tuple[str, ...] | None = ()
    writes: tuple[str, ...] | None = ()
    volatile: bool = False
    changes_shell: bool = False
    reads_shell: bool = False


ANYTHING = Touch(None, None)
NOTHING = Touch()
Rule = Callable[[list[str]], Touch]


def operands(arguments: list[str], with_value: str = "") -> list[str]:
    """The arguments that are no options. `with_value`: letters of short options whose value may be the next one."""
    found: list[str] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument == "--":
            return found + arguments[at + 1 :]
        if argument.startswith("-") and argument != "-":
            if not argument.startswith("--") and argument[-1] in with_value and not argument[1:-1].isdigit():
                at += 1
        else:
            found.append(argument)
        at += 1
    return found


def has_flag(arguments: list[str], letters: str, *names: str) -> bool:
    """Whether a short option of these letters, or one of the long `names`, is given."""
    return any(
        (argument.startswith("-") and not argument.startswith("--") and any(c in argument[1:] for c in letters))
        or argument.partition("=")[0] in names
        for argument in arguments
    )


def _reads(with_value: str = "", *, here: bool = False, skip: int = 0) -> Rule:
    """Reads all operands after the first `skip`; its directory if it has none and `here` is set."""

    def rule(arguments: list[str]) -> Touch:
        found = [path for path in operands(arguments, with_value)[skip:] if path != "-"]
        return Touch(reads=tuple(found or ["."] if here else found))

    return rule


def _writes(with_value: str = "", skip: int = 0) -> Rule:
    def rule(arguments: list[str]) -> Touch:
        found = tuple(operands(arguments, with_value)[skip:])
        return Touch(reads=found, writes=found)

    return rule


def _constant(touch: Touch) -> Rule:
    return lambda _: touch


def _grep(arguments: list[str]) -> Touch:
    given = has_flag(arguments, "ef", "--regexp", "--file")
    found = operands(arguments, "efmABCd")[0 if given else 1 :]
    recursive = has_flag(arguments, "rR", "--recursive")
    return Touch(reads=tuple(found or (["."] if recursive else [])))


def _find(arguments: list[str]) -> Touch:
    start = next((i for i, a in enumerate(arguments) if a.startswith("-") or a in ("(", "!")), len(arguments))
    paths = tuple(arguments[:start]) or (".",)
    actions = {argument for argument in arguments if argument.startswith("-")}
    if actions & _EXECUTING:
        found = [touched(command) for command in _executed(arguments, paths)]
        volatile = any(touch.volatile for touch in found)
        reads = None if any(touch.reads is None for touch in found) else paths
        writes = [touch.writes for touch in found] + [paths if "-delete" in actions else ()]
        known = [path for one in writes if one is not None for path in one]
        return Touch(reads, None if None in writes else tuple(known), volatile)
    if actions & {"-fprint", "-fprintf", "-fls"}:
        return Touch(paths, None)
    volatile = bool(actions & {"-mmin", "-amin", "-cmin", "-mtime", "-atime", "-ctime", "-newermt"})
    return Touch(paths, paths if "-delete" in actions else (), volatile)


_EXECUTING = {"-exec", "-execdir", "-ok", "-okdir"}


def _executed(arguments: list[str], paths: tuple[str, ...]) -> list[list[str]]:
    """The commands of `-exec`, with the start directories in the place of `{}`."""
    found: list[list[str]] = []
    at = 0
    while at < len(arguments):
        if arguments[at] in _EXECUTING:
            end = next((i for i in range(at + 1, len(arguments)) if arguments[i] in (";", "+")), len(arguments))
            inner = arguments[at + 1 : end]
            found.append([one for word in inner for one in (paths if word == "{}" else (word,))] or ["{}"])
            at = end
        at += 1
    return found


_CHANGING = names("rm mv cp chmod chown chgrp touch ln truncate gzip gunzip rmdir mkdir tar dd sed")


def _sed(arguments: list[str]) -> Touch:
    given = has_flag(arguments, "e", "--expression")
    script = " ".join(arguments)
    files = tuple(operands(arguments, "ef")[0 if given else 1 :])
    in_place = any(
        a.startswith(("-i", "--in-place")) or (a[:1] == "-" and a[:2] != "--" and a[-1:] == "i") for a in arguments
    )
    if has_flag(arguments, "f", "--file") or (any(mark in script for mark in ("w ", "/e", " e")) and not in_place):
        return Touch(None, None) if has_flag(arguments, "f", "--file") else Touch(files, None)
    return Touch(files, files if in_place else ())


def _awk(arguments: list[str]) -> Touch:
    program = operands(arguments, "Fvf")
    if has_flag(arguments, "f", "--file"):
        return ANYTHING
    code = program[0] if program else ""
    unsafe = "system" in code or "getline" in code or "|" in code.replace("||", "") or ("print" in code and ">" in code)
    files = tuple(path for path in program[1:] if "=" not in path)
    return Touch(None, None) if unsafe else Touch(files, (), "rand()" in code or "systime" in code)


def _sort(arguments: list[str]) -> Touch:
    files = tuple(operands(arguments, "kotTS"))
    out = tuple(arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-o")
    out += tuple(a[2:] for a in arguments if a.startswith("-o") and len(a) > 2)
    return Touch(files, out, has_flag(arguments, "R", "--random-sort"))


def _tar(arguments: list[str]) -> Touch:
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


def _compress(suffix: str) -> Rule:
    def rule(arguments: list[str]) -> Touch:
        files = operands(arguments, "S")
        if has_flag(arguments, "clt", "--stdout", "--list", "--test"):
            return Touch(tuple(files))
        both = tuple(p for f in files for p in (f, f + suffix, f.removesuffix(suffix)))
        return Touch(both, both) if not has_flag(arguments, "r") else ANYTHING

    return rule


def _copy(arguments: list[str]) -> Touch:
    given = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-t"), None)
    files = operands(arguments, "tS")
    if given is not None:
        return Touch(tuple(files), (given,))
    return Touch(tuple(files), tuple(files[-1:]))


def _unzip(arguments: list[str]) -> Touch:
    files = operands(arguments, "d")
    folder = next((arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "-d"), ".")
    return Touch(tuple(files[:1]), () if has_flag(arguments, "lptvZ") else (folder,))


_GIT_READ = names("status log diff show ls-files rev-parse blame describe shortlog reflog cat-file grep")


def _git(arguments: list[str]) -> Touch:
    words = operands(arguments, "Cc")
    verb = words[0] if words else ""
    if verb in _GIT_READ and not any(a.startswith("--output") for a in arguments):
        return Touch(reads=None, reads_shell=True)
    if verb in ("branch", "remote", "tag", "stash") and len(words) == 1 and verb != "stash":
        return Touch(reads=None)
    return Touch(None, None, volatile=verb in ("clone", "fetch", "pull", "push", "commit", "gc"))


def _xargs(arguments: list[str]) -> Touch:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in ("-n", "-I", "-P", "-d", "-L", "-s", "-a") else 1
    touch = touched(arguments[at:]) if at < len(arguments) else NOTHING
    program = arguments[at] if at < len(arguments) else "echo"
    if program in ("echo", "printf", "basename", "dirname"):
        return NOTHING
    return Touch(None, None if touch.writes is None or program in _CHANGING or touch.writes else (), touch.volatile)


def _wrapper(with_value: str, skip: int = 0) -> Rule:
    """`sudo`, `time`, `timeout 5`, `nice`, `env A=b`: what they run."""

    def rule(arguments: list[str]) -> Touch:
        at = 0
        while at < len(arguments) and (arguments[at].startswith("-") or "=" in arguments[at].partition("/")[0]):
            at += 2 if arguments[at][-1] in with_value and arguments[at].startswith("-") else 1
        inner = arguments[at + skip :]
        return touched(inner) if inner else Touch(reads_shell=True)

    return rule


def _set(arguments: list[str]) -> Touch:
    return Touch(changes_shell=True) if arguments else Touch(reads_shell=True)


def _hash_like(arguments: list[str]) -> Touch:
    return (
        Touch(tuple(path for path in operands(arguments) if path != "-"))
        if not has_flag(arguments, "c", "--check")
        else Touch(None)
    )


_PURE = _constant(NOTHING)
_VOLATILE = _constant(Touch(volatile=True))
_READS_SHELL = _constant(Touch(reads_shell=True))
_CHANGES_SHELL = _constant(Touch(changes_shell=True, reads_shell=True))
_NETWORK = _constant(Touch(None, None, volatile=True))


def _table() -> dict[str, Rule]:
    table: dict[str, Rule] = {}

    def add(names: str, rule: Rule) -> None:
        table.update(dict.fromkeys(names.split(), rule))

    add(
        "echo printf true false : basename dirname seq expr sleep yes factor tput getconf arch nproc uname hostname",
        _PURE,
    )
    add(
        "id whoami groups logname tty locale numfmt which whereis man info help break continue exit return bc dc tr",
        _PURE,
    )
    add("pwd env printenv jobs dirs history times type hash", _READS_SHELL)
    add(
        "cd pushd popd unset shopt umask ulimit trap readonly local declare typeset export alias unalias",
        _CHANGES_SHELL,
    )
    add("read mapfile readarray let getopts shift wait enable bind", _CHANGES_SHELL)
    add("set", _set)
    add(
        "cat tac nl rev strings file wc uniq_ fold fmt expand unexpand zcat bzcat xzcat zless less more column",
        _reads("w"),
    )
    add(
        "stat readlink realpath namei getfacl lsattr test [ [[ diff cmp comm join paste sdiff iconv base64 base32",
        _reads("t12do"),
    )
    add("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum", _hash_like)
    add("head tail cut od xxd hexdump pr look tsort colrm ptx", _reads("ncdfbjtNAs"))
    add("jq yq", _reads(skip=1))
    add("ls dir vdir tree", _reads("IwL", here=True))
    add("du", _constant(Touch(None)))
    add("find", _find)
    add("grep egrep fgrep zgrep", _grep)
    add("rg ag ack", _constant(Touch(None)))
    add("sed", _sed)
    add("awk gawk mawk nawk", _awk)
    add("sort", _sort)
    add("uniq", lambda arguments: Touch(tuple(operands(arguments, "fsw")[:1]), tuple(operands(arguments, "fsw")[1:2])))
    add("mkdir rmdir touch rm mv ln truncate tee mkfifo install rename unlink link shred", _writes("mst"))
    add("cp", _copy)
    add("chmod chown chgrp chattr setfacl", _writes(skip=1))
    add("tar", _tar)
    add("gzip gunzip", _compress(".gz"))
    add("bzip2 bunzip2", _compress(".bz2"))
    add("xz unxz", _compress(".xz"))
    add("unzip", _unzip)
    add(
        "zip",
        lambda arguments: Touch(
            tuple(operands(arguments)),
            tuple(operands(arguments)[:1]) + tuple(f + ".zip" for f in operands(arguments)[:1]),
        ),
    )
    add("git", _git)
    add("xargs", _xargs)
    add("sudo nice nohup stdbuf time command builtin env", _wrapper("ungCSoe"))
    add("timeout", _wrapper("ks", skip=1))
    add(
        "date cal uptime w who last ps top htop pgrep pidof free df vmstat iostat mpstat lsof uuidgen nstat dmesg",
        _VOLATILE,
    )
    add("shuf netstat ss ifconfig ip arp mount lscpu lsblk journalctl", _constant(Touch(None, (), volatile=True)))
    add("mktemp", _constant(Touch((), None, volatile=True)))
    add("curl wget ping ssh scp rsync dig host nslookup nc telnet apt apt-get pip pip3 npm yarn docker", _NETWORK)
    return table


_PROGRAMS = _table()


def known(program: str) -> bool:
    return program.rpartition("/")[2] in _PROGRAMS


def touched(words: list[str]) -> Touch:
    """What the command of these words touches; anything if the program is not known."""
    rule = _PROGRAMS.get(words[0].rpartition("/")[2])
    return ANYTHING if rule is None else rule(words[1:])
