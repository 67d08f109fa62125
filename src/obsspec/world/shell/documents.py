"""The text of here-documents: what is expanded in it and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from obsspec.world.shell.escapes import unescape_document
from obsspec.world.shell.heredocs import Document
from obsspec.world.shell.tree import Literal, Opaque, Part, Variable, Word

_EXPANSION = re.compile(
    r"\\.|\$(?:([A-Za-z_][A-Za-z_0-9]*)|\{([A-Za-z_][A-Za-z_0-9]*)\})|\$[({]|`|\$[0-9?$!#@*_-]", re.DOTALL
)


def document_word(document: Document) -> Word:
    """The document as one quoted word. A substitution in it makes the rest opaque."""
    if document.literal:
        return Word((Literal(document.body, quoted=True),))
    return Word(tuple(_parts(document.body)))


def _parts(text: str) -> Iterator[Part]:
    yield Literal("", quoted=True)
    at = 0
    for found in _EXPANSION.finditer(text):
        if found[0].startswith("\\"):
            continue
        if found.start() > at:
            yield unescape_document(text[at : found.start()])
        name = found[1] or found[2]
        if name is None:
            yield Opaque(text[found.start() :], quoted=True, names=("`",))
            return
        yield Variable(name, quoted=True)
        at = found.end()
    if at < len(text):
        yield unescape_document(text[at:])
