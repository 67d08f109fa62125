"""Programs that know all they need from their arguments: `echo`, `printf`, `seq`, `basename`, and tests."""

from __future__ import annotations

import re

from obsspec.world.rules.options import read_options
from obsspec.world.rules.program import Program, Run, UndeterminedError
from obsspec.world.rules.state import Absent, Directory, File
from obsspec.world.rules.streams import Outcome, printed

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "\\": "\\"}


def _echo(arguments: list[str], run: Run) -> Outcome | None:
    del run
    newline, escapes = True, False
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        newline = newline and "n" not in arguments[0]
        escapes = (escapes or "e" in arguments[0]) and "E" not in arguments[0]
        arguments = arguments[1:]
    text = " ".join(arguments)
    if escapes:
        text = _unescaped(text, octal_zero=True)
    return printed(text + "\n" * newline)


def _unescaped(text: str, *, octal_zero: bool = False) -> str:
    def one(found: re.Match[str]) -> str:
        if found[1] in _ESCAPES:
            return _ESCAPES[found[1]]
        if found[1] in "0123456789xucE" or (not octal_zero and found[1] in "\"'"):
            raise UndeterminedError
        return found[0]

    if text.endswith("\\") and not text.endswith("\\\\"):
        raise UndeterminedError
    return re.sub(r"\\(.)", one, text, flags=re.DOTALL)


_DIRECTIVE = re.compile(r"%(?:(%)|([-0 +#]*)(\d*)(?:\.(\d+))?([sdic]))|%")


def _printf(arguments: list[str], run: Run) -> Outcome | None:
    del run
    if arguments and arguments[0] == "--":
        arguments = arguments[1:]
    if not arguments or arguments[0].startswith("-"):
        return None
    pattern, values = _unescaped(arguments[0].replace('\\"', '"')), list(arguments[1:])
    if not all(value.isascii() for value in values) and re.search(r"%[-0-9.]+s", pattern):
        return None  # widths count bytes
    takes = sum(1 for found in _DIRECTIVE.finditer(pattern) if found[5])
    out = _formatted(pattern, values)
    while values:
        if not takes or len(out) > 100_000:
            return None if takes else printed(out)
        out += _formatted(pattern, values)
    return printed(out)


def _formatted(pattern: str, values: list[str]) -> str:
    """One pass over the pattern, which uses up values."""

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return "%"
        if not found[5]:
            raise UndeterminedError
        value = values.pop(0) if values else None
        return _directive(found, value)

    return _DIRECTIVE.sub(one, pattern)


def _directive(found: re.Match[str], value: str | None) -> str:
    flags, width, precision, kind = found[2], found[3], found[4], found[5]
    shape = f"%{flags}{width}" + (f".{precision}" if precision else "")
    if kind in "di":
        if value is not None and not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", value):
            raise UndeterminedError
        return f"{shape}d" % int(value or "0")
    if set(flags) - {"-"}:
        raise UndeterminedError
    text = value or ""
    return f"{shape}s" % (text[:1] if kind == "c" else text)


def _bracket(arguments: list[str], run: Run) -> Outcome | None:
    return _test(arguments[:-1], run) if arguments and arguments[-1] == "]" else None


def _test(arguments: list[str], run: Run) -> Outcome | None:
    value = test(arguments, run)
    return None if value is None else Outcome(code=int(not value))


def test(words: list[str], run: Run) -> bool | None:
    """The value of a test of one, two or three words, with any number of `!` before them."""
    if words[:1] == ["!"] and len(words) > 1:
        value = test(words[1:], run)
        return None if value is None else not value
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2:
        return _unary(words[0], words[1], run)
    return _binary(words[0], words[1], words[2]) if len(words) == 3 else None


def _unary(operator: str, word: str, run: Run) -> bool | None:
    if operator in ("-z", "-n"):
        return bool(word) == (operator == "-n")
    if operator not in ("-e", "-f", "-d", "-s") or not word:
        return None
    match run.node(word):
        case Absent():
            return False
        case Directory():
            return {"-e": True, "-d": True, "-f": False}.get(operator)
        case File(text, exact):
            return (
                (bool(text) or None if text is None or not exact else bool(text))
                if operator == "-s"
                else operator != "-d"
            )
        case None:
            return None


def _binary(left: str, operator: str, right: str) -> bool | None:
    if operator in ("=", "=="):
        return left == right
    if operator == "!=":
        return left != right
    if not (re.fullmatch(r"-?\d{1,15}", left) and re.fullmatch(r"-?\d{1,15}", right)):
        return None
    a, b = int(left), int(right)
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}.get(operator)


def _seq(arguments: list[str], run: Run) -> Outcome | None:
    del run
    options = read_options(arguments, "", "s")
    numbers = [int(operand) for operand in options.operands if re.fullmatch(r"\d{1,6}", operand)] if options else []
    if options is None or len(numbers) != len(options.operands) or not 1 <= len(numbers) <= 3:
        return None
    first, last = numbers[0] if len(numbers) > 1 else 1, numbers[-1]
    step = numbers[1] if len(numbers) == 3 else 1
    if not step or (last - first) // step > 10_000:
        return None
    values = [str(value) for value in range(first, last + 1, step)]
    return printed((options.value("s") or "\n").join(values) + "\n" if values else "")


def _basename(arguments: list[str], run: Run) -> Outcome | None:
    del run
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-") or not arguments[0].strip("/"):
        return None
    name = arguments[0].rstrip("/").rpartition("/")[2]
    suffix = arguments[1] if len(arguments) == 2 else ""
    return printed((name.removesuffix(suffix) if name != suffix else name) + "\n")


def _dirname(arguments: list[str], run: Run) -> Outcome | None:
    del run
    if len(arguments) != 1 or arguments[0].startswith("-") or not arguments[0].strip("/"):
        return None
    head, slash, _ = arguments[0].rstrip("/").rpartition("/")
    return printed((head.rstrip("/") or "/" if slash else ".") + "\n")


PRINTING: dict[str, Program] = {
    "echo": _echo,
    "printf": _printf,
    "seq": _seq,
    "basename": _basename,
    "dirname": _dirname,
    "[": _bracket,
    "test": _test,
}
