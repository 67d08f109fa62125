"""Programs that take lines apart and put them side by side: `cut` and `paste`."""

from __future__ import annotations

import re

from obsspec.world.rules.options import read_options
from obsspec.world.rules.program import MISSING, Program, Run, UndeterminedError, ascii_only, lines_of, result
from obsspec.world.rules.streams import Outcome, printed


def _cut(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "s", "dfcb", {"delimiter": "d", "fields": "f", "characters": "c", "bytes": "b"})
    if options is None or len(options.values.keys() & set("fcb")) != 1:
        return None
    wanted = _ranges(options.value("f") or options.value("c") or options.value("b") or "")
    delimiter = options.value("d") or "\t"
    texts, errors = run.texts(options.operands, f"cut: {{}}: {MISSING}", ending=False)
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


COLUMN_PROGRAMS: dict[str, Program] = {"cut": _cut, "paste": _paste}
