"""How far what is known of an image covers the files that a command looks at."""

from __future__ import annotations

import posixpath
import re
from enum import StrEnum

from obsspec.world.shadow.facts import Kind
from obsspec.world.shadow.image import Image, of_machine, parents
from obsspec.world.shadow.layout import USUAL
from obsspec.world.shell.effects import Effects
from obsspec.world.shell.names import names
from obsspec.world.shell.paths import resolve, within

_PATH = re.compile(r"(?<![\w.$}])/[\w.+-]+(?:/[\w.+-]+)*")
_RELATIVE = re.compile(r"(?<![\w./$}-])(?:\.{0,2}/)*(?:[\w+-]+/[\w.+-]*(?:/[\w.+-]+)*|[\w+-]+\.[a-z]\w{0,4})(?![\w(])")
_WORD = re.compile(r"[\w.+-]+")
_READERS = names(
    "grep egrep fgrep zgrep rg awk gawk mawk sed cat tac head tail wc cut sort uniq diff cmp comm join paste tr rev "
    "fold od xxd hexdump strings file md5sum sha1sum sha256sum sha512sum cksum tar gzip gunzip zcat zip unzip bash sh "
    "python python3 perl source jq sqlite3 tee nl less more column split iconv"
)
_EACH = re.compile(r"-exec|xargs|\s-\w*[rR]|\*|\bfor\b|\bwhile\b|\$\(|`|--recursive")
_BOTH = frozenset({Kind.FILE, Kind.DIRECTORY})


class Coverage(StrEnum):
    NOTHING = "nothing"  # it names no file of the image
    COMPLETE = "complete"  # all it names is known, and what is in the directories
    NAMED = "named"  # all it names is known
    CLOSED = "closed"  # it reads what is in files that were not opened so far
    PARTIAL = "partial"  # some of it may or may not be there


def coverage(image: Image, script: str, effects: Effects, directory: str = "/") -> Coverage:
    """Of what a script reads in `directory`, or, where that is not clear, of the paths in its text."""
    reads = effects.reads
    paths = _named(script, directory) if reads is None else {path for path in reads if path.startswith("/")}
    paths = {path for path in paths if not of_machine(path) and path not in USUAL}
    if not paths:
        return Coverage.NOTHING
    if not all(_is_known(image, path) for path in paths):
        return Coverage.PARTIAL
    if _READERS & set(_WORD.findall(script)) and _closed(image, paths, each=bool(_EACH.search(script))):
        return Coverage.CLOSED
    return Coverage.COMPLETE if all(_is_complete(image, path) for path in paths) else Coverage.NAMED


def _named(script: str, directory: str) -> set[str]:
    """Absolute paths, and words that look like relative ones."""
    relative = (resolve(word, directory) for word in _RELATIVE.findall(script))
    return {*_PATH.findall(script), *(path for path in relative if path is not None)}


def _is_known(image: Image, path: str) -> bool:
    if path == "/":  # what is of the machine and what is of the image cannot be told apart there
        return False
    if path in image.paths or path in image.absent:
        return True
    if any(above in image.absent for above in parents(path)):
        return True
    kinds, hidden = image.shown(posixpath.dirname(path))
    return kinds >= _BOTH and (hidden or not posixpath.basename(path).startswith("."))


def _closed(image: Image, paths: set[str], *, each: bool) -> bool:
    """`each`: files in the directories that it names are opened too."""
    return any(
        path in paths or (each and any(within(path, directory) for directory in paths))
        for path, known in image.paths.items()
        if known.content is None and known.size != 0 and known.kind is not Kind.DIRECTORY
    )


def _is_complete(image: Image, path: str) -> bool:
    known = image.paths.get(path)
    if known is not None and known.kind is Kind.DIRECTORY:
        return Kind.FILE in image.shown(path)[0]
    return True
