"""Finds the frame of a tool: what its observations have in common around outputs that differ."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from obsspec.world.frames import ANY, CODE, DIRECTORY, WRITERS, Escapes, Frame

LEAST = 4  # different observations that are compared, at least
_SURE = 10  # the same, where nothing in the frame is called an exit code
_HOLE = re.compile(r"-?\d+|(?:(?<=[:=] )|(?<=\":\")|(?<=: \"))/[^\s\])\"]*(?=[\])\"]*(?:$|[,}]))", re.MULTILINE)
_CODE_NAME = re.compile(r"(?:code|status|\brc|exit|return)(?:\W|\b(?:is|was|of)\b)*\Z", re.IGNORECASE)
_DIRECTORY_NAME = re.compile(r"(?:director(?:y|ies)|\bdir|folder|cwd|pwd)\W*\Z", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z][\w ]{0,30}: ?|<\w+>")
_CLOSING = re.compile(r"</\w+>\Z")
_OUT, _ERROR = ("output", "stdout", "out", "result", "content", "text"), ("stderr", "error", "err")
_KEY = re.compile(r'[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NOTHING = re.compile(r"[(<\[]?(?:no output|empty|none)[)>\]]?", re.IGNORECASE)
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class _Split:
    """One observation taken apart. `bodies`: one, or two with what is `between` them."""

    before: str
    bodies: tuple[str, ...]
    between: str
    after: str


def find_frame(texts: Sequence[str]) -> Frame | None:
    """The frame of all these observations of different calls; None if there is none, or too little to tell."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) < LEAST:
        return None
    splits, escapes = _objects(distinct), Escapes.ASCII
    if splits is None:
        splits, escapes = _lines(distinct), Escapes.NONE
    ended = any(split.after.startswith("\n") for split in splits)
    afters = [split.after.removeprefix("\n") if ended else split.after for split in splits]
    before, between, after = map(
        _common, ([split.before for split in splits], [split.between for split in splits], afters)
    )
    whole = before + between + after
    if not (before or after) or (CODE not in whole and (ANY in whole or len(distinct) < _SURE)):
        return None
    return _frame(splits, (before, between, "\n" + after if ended and after else after), escapes)


def _frame(splits: Sequence[_Split], parts: tuple[str, str, str], escapes: Escapes) -> Frame | None:
    before, between, after = parts
    bodies = [body for split in splits for body in split.bodies]
    bare = False
    if escapes is not Escapes.NONE:
        found = _escapes(bodies)
        if found is None:
            return None
        escapes, bodies = found, [str(json.loads(f'"{body}"', strict=False)) for body in bodies]
    elif after.startswith("\n</"):
        # the line end belongs to the output
        after, bodies = after[1:], [split.bodies[0] + "\n" * split.after.startswith("\n") for split in splits]
    elif after.startswith("\n"):
        bare = not all(split.after.startswith("\n") for split in splits)
    return Frame(
        before,
        after,
        between if len(splits[0].bodies) > 1 else None,
        escapes,
        trimmed=not any(body.endswith("\n") for body in bodies),
        empty=next((body for body in bodies if _NOTHING.fullmatch(body)), ""),
        bare=bare,
        determined=ANY not in before + between + after,
    )


def _common(parts: Sequence[str]) -> str:
    """The text with holes that all of these are, "" if they differ."""
    if len({_HOLE.sub("\2", part) for part in parts}) > 1:
        return ""
    values = [[found[0] for found in _HOLE.finditer(part)] for part in parts]
    pieces: list[str] = []
    end = 0
    for number, found in enumerate(_HOLE.finditer(parts[0])):
        literal = parts[0][end : found.start()]
        end = found.end()
        pieces += [literal, _filling(literal, [each[number] for each in values])]
    return "".join(pieces) + parts[0][end:]


def _filling(literal: str, values: Sequence[str]) -> str:
    if values[0].startswith("/") and _DIRECTORY_NAME.search(literal):
        return DIRECTORY
    if not values[0].startswith("/") and _CODE_NAME.search(literal):
        return CODE
    return values[0] if len(set(values)) == 1 else ANY


# Objects ----------------------------------------------------------------------------------------------------------


def _objects(texts: Sequence[str]) -> list[_Split] | None:
    fields = [_strings(text) for text in texts]
    if any(field is None for field in fields):
        return None
    known = [field for field in fields if field is not None]
    out = next((key for key in _OUT if all(key in field for field in known)), None)
    if out is None:
        return None
    error = next((key for key in _ERROR if all(key in field and field[key] > field[out] for field in known)), None)
    return [_cut(text, [field[key] for key in (out, error) if key]) for text, field in zip(texts, known, strict=True)]


def _cut(text: str, spans: Sequence[tuple[int, int]]) -> _Split:
    bodies = tuple(text[start:end] for start, end in spans)
    between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else ""
    return _Split(text[: spans[0][0]], bodies, between, text[spans[-1][1] :])


def _strings(text: str) -> dict[str, tuple[int, int]] | None:
    """Where the texts of a JSON object are, by key; None if it is no such object."""
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return None
    found: dict[str, tuple[int, int]] = {}
    place = 0
    while key := _KEY.match(text, place):
        value = _STRING.match(text, key.end())
        if value is not None:
            found[json.loads(key[1])] = value.span(1)
            place = value.end()
        else:
            try:
                _, place = _DECODER.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                return None
        place += len(text) - place - len(text[place:].lstrip()) if text[place : place + 1].isspace() else 0
    return found if text[place:].strip() == "}" else None


def _escapes(bodies: Sequence[str]) -> Escapes | None:
    try:
        plain = [str(json.loads(f'"{body}"', strict=False)) for body in bodies]
    except ValueError:
        return None
    for escapes in (Escapes.ASCII, Escapes.UNICODE, Escapes.MARKUP):
        if [WRITERS[escapes](text) for text in plain] == list(bodies):
            return escapes
    return None


# Lines ------------------------------------------------------------------------------------------------------------


def _lines(texts: Sequence[str]) -> list[_Split]:
    lines = [text.split("\n") for text in texts]
    masked = [[_HOLE.sub("\2", line) for line in each] for each in lines]
    last = _alike([each[::-1] for each in masked])
    first = _alike([each[: len(each) - last] for each in masked])
    splits: list[_Split] = []
    for each in lines:
        before = "".join(f"{line}\n" for line in each[:first])
        middle, after = each[first : len(each) - last], each[len(each) - last :]
        splits.append(_Split(before, ("\n".join(middle),), "", "\n".join(["", *after] if middle and last else after)))
    return _labelled(splits)


def _alike(lists: Sequence[Sequence[str]]) -> int:
    """How many lines all begin with."""
    count = 0
    for row in zip(*lists, strict=False):
        if len(set(row)) > 1:
            break
        count += 1
    return count


def _labelled(splits: list[_Split]) -> list[_Split]:
    """A label or a tag that stands before or after every output on its own line goes to the frame."""
    starts = {found[0] if (found := _LABEL.match(split.bodies[0])) else "" for split in splits}
    label = starts.pop() if len(starts) == 1 else ""
    ends = {found[0] if (found := _CLOSING.search(split.bodies[0])) else "" for split in splits}
    closing = ends.pop() if len(ends) == 1 else ""
    return [
        _Split(
            split.before + label,
            (split.bodies[0][len(label) : len(split.bodies[0]) - len(closing)],),
            "",
            closing + split.after,
        )
        for split in splits
    ]
