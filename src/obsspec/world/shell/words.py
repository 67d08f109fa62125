"""Words of a script: from a node of the parser to parts whose text is known or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tree_sitter import Node

from obsspec.world.shell.escapes import ansi_c, unescape_double, unescape_plain
from obsspec.world.shell.tree import Literal, Opaque, Part, Sequence, Substitution, Variable, Word

Script = Callable[[Node], Sequence]  # the statements inside a `$( )`
_PLAIN = frozenset(
    ("word", "number", "variable_name", "special_variable_name", "extglob_pattern", "regex", "test_operator", "semgrep")
)
_NAMES = ("variable_name", "special_variable_name")


class NotCoveredError(Exception):
    """The parser's tree holds something that is not turned into a tree of ours."""


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


class Words:
    """Turns the word nodes of one script into `Word`s. Raises `NotCoveredError`."""

    def __init__(self, source: bytes, script: Script) -> None:
        self._source = source
        self._script = script

    def word(self, node: Node) -> Word:
        return Word(tuple(_joined(self._parts(node, quoted=False))))

    def document(self, body: Node) -> Word:
        """The expanded text of a here-document that was parsed as the inside of double quotes."""
        return Word(tuple(_joined(self._quoted(body, body.start_byte, body.end_byte))))

    def _parts(self, node: Node, *, quoted: bool) -> Iterator[Part]:
        kind = node.type
        if kind in _PLAIN or not node.is_named or kind == "command_name":
            if kind == "command_name" and node.child_count:
                yield from self._command_name(node)
                return
            yield from unescape_plain(text_of(node))
        elif kind == "brace_expression":
            yield Literal(text_of(node))
        elif kind == "raw_string":
            yield Literal(text_of(node)[1:-1], quoted=True)
        elif kind == "ansi_c_string":
            yield ansi_c(text_of(node)[2:-1])
        elif kind == "string":
            yield Literal("", quoted=True)
            yield from self._quoted(node, node.start_byte + 1, node.end_byte - 1)
        elif kind == "concatenation":
            self._adjacent(node)
            for child in node.children:
                yield from self._parts(child, quoted=False)
        else:
            yield self._expansion(node, quoted=quoted)

    def _command_name(self, node: Node) -> Iterator[Part]:
        self._adjacent(node)
        for child in node.children:
            yield from self._parts(child, quoted=False)

    def _adjacent(self, node: Node) -> None:
        """The parser may join what is not adjacent; then its tree is wrong."""
        at = node.start_byte
        for child in node.children:
            if child.start_byte != at:
                raise NotCoveredError(node.type)
            at = child.end_byte
        if at != node.end_byte:
            raise NotCoveredError(node.type)

    def _quoted(self, node: Node, start: int, end: int) -> Iterator[Part]:
        """The inside of double quotes: expansions where the parser saw them, text between them."""
        at = start
        for child in node.children:
            if child.type in ("string_content", '"') or child.start_byte < start or child.end_byte > end:
                continue
            yield from self._text(at, child.start_byte)
            if child.is_named:
                yield self._expansion(child, quoted=True)
            else:
                yield from self._text(child.start_byte, child.end_byte)
            at = child.end_byte
        yield from self._text(at, end)

    def _text(self, start: int, end: int) -> Iterator[Part]:
        if end > start:
            yield unescape_double(self._source[start:end].decode("utf-8", "surrogateescape"))

    def _expansion(self, node: Node, *, quoted: bool) -> Part:
        text = text_of(node)
        if node.type == "simple_expansion":
            return Variable(text[1:], quoted)
        if node.type == "expansion" and _is_plain(node):
            return Variable(text[2:-1], quoted)
        if node.type == "command_substitution":
            if any(child.type == "file_redirect" for child in node.children):  # $(< file)
                return Opaque(text, quoted, (), ("<",))
            if not (text.startswith("`") and "\\" in text):
                return Substitution(self._script(node), quoted)
            return Opaque(text, quoted, (), ("`",))
        if node.type in ("expansion", "arithmetic_expansion", "process_substitution"):
            return Opaque(text, quoted, tuple(self._scripts(node)), tuple(_names(node)))
        raise NotCoveredError(node.type)

    def _scripts(self, node: Node) -> Iterator[Sequence]:
        if node.type in ("command_substitution", "process_substitution"):
            yield self._script(node)
            return
        for child in node.children:
            yield from self._scripts(child)


def _is_plain(node: Node) -> bool:
    return [child.type for child in node.children if child.type not in _NAMES] == ["${", "}"]


def _names(node: Node) -> Iterator[str]:
    if node.type in _NAMES:
        yield text_of(node)
    for child in node.children:
        yield from _names(child)


def _joined(parts: Iterator[Part]) -> Iterator[Part]:
    """Neighbouring literals of one kind become one."""
    held: Literal | None = None
    for part in parts:
        if isinstance(part, Literal) and held is not None and held.quoted == part.quoted:
            held = Literal(held.text + part.text, part.quoted)
            continue
        if held is not None:
            yield held
        held = part if isinstance(part, Literal) else None
        if held is None:
            yield part
    if held is not None:
        yield held
