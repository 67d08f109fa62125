"""Programs that choose, order or change lines: `grep`, `sort`, `uniq`, `tr`, `sed`, `awk` in their common forms."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from obsspec.world.rules.options import Options, read_options
from obsspec.world.rules.order import Order, check
from obsspec.world.rules.pattern import compiled
from obsspec.world.rules.program import Program, Run, UndeterminedError, ascii_only, lines_of, plain_name
from obsspec.world.rules.sed import sed
from obsspec.world.rules.state import File
from obsspec.world.rules.streams import ASSUMED, Outcome, Piece, failed, printed

_MISSING = "No such file or directory"
_GREP_LONG = {
    "ignore-case": "i",
    "invert-match": "v",
    "count": "c",
    "line-number": "n",
    "only-matching": "o",
    "quiet": "q",
    "extended-regexp": "E",
    "fixed-strings": "F",
    "word-regexp": "w",
    "line-regexp": "x",
    "files-with-matches": "l",
    "no-filename": "h",
    "with-filename": "H",
    "regexp": "e",
}


def _grep(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "ivcnoqEFwxlhHs", "e", _GREP_LONG)
    if options is None:
        return None
    given = options.values.get("e")
    if len(given or []) > 1 or not (given or options.operands):
        return None
    pattern = given[0] if given else options.operands.pop(0)
    if "\n" in pattern or not pattern:
        return None
    named = [(name, run.text(name, ending=False)) for name in options.operands] or [("(standard input)", run.input())]
    match = _matcher(pattern, options)
    show_name = "H" in options.flags or (len(named) > 1 and "h" not in options.flags)
    pieces: list[Piece] = []
    hits = 0
    for name, text in named:
        if text is None:
            if "s" not in options.flags:
                pieces.append(Piece(f"grep: {plain_name(name)}: {_MISSING}\n", error=True))
            continue
        count, shown = _search(text, match, options, f"{name}:" if show_name else "", name)
        hits += count
        pieces += [Piece(shown)] if shown and "q" not in options.flags else []
    missing = any(text is None for _, text in named)
    if missing and "q" in options.flags:
        return None
    return Outcome(tuple(pieces), 2 if missing else int(not hits))


def _matcher(pattern: str, options: Options) -> Callable[[str], list[str]]:
    """From a line to what of it matches."""
    ignore = "i" in options.flags
    if "F" in options.flags:
        regex = re.compile(re.escape(pattern), re.IGNORECASE if ignore else 0)
        if not pattern.isascii():
            raise UndeterminedError
    else:
        regex = compiled(pattern, "E" in options.flags, ignore)
    if "o" in options.flags and "|" in pattern:
        raise UndeterminedError  # the longest alternative counts, which is not Python's rule
    if "w" in options.flags:
        if not re.fullmatch(r"\w+", pattern):
            raise UndeterminedError
        regex = re.compile(rf"(?<!\w){regex.pattern}(?!\w)", regex.flags)
    if "x" in options.flags:
        return lambda line: [line] if regex.fullmatch(line) else []
    return lambda line: [found[0] for found in regex.finditer(line)]


def _search(text: str, match: Callable[[str], list[str]], options: Options, prefix: str, name: str) -> tuple[int, str]:
    found: list[str] = []
    count = 0
    if (not text.isascii() and "i" in options.flags) or "\0" in text:
        raise UndeterminedError
    for number, line in enumerate(lines_of(text), 1):
        hits = match(line)
        if bool(hits) == ("v" in options.flags):
            continue
        count += 1
        label = prefix + (f"{number}:" if "n" in options.flags else "")
        if "o" in options.flags:
            found += [label + hit for hit in hits if hit and "v" not in options.flags]
        else:
            found.append(label + line)
    if "l" in options.flags:
        return count, f"{name}\n" if count else ""
    if "c" in options.flags:
        return count, f"{prefix}{count}\n"
    return count, "".join(line + "\n" for line in found)


def _sort(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "rnuf", "kt", {"reverse": "r", "numeric-sort": "n", "unique": "u", "key": "k"})
    if options is None or len(options.values.get("k", [])) > 1:
        return None
    names = options.operands
    texts = [run.text(name, ending=False) for name in names] or [run.input()]
    for name, text in zip(names, texts, strict=False):
        if text is None:
            return failed(f"sort: cannot read: {plain_name(name)}: {_MISSING}\n", 2)
    lines = [line for text in texts if text is not None for line in lines_of(text)]
    field = _sort_field(options)
    if field is None or "f" in options.flags:
        return None
    column, end, extra = field
    numeric, reverse = "n" in options.flags | extra, "r" in options.flags | extra
    if extra and "r" in extra and "r" not in options.flags and not numeric:
        return None
    keys = {line: _key(line, column, end, options.value("t"), numeric) for line in lines}
    ordered = _ordered(lines, keys, numeric, reverse, run.habits.order)
    if "u" in options.flags:
        if (numeric or column is not None) and len({keys[line] for line in lines}) != len(set(lines)):
            return None
        ordered = list(dict.fromkeys(ordered))
    return printed("".join(line + "\n" for line in ordered))


def _sort_field(options: Options) -> tuple[int | None, int | None, set[str]] | None:
    key = options.value("k")
    if key is None:
        return (None, None, set()) if "t" not in options.values else None
    found = re.fullmatch(r"(\d+)([nr]*)(?:,(\d+)([nr]*))?", key)
    separator = options.value("t")
    if found is None or (separator is not None and len(separator) != 1):
        return None
    extra = set((found[2] or "") + (found[4] or ""))
    if separator is None and "n" not in extra | options.flags:
        return None
    if "r" in extra and "r" in options.flags:
        return None
    return int(found[1]), int(found[3]) if found[3] else None, extra


def _key(line: str, column: int | None, end: int | None, separator: str | None, numeric: bool) -> str | float:
    if column is not None:
        parts = line.split(separator) if separator is not None else re.findall(r"[ \t]*[^ \t]+", line)
        line = (separator or "").join(parts[column - 1 : end])
    if not numeric:
        return line
    found = re.match(r"[ \t]*(-?\d*(?:\.\d+)?)", line)
    number = found[1] if found else ""
    return float(number) if number not in ("", "-", ".") else 0.0


def _ordered(
    lines: list[str], keys: dict[str, str | float], numeric: bool, reverse: bool, order: Order | None
) -> list[str]:
    """Sorted by key and then by the whole line. Raises `UndeterminedError` where the order is not sure."""
    ordered = sorted(lines, key=lambda line: (keys[line], line), reverse=reverse)  # pyright: ignore[reportUnknownLambdaType]
    for before, after in pairwise(ordered):
        low, high = (after, before) if reverse else (before, after)
        if keys[low] == keys[high]:
            check([low, high], order)
        elif not numeric:
            check([str(keys[low]), str(keys[high])], order)
    return ordered


def _uniq(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "cdui", "", {"count": "c", "repeated": "d", "unique": "u", "ignore-case": "i"})
    if options is None or len(options.operands) > 1 or "i" in options.flags:
        return None
    text = run.text(options.operands[0], ending=False) if options.operands else run.input()
    if text is None:
        return failed(f"uniq: {plain_name(options.operands[0])}: {_MISSING}\n")
    groups: list[tuple[str, int]] = []
    for line in lines_of(text):
        if groups and groups[-1][0] == line:
            groups[-1] = (line, groups[-1][1] + 1)
        else:
            groups.append((line, 1))
    kept = [g for g in groups if not ("d" in options.flags and g[1] == 1) and not ("u" in options.flags and g[1] > 1)]
    return printed("".join((f"{count:7d} " if "c" in options.flags else "") + line + "\n" for line, count in kept))


_TR_CLASSES = {
    "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "lower": "abcdefghijklmnopqrstuvwxyz",
    "digit": "0123456789",
    "space": "\t\n\v\f\r ",
    "blank": "\t ",
}
_TR_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def _tr(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "dsc", "", {"delete": "d", "squeeze-repeats": "s", "complement": "c"})
    if options is None or not 1 <= len(options.operands) <= 2:
        return None
    text, sets = run.input(), [_tr_set(operand) for operand in options.operands]
    ascii_only(text, *options.operands)
    first = set(map(chr, range(128))) - set(sets[0]) if "c" in options.flags else set(sets[0])
    if "d" in options.flags:
        return (
            printed("".join(c for c in text if c not in first)) if len(sets) == 1 and "s" not in options.flags else None
        )
    if len(sets) == 1:
        return printed(_squeezed(text, first)) if "s" in options.flags else None
    if "c" in options.flags or not sets[1]:
        return None
    target = sets[1] + sets[1][-1] * max(0, len(sets[0]) - len(sets[1]))
    text = text.translate({ord(a): b for a, b in reversed(list(zip(sets[0], target, strict=False)))})
    return printed(_squeezed(text, set(sets[1])) if "s" in options.flags else text)


def _tr_set(text: str) -> str:
    found = ""
    for part in re.finditer(r"\[:(\w+):\]|\\(.)|(.)-(.)|(.)", text, re.DOTALL):
        name, escape, low, high, single = part.groups()
        if name or escape:
            value = _TR_CLASSES.get(name) if name else _TR_ESCAPES.get(escape)
            if value is None:
                raise UndeterminedError
            found += value
        elif low:
            if low > high or "\\" in (low, high):
                raise UndeterminedError
            found += "".join(map(chr, range(ord(low), ord(high) + 1)))
        else:
            found += single
    if "[=" in text or re.search(r"\[.\*\d*\]", text) or not found:
        raise UndeterminedError
    return found


def _squeezed(text: str, characters: set[str]) -> str:
    return re.sub(r"(.)\1+", lambda m: m[1] if m[1] in characters else m[0], text, flags=re.DOTALL)


_AWK = re.compile(r"\s*\{\s*print\s+(\$\d+(?:\s*,\s*\$\d+)*)\s*;?\s*\}\s*")


def _awk(arguments: list[str], run: Run) -> Outcome | None:
    """`awk '{print $N, $M}'`."""
    options = read_options(arguments, "", "F")
    found = _AWK.fullmatch(options.operands[0]) if options is not None and options.operands else None
    if options is None or found is None or len(options.operands) > 2:
        return None
    separator = options.value("F")
    if separator is not None and (len(separator) != 1 or separator in " \\|"):
        return None
    text = run.text(options.operands[1], ending=False) if len(options.operands) == 2 else run.input()
    if text is None:
        return None
    wanted = [int(field.strip()[1:]) for field in found[1].split(",")]
    lines: list[str] = []
    for line in lines_of(text):
        parts = line.split(separator) if separator is not None else re.split(r"[ \t]+", line.strip(" \t"))
        parts = parts if line else []
        lines.append(" ".join(line if n == 0 else parts[n - 1] if n <= len(parts) else "" for n in wanted))
    return printed("".join(line + "\n" for line in lines))


def _sed(arguments: list[str], run: Run) -> Outcome | None:
    options = read_options(arguments, "nErsi", "e", {"quiet": "n", "regexp-extended": "E", "expression": "e"})
    if options is None or (arguments and any("i" in a[:-1] for a in arguments if a[:1] == "-" and a[:2] != "--")):
        return None  # what follows -i is a suffix
    scripts = options.values.get("e") or options.operands[:1]
    names = options.operands if "e" in options.values else options.operands[1:]
    if not scripts:
        return None
    if "i" in options.flags:
        return _edit("\n".join(scripts), names, options, run)
    texts, errors = run.texts(names, f"sed: can't read {{}}: {_MISSING}", ending=False)
    if len(texts) > 1:
        return None
    made = sed(
        "\n".join(scripts), "".join(texts), quiet="n" in options.flags, extended=bool(options.flags & {"E", "r"})
    )
    pieces = [Piece(errors, error=True)] if errors else []
    return Outcome((*pieces, Piece(made)) if made else tuple(pieces), 2 if errors else 0)


def _edit(script: str, names: list[str], options: Options, run: Run) -> Outcome | None:
    """`sed -i`."""
    for name in names:
        node = run.node(name)
        if not isinstance(node, File) or node.text is None or options.flags & {"s", "n"}:
            return None
        made = sed(script, node.text, quiet=False, extended=bool(options.flags & {"E", "r"}))
        run.state.tree.put(run.path(name), File(made, node.exact, doubt=node.doubt))
    return ASSUMED if names else None


LINE_PROGRAMS: dict[str, Program] = {
    "grep": _grep,
    "egrep": lambda arguments, run: _grep(["-E", *arguments], run),
    "fgrep": lambda arguments, run: _grep(["-F", *arguments], run),
    "sort": _sort,
    "uniq": _uniq,
    "tr": _tr,
    "awk": _awk,
    "sed": _sed,
}
