"""From what is known of an image to files that can be laid down."""

from __future__ import annotations

import calendar
import posixpath
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator

from obsspec.sandbox.placed import PlacedFile
from obsspec.sandbox.spec import EntryKind
from obsspec.world.shadow.facts import Kind, Known
from obsspec.world.shadow.filler import filler
from obsspec.world.shadow.image import Image, of_machine, parents
from obsspec.world.shadow.order import by_order

MAX_BYTES = 3 << 20  # of a whole tree, about
CUT_BYTES = 512
VARIANTS = 2  # the second differs from the first in all that is not known
# what every image of a Linux distribution has
USUAL = (
    "/boot",
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/tmp",
    "/var",
    "/var/log",
)
USUAL_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n",
}
AGES_S = (2 * 86_400.0, 400 * 86_400.0)  # of files whose age is not known
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_TIME = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}) (?:(\d\d):(\d\d)|(\d{4}))")
_EXTRA = 90


def lay_out(image: Image, variant: int, now: float | None = None) -> list[PlacedFile]:
    """Parents before children; each directory's entries in the order that makes the file system list them as seen."""
    return list(_Layout(image, variant, time.time() if now is None else now).files())


class _Layout:
    def __init__(self, image: Image, variant: int, now: float) -> None:
        self._image = image
        self._variant = variant
        self._now = now
        self._paths = {path: known for path, known in image.paths.items() if not of_machine(path)}
        for path in USUAL:
            if path not in image.absent:
                self._paths.setdefault(path, Known(Kind.DIRECTORY))
        self._room = MAX_BYTES
        self._seen_in = {parent for path in self._paths for parent in parents(path)}
        self._by_sum = self._sums()
        if variant:
            self._add_extra()

    def files(self) -> Iterator[PlacedFile]:
        children: dict[str, list[str]] = defaultdict(list)
        for path in self._paths:
            if path != "/":
                directory, name = posixpath.split(path)
                children[directory].append(name)
        yield from self._directory("/", children)
        for path, text in USUAL_FILES.items():
            if path not in self._paths and path not in self._image.absent:
                yield PlacedFile(path, text.encode(), mtime_ns=self._time_ns(Known()))

    def _directory(self, directory: str, children: dict[str, list[str]]) -> Iterator[PlacedFile]:
        """Newest first is how the sandbox lists, so what comes first is made last."""
        for name in reversed(by_order(children.get(directory, ()), self._image.order.get(directory, ()))):
            path = posixpath.join(directory, name)
            known = self._paths[path]
            kind = self._kind(path, known)
            if kind is Kind.DIRECTORY:
                placed = PlacedFile(path, b"", known.mode, EntryKind.DIRECTORY, mtime_ns=self._time_ns(known))
                yield placed
                yield from self._directory(path, children)
                yield placed  # once more: making its entries changed its time
            elif kind is Kind.LINK:
                yield PlacedFile(path, (known.target or "?").encode(), None, EntryKind.LINK)
            else:
                yield PlacedFile(path, self._fitting(path, known), known.mode, mtime_ns=self._time_ns(known))

    def _kind(self, path: str, known: Known) -> Kind:
        """A name with a dot is most likely a file; where it is a guess, the second variant guesses the opposite."""
        if path in self._seen_in or path in USUAL:
            return Kind.DIRECTORY
        if known.kind is not None:
            return known.kind
        file = ("." in posixpath.basename(path)) != bool(self._variant)
        return Kind.FILE if file else Kind.DIRECTORY

    def _content(self, path: str, known: Known) -> bytes:
        """Files with equal checksums have equal contents, known or not."""
        if known.content is not None:
            return known.content
        for digest in known.sums:
            same = self._by_sum[digest]
            if (content := next((k.content for k in same if k.content is not None), None)) is not None:
                return content
            sizes = [k for k in same if k.size is not None or k.counts]
            return filler(sizes[0] if sizes else known, digest[1], self._variant)
        return filler(known, path, self._variant)

    def _fitting(self, path: str, known: Known) -> bytes:
        """The content, or less of it where the whole tree would become too large; not the same in both variants."""
        if (known.size or 0) > self._room:
            known = Known(Kind.FILE, CUT_BYTES * (1 + self._variant))
        content = self._content(path, known)
        self._room -= len(content)
        return content

    def _sums(self) -> dict[tuple[str, str], list[Known]]:
        found: dict[tuple[str, str], list[Known]] = defaultdict(list)
        for known in self._paths.values():
            for digest in known.sums:
                found[digest].append(known)
        return found

    def _add_extra(self) -> None:
        """Entries that may be there for all we know, in directories of which not all entries were shown."""
        random_ = random.Random(len(self._paths))
        for directory in sorted(
            {"/", *self._seen_in, *(p for p, k in self._paths.items() if k.kind is Kind.DIRECTORY)}
        ):
            if directory in USUAL and directory not in self._seen_in:
                continue
            kinds, _ = self._image.shown(directory)
            for kind, name in ((Kind.FILE, "qzx{}.zzy"), (Kind.DIRECTORY, "qzd{}")):
                if kind not in kinds:
                    path = posixpath.join(directory, name.format(random_.randrange(_EXTRA)))
                    self._paths[path] = Known(kind)

    def _time_ns(self, known: Known) -> int:
        seconds = read_time(known.time, self._now)
        return int((self._now - AGES_S[self._variant] if seconds is None else seconds) * 1e9)


def read_time(text: str, now: float) -> float | None:
    """Seconds since 1970 of a time as `ls -l` writes it; without a year it is the latest such day before `now`."""
    match = _TIME.fullmatch(text)
    if match is None or match[1] not in _MONTHS:
        return None
    today = time.gmtime(now)
    month, day = _MONTHS.index(match[1]) + 1, int(match[2])
    year = int(match[5]) if match[5] else today.tm_year - ((month, day) > (today.tm_mon, today.tm_mday))
    return calendar.timegm((year, month, day, int(match[3] or 0), int(match[4] or 0), 0))
