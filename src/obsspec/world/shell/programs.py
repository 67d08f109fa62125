"""What known programs touch, from their arguments: paths read, paths written, and whether time or chance shows."""

from __future__ import annotations

from obsspec.world.shell import file_programs
from obsspec.world.shell.names import names
from obsspec.world.shell.touches import ANYTHING, NOTHING, Rule, Touch, constant, operands, reads, writes


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


_PURE = constant(NOTHING)
_VOLATILE = constant(Touch(volatile=True))
_READS_SHELL = constant(Touch(reads_shell=True))
_CHANGES_SHELL = constant(Touch(changes_shell=True, reads_shell=True))
_NETWORK = constant(Touch(None, None, volatile=True))


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
        reads("w"),
    )
    add(
        "stat readlink realpath namei getfacl lsattr test [ [[ diff cmp comm join paste sdiff iconv base64 base32",
        reads("t12do"),
    )
    add("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum", file_programs.hash_like)
    add("head tail cut od xxd hexdump pr look tsort colrm ptx", reads("ncdfbjtNAs"))
    add("jq yq", reads(skip=1))
    add("ls dir vdir tree", reads("IwL", here=True))
    add("du", constant(Touch(None)))
    add("find", _find)
    add("grep egrep fgrep zgrep", file_programs.grep)
    add("rg ag ack", constant(Touch(None)))
    add("sed", file_programs.sed)
    add("awk gawk mawk nawk", file_programs.awk)
    add("sort", file_programs.sort)
    add("uniq", lambda arguments: Touch(tuple(operands(arguments, "fsw")[:1]), tuple(operands(arguments, "fsw")[1:2])))
    add("mkdir rmdir touch rm mv ln truncate tee mkfifo install rename unlink link shred", writes("mst"))
    add("cp", file_programs.copy)
    add("chmod chown chgrp chattr setfacl", writes(skip=1))
    add("tar", file_programs.tar)
    add("gzip gunzip", file_programs.compress(".gz"))
    add("bzip2 bunzip2", file_programs.compress(".bz2"))
    add("xz unxz", file_programs.compress(".xz"))
    add("unzip", file_programs.unzip)
    add(
        "zip",
        lambda arguments: Touch(
            tuple(operands(arguments)),
            tuple(operands(arguments)[:1]) + tuple(f + ".zip" for f in operands(arguments)[:1]),
        ),
    )
    add("git", file_programs.git)
    add("xargs", _xargs)
    add("sudo nice nohup stdbuf time command builtin env", _wrapper("ungCSoe"))
    add("timeout", _wrapper("ks", skip=1))
    add(
        "date cal uptime w who last ps top htop pgrep pidof free df vmstat iostat mpstat lsof uuidgen nstat dmesg",
        _VOLATILE,
    )
    add("shuf netstat ss ifconfig ip arp mount lscpu lsblk journalctl", constant(Touch(None, (), volatile=True)))
    add("mktemp", constant(Touch((), None, volatile=True)))
    add("curl wget ping ssh scp rsync dig host nslookup nc telnet apt apt-get pip pip3 npm yarn docker", _NETWORK)
    return table


_PROGRAMS = _table()


def touched(words: list[str]) -> Touch:
    """What the command of these words touches; anything if the program is not known."""
    rule = _PROGRAMS.get(words[0].rpartition("/")[2])
    return ANYTHING if rule is None else rule(words[1:])
