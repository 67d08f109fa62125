"""`md5sum` and its like."""

from __future__ import annotations

import hashlib
import re

from obsspec.world.rules.options import read_options
from obsspec.world.rules.program import MISSING, Program, Run, lines_of, plain_name, result
from obsspec.world.rules.streams import Outcome


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
                errors += f"{kind}: {plain_name(name)}: {MISSING}\n"
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


CHECKSUM_PROGRAMS: dict[str, Program] = {
    kind: _sums(kind) for kind in ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum")
}
