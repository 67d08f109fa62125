"""What a tool does to the text of every run: words for silence, a frame, cutting, and the places of its own files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from obsspec.world.python.beliefs import Votes
from obsspec.world.python.styles import Style

LONG = 200  # characters that must agree before a text counts as cut
MARK = 200  # the longest note that something was cut, the longest frame
OUR_FILE = re.compile(r'File "<string>", line (\d+)')
SCALAR = re.compile(r"\bnp\.(?:float|int|uint|bool|str|complex)\w*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a text."""

    before: str = ""
    after: str = ""


BARE = Frame()


@dataclass(frozen=True, slots=True)
class Cut:
    """A text longer than `length` ends there, with `mark`."""

    length: int
    mark: str


def _votes() -> Votes[Frame]:
    return Votes()


@dataclass(slots=True)
class Surface:
    """Learnt per tool. Texts are stripped of white space around them unless the tool is seen to keep it."""

    _silence: Votes[str] = field(default_factory=lambda: Votes[str](0.98))
    _cuts: Votes[Cut] = field(default_factory=lambda: Votes[Cut](0.98))
    _keeps_space: Votes[bool] = field(default_factory=lambda: Votes[bool]())
    _frames: dict[Style, Votes[Frame]] = field(default_factory=lambda: {})
    _places: dict[str, Votes[str]] = field(default_factory=lambda: {})
    _file: Votes[str] = field(default_factory=lambda: Votes[str]())
    _scalars: Votes[bool] = field(default_factory=lambda: Votes[bool]())  # numpy's say their type

    def dress(self, style: Style, text: str, paths: Sequence[str]) -> str | None:
        """What the tool would show for `text`; `paths` are where our own modules are.

        None: it shows something for silence, and nobody has seen what.
        """
        if not text.strip():
            return self._silence.best()
        text = self._placed(text, paths)
        cut = self._cuts.best(1.5)
        if cut is not None and len(text) > cut.length:
            text = text[: cut.length] + cut.mark
        votes = self._frames.get(style)
        frame = votes.best(1.5) if votes is not None else None
        if frame not in (None, BARE):
            return frame.before + text.strip() + frame.after
        return text if self._keeps_space.best() else text.strip()

    def learn(self, style: Style, text: str, paths: Sequence[str], shown: str) -> None:
        """`text` was right or wrong as a whole; its surface may teach something in either case."""
        if not text.strip():
            self._silence.add(shown)
            return
        self._learn_places(text, paths, shown)
        self._learn_words(text, shown)
        text = self._placed(text, paths)
        if shown in (text, text.strip()) and text != text.strip():
            self._keeps_space.add(shown == text)
        self._learn_cut(text, shown)
        if shown in (text, text.strip()):
            self._frames.setdefault(style, _votes()).add(BARE)
            return
        core = text.strip()
        if len(core) >= 3 and shown.count(core) == 1:
            before, _, after = shown.partition(core)
            if max(len(before), len(after)) > MARK:
                return
            self._frames.setdefault(style, _votes()).add(Frame(before, after))

    def _learn_cut(self, text: str, shown: str) -> None:
        common = next((at for at, (ours, theirs) in enumerate(zip(text, shown, strict=False)) if ours != theirs), 0)
        mark = shown[common:]
        best = self._cuts.best()
        if best is not None and len(text) > best.length and shown.strip() == text.strip():
            self._cuts.drop(best)  # it would have been cut
        if LONG <= common < len(text) - 1 and mark and len(mark) <= MARK and len(shown) < len(text) + MARK:
            if best is not None and shown == text[: best.length] + best.mark:
                self._cuts.add(best)
            else:
                self._cuts.add(Cut(common, mark))

    def _learn_places(self, text: str, paths: Sequence[str], shown: str) -> None:
        for path in paths:
            found = re.search(re.escape(path) + r"/([\w./-]+\w)", text)
            if found is not None:
                theirs = re.search(r"([^\s'\"(]*)/" + re.escape(found[1]) + r"\b", shown)
                if theirs is not None:
                    self._places.setdefault(path, Votes[str](0.5)).add(theirs[1])

    def _learn_words(self, text: str, shown: str) -> None:
        line = OUR_FILE.search(text)
        theirs = re.search(rf'File "([^"]+)", line {line[1]}\b', shown) if line is not None else None
        if theirs is not None:
            self._file.add(theirs[1])
        if SCALAR.search(text):
            self._scalars.add(SCALAR.search(shown) is not None)

    def _placed(self, text: str, paths: Sequence[str]) -> str:
        """With the names that the tool has for files, and numpy's numbers as its version shows them."""
        file = self._file.best()
        if file is not None:
            text = text.replace('File "<string>"', f'File "{file}"')
        if self._scalars.best() is False:
            text = SCALAR.sub(r"\1", text)
        for path in sorted(paths, key=len, reverse=True):
            votes = self._places.get(path)
            theirs = votes.best() if votes is not None and path in text else None
            if theirs is not None:
                text = text.replace(path, theirs)
        return text
