"""Programs that print text made of files or input: `cat`, `head`, `wc`, `cut` and their like."""

from __future__ import annotations

import hashlib
import re

from obsspec.world.rules.options import read_options
from obsspec.world.rules.program import Program, Run, UndeterminedError, ascii_only, lines_of, plain_name
from obsspec.world.rules.state import Absent, File
from obsspec.world.rules.streams import Outcome, Piece, failed, printed

_MISSING = "No such file or directory"


def result(text: str, errors: str = "", code: int = 1) -> Outcome:
    """What a program printed; `code` is its exit code if there were errors."""
    pieces = [Piece(errors, error=True)] if errors else []
    return Outcome((Piece(text), *pieces) if text else tuple(pieces), code if errors else 0)


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
            pieces.append(Piece(f"cat: {plain_name(name)}: {_MISSING}\n", error=True))
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
    texts, errors = run.texts(options.operands, f"{name}: cannot open '{{}}' for reading: {_MISSING}", ending=not head)
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
    errors = "".join(f"wc: {plain_name(name)}: {_MISSING}\n" for name, text in named if text is None)
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
    texts, errors = run.texts(options.operands, f"tac: failed to open '{{}}' for reading: {_MISSING}")
    if any(text and not text.endswith("\n") for text in texts):
        return None
    return result("".join("".join(line + "\n" for line in reversed(lines_of(text))) for text in texts), errors)


def _rev(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "")
    if options is None:
        return None
    texts, errors = run.texts(options.operands, f"rev: cannot open {{}}: {_MISSING}")
    ascii_only(*texts)
    if any("\0" in text for text in texts):
        return None
    flipped = ["\n".join(line[::-1] for line in text.split("\n")) for text in texts]
    return result("".join(flipped), errors)


def _nl(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "", "b")
    if options is None or options.value("b") not in (None, "a", "t"):
        return None
    texts, errors = run.texts(options.operands, f"nl: {{}}: {_MISSING}")
    lines = lines_of("".join(texts))
    if any(re.fullmatch(r"(?:\\:){1,3}", line) or not line for line in lines) or any(
        t and t[-1] != "\n" for t in texts
    ):
        return None
    return result("".join(f"{number:6d}\t{line}\n" for number, line in enumerate(lines, 1)), errors)


def _cut(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "s", "dfcb", {"delimiter": "d", "fields": "f", "characters": "c", "bytes": "b"})
    if options is None or len(options.values.keys() & set("fcb")) != 1:
        return None
    wanted = _ranges(options.value("f") or options.value("c") or options.value("b") or "")
    delimiter = options.value("d") or "\t"
    texts, errors = run.texts(options.operands, f"cut: {{}}: {_MISSING}", ending=False)
    if "f" not in options.values:
        ascii_only(*texts)
    if len(delimiter) != 1 or not delimiter.isascii() or ("f" not in options.values and options.values.keys() & {"d"}):
        return None
    lines: list[str] = []
    for line in (line for text in texts for line in lines_of(text)):
        if "f" not in options.values:
            lines.append("".join(c for i, c in enumerate(line, 1) if _chosen(i, wanted)))
        elif delimiter in line:
            parts = line.split(delimiter)
            lines.append(delimiter.join(part for i, part in enumerate(parts, 1) if _chosen(i, wanted)))
        elif "s" not in options.flags:
            lines.append(line)
    return result("".join(line + "\n" for line in lines), errors)


def _ranges(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)|(\d*)-(\d*)", part)
        if match is None or part == "-" or part == "0":
            raise UndeterminedError
        low, high = (match[1], match[1]) if match[1] else (match[2] or "1", match[3] or str(1 << 30))
        found.append((int(low), int(high)))
    return found


def _chosen(index: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= index <= high for low, high in ranges)


def _paste(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "s", "d", {"serial": "s", "delimiters": "d"})
    if options is None:
        return None
    delimiter = options.value("d") if "d" in options.values else "\t"
    if delimiter is None or len(delimiter) != 1 or delimiter == "\\" or options.operands.count("-") > 1:
        return None
    texts = [run.text(name, ending=False) for name in options.operands or ["-"]]
    columns = [lines_of(text) for text in texts if text is not None]
    if len(columns) < len(texts):
        return None
    if "s" in options.flags:
        return printed("".join(delimiter.join(column) + "\n" for column in columns))
    height = max(len(column) for column in columns)
    rows = [delimiter.join(column[i] if i < len(column) else "" for column in columns) for i in range(height)]
    return printed("".join(row + "\n" for row in rows))


def _sums(kind: str) -> Program:
    """`md5sum` and its like."""

    def program(arguments: list[str], run: Run) -> Outcome | None:
        options = read_options(arguments, "c", "", {"check": "c"})
        if options is None:
            return None
        if "c" in options.flags:
            return _check(kind, options.operands, run)
        lines: list[str] = []
        errors = ""
        for name in options.operands or ["-"]:
            text = run.text(name)
            if text is None:
                errors += f"{kind}: {plain_name(name)}: {_MISSING}\n"
            elif "\\" in name:
                return None
            else:
                lines.append(f"{_digest(kind, text)}  {name}\n")
        return result("".join(lines), errors)

    return program


def _digest(kind: str, text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return hashlib.new(kind.removesuffix("sum"), data, usedforsecurity=False).hexdigest()


def _check(kind: str, names: list[str], run: Run) -> Outcome | None:
    if len(names) != 1 or (listed := run.text(names[0], ending=False)) is None:
        return None
    lines, bad = "", 0
    for line in lines_of(listed):
        found = re.fullmatch(r"([0-9a-f]{32,128}) [ *](.+)", line)
        text = run.text(found[2]) if found else None
        if found is None or text is None or found[2] == "-":
            return None
        good = _digest(kind, text) == found[1]
        bad += not good
        lines += f"{plain_name(found[2])}: {'OK' if good else 'FAILED'}\n"
    noun = "checksum" if bad == 1 else "checksums"
    errors = f"{kind}: WARNING: {bad} computed {noun} did NOT match\n" if bad else ""
    return result(lines, errors) if lines else None


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


def _zcat(arguments: list[str], run: Run) -> Outcome | None:
    texts: list[str] = []
    for name in arguments:
        match run.node(name) if not name.startswith("-") else None:
            case File(packed=File(str() as text)):
                texts.append(text)
            case Absent():
                return failed(f"gzip: {plain_name(name)}{'' if name.endswith('.gz') else '.gz'}: {_MISSING}\n")
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
    "cut": _cut,
    "paste": _paste,
    "diff": _compare,
    "cmp": _compare,
    "seq": _seq,
    "basename": _basename,
    "dirname": _dirname,
    "zcat": _zcat,
    "tee": _tee,
    **{kind: _sums(kind) for kind in ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum")},
}
