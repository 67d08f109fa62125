"""Programs that print text made of files or input: `cat`, `head`, `wc`, `tac` and their like."""

from __future__ import annotations

import re

from obsspec.world.rules.options import read_options
from obsspec.world.rules.program import (
    MISSING,
    Program,
    Run,
    UndeterminedError,
    ascii_only,
    lines_of,
    plain_name,
    result,
)
from obsspec.world.rules.state import Absent, File
from obsspec.world.rules.streams import Outcome, Piece, failed, printed


def _cat(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "nu")
    if options is None:
        return None
    names = options.operands or ["-"]
    pieces: list[Piece] = []
    code, number = 0, 1
    for position, name in enumerate(names):
        text = run.text(name, ending=not (run.last and position == len(names) - 1))
        if text is None:
            pieces.append(Piece(f"cat: {plain_name(name)}: {MISSING}\n", error=True))
            code = 1
            continue
        if "n" in options.flags:
            if text and not text.endswith("\n") and position < len(names) - 1:
                return None
            lines = text.splitlines(keepends=True) if "\r" not in text else None
            if lines is None:
                return None
            text = "".join(f"{number + i:6d}\t{line}" for i, line in enumerate(lines))
            number += len(lines)
        pieces += [Piece(text)] if text else []
    return Outcome(tuple(pieces), code)


def _ends(arguments: list[str], run: Run, *, head: bool) -> Outcome | None:
    """`head` and `tail`."""
    short = [f"-n{a[1:]}" if re.fullmatch(r"-\d+", a) else a for a in arguments]
    options = read_options(short, "q", "nc", {"lines": "n", "bytes": "c", "quiet": "q"})
    if options is None or len(options.values) > 1:
        return None
    name = "head" if head else "tail"
    unit = "c" if "c" in options.values else "n"
    count = options.value(unit) or "10"
    if not re.fullmatch(r"[+-]?\d+", count):
        return None
    if not head and int(count) == 0:
        return None  # it does not even look
    texts, errors = run.texts(options.operands, f"{name}: cannot open '{{}}' for reading: {MISSING}", ending=not head)
    if len(options.operands) > 1 and "q" not in options.flags:
        return None
    pick = _head if head else _tail
    if unit == "c":
        ascii_only(*texts)
        return result("".join("".join(pick(list(text), count)) for text in texts), errors)
    return result(
        "".join("".join(pick(text.splitlines(keepends=True) if _clean(text) else [], count)) for text in texts), errors
    )


def _clean(text: str) -> bool:
    """Whether Python's lines are the shell's. Raises `UndeterminedError` if not."""
    if len(text.splitlines()) != len(lines_of(text)):
        raise UndeterminedError
    return True


def _head(items: list[str], count: str) -> list[str]:
    number = int(count)
    return items[:number] if not count.startswith("-") else items[: max(0, len(items) + number)]


def _tail(items: list[str], count: str) -> list[str]:
    number = abs(int(count))
    if count.startswith("+"):
        return items[max(0, number - 1) :]
    return items[-number:] if number else []


def _wc(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "lwc", "", {"lines": "l", "words": "w", "bytes": "c"})
    if options is None:
        return None
    asked = [letter for letter in "lwc" if letter in options.flags] or list("lwc")
    named = [(name, run.text(name)) for name in options.operands] or [("", run.input())]
    errors = "".join(f"wc: {plain_name(name)}: {MISSING}\n" for name, text in named if text is None)
    rows = [(name, _counts(text, asked)) for name, text in named if text is not None]
    if len(named) > 1:
        rows.append(
            ("total", [sum(column) for column in zip(*(row for _, row in rows), strict=True)] or [0] * len(asked))
        )
    size = sum(len(text.encode()) for _, text in named if text is not None)
    width = len(str(size)) if options.operands else 7
    if (errors and len(named) > 1) or (not options.operands and len(asked) > 1 and run.stdin):
        return None
    width = 1 if len(asked) == 1 and len(named) == 1 else width
    lines = [" ".join(f"{n:{width}d}" for n in row) + (f" {name}" if name else "") + "\n" for name, row in rows]
    return result("".join(lines), errors)


def _counts(text: str, asked: list[str]) -> list[int]:
    if "w" in asked:
        ascii_only(text)
    counts = {"l": text.count("\n"), "w": len(re.findall(r"[^ \t\n\r\f\v]+", text)), "c": len(text.encode())}
    return [counts[letter] for letter in asked]


def _tac(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "")
    if options is None:
        return None
    texts, errors = run.texts(options.operands, f"tac: failed to open '{{}}' for reading: {MISSING}")
    if any(text and not text.endswith("\n") for text in texts):
        return None
    return result("".join("".join(line + "\n" for line in reversed(lines_of(text))) for text in texts), errors)


def _rev(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "")
    if options is None:
        return None
    texts, errors = run.texts(options.operands, f"rev: cannot open {{}}: {MISSING}")
    ascii_only(*texts)
    if any("\0" in text for text in texts):
        return None
    flipped = ["\n".join(line[::-1] for line in text.split("\n")) for text in texts]
    return result("".join(flipped), errors)


def _nl(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "", "b")
    if options is None or options.value("b") not in (None, "a", "t"):
        return None
    texts, errors = run.texts(options.operands, f"nl: {{}}: {MISSING}")
    lines = lines_of("".join(texts))
    if any(re.fullmatch(r"(?:\\:){1,3}", line) or not line for line in lines) or any(
        t and t[-1] != "\n" for t in texts
    ):
        return None
    return result("".join(f"{number:6d}\t{line}\n" for number, line in enumerate(lines, 1)), errors)


def _compare(arguments: list[str], run: Run) -> Outcome | None:
    """`cmp` and `diff` of equal files; how others differ is not worked out."""
    options = read_options(arguments, "qsu" if arguments else "")
    if options is None or len(options.operands) != 2 or "s" in options.flags:
        return None
    first, second = (run.text(name) for name in options.operands)
    return printed("") if first is not None and first == second else None


def _tee(arguments: list[str], run: Run) -> Outcome | None:
    del arguments
    return printed(run.input())


def _zcat(arguments: list[str], run: Run) -> Outcome | None:
    texts: list[str] = []
    for name in arguments:
        match run.node(name) if not name.startswith("-") else None:
            case File(packed=File(str() as text)):
                texts.append(text)
            case Absent():
                return failed(f"gzip: {plain_name(name)}{'' if name.endswith('.gz') else '.gz'}: {MISSING}\n")
            case _:
                return None
    return printed("".join(texts)) if texts else None


TEXT_PROGRAMS: dict[str, Program] = {
    "cat": _cat,
    "head": lambda arguments, run: _ends(arguments, run, head=True),
    "tail": lambda arguments, run: _ends(arguments, run, head=False),
    "wc": _wc,
    "tac": _tac,
    "rev": _rev,
    "nl": _nl,
    "diff": _compare,
    "cmp": _compare,
    "zcat": _zcat,
    "tee": _tee,
}
