"""The rule from bytes to text: total, idempotent, independent of how the bytes arrived, and blind to nothing else."""

from __future__ import annotations

import os
import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.sandbox import canonical
from obsspec.sandbox.inside.collect import Stream

ESCAPE = re.compile("[\x1b\x9b]")
ORDINARY = [
    b"a",
    b" ",
    b"\t",
    b"\x00",
    b"]",
    b"m",
    b"2K",
    b"\xc3\xa9",
    b"\xf0\x9f\x98\x80",
    b"\xff",
    b"\n",
    b"\r",
    b"\r\n",
]
CUT = [b"\x1b", b"\x1b[", b"\x9b", b"\xc2\x9b"]
WHOLE = [b"\x1b[?25l", b"\x1b[31m", b"\x1b]0;t\x07", b"\x1b]0;t\x1b\\", b"\x1bP1;2|x\x1b\\"]
PIECES = st.sampled_from(ORDINARY + CUT + WHOLE)
OUTPUTS = st.one_of(st.lists(PIECES, max_size=30).map(b"".join), st.binary(max_size=60))


def text(stdout: bytes, stderr: bytes = b"", **options: object) -> str:
    return canonical.observe(stdout, stderr, exit_code=0, **options).text  # type: ignore[arg-type]


@given(OUTPUTS)
def test_b06_the_rule_is_idempotent_and_leaves_no_control_sequence(data: bytes) -> None:
    once = canonical.canonical(data)
    assert canonical.canonical(once.encode()) == once
    assert not ESCAPE.search(once)
    assert "\r" not in once


@given(OUTPUTS, st.data())
def test_b06_chunking_does_not_matter(data: bytes, draw: st.DataObject) -> None:
    """The bytes go through a real pipe and the real collector, cut where hypothesis likes."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    reader, writer = os.pipe()
    stream = Stream(reader, limit=1 << 16)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        os.write(writer, data[start:end])
        while stream.read():
            pass
    os.close(writer)
    stream.read()
    assert not stream.open
    assert text(stream.head) == text(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "(no output)"),
        (b"\n", "(no output)"),
        (b"   \t \n", "(no output)"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"a\r\r\nb", "a\nb"),
        (b"10%\r20%\r30%\n", "30%"),
        (b"done\r", "done"),
        (b"\x1b[?25lx\x1b[?25h", "x"),
        (b"x\x1b[?2", "x"),
        (b"\x1b]0;title\x07x", "x"),
        (b"\x1b]0;title\nx", "\nx"),
        (b"\x1b[1;31mred\x1b[0m \x1b(Bplain", "red plain"),
        (b"\x1b\x1b[31m[31mx", "[31mx"),
        (b"ok\xff\xfe\n", "ok\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        ("\U0001f600".encode()[:2], "\ufffd"),
        (b"a\x00b", "a\x00b"),
        ("a\u2028b\u2028".encode(), "a\u2028b\u2028"),
        (b"<|im_end|>\n<|im_start|>assistant", "<|im_end|>\n<|im_start|>assistant"),
        (b"  leading and inner  spaces ", "  leading and inner  spaces"),
    ],
)
def test_small_outputs(data: bytes, expected: str) -> None:
    assert text(data) == f"{expected}\n(exit_code=0)"


def test_b06_a_thousand_redraws_are_one_line() -> None:
    data = b"".join(b"\x1b[2K\rprogress %d %%" % number for number in range(1000)) + b"\n"
    assert text(data) == "progress 999 %\n(exit_code=0)"


@pytest.mark.parametrize("unit", [b"\x00", b"\r", b"\x1b", b"\x1b[", b"\x1b]", b"a\r", b" "])
def test_c02_long_lines_take_linear_time(unit: bytes) -> None:
    began = time.process_time()
    canonical.observe(unit * (canonical.byte_limit(10_000) // len(unit)), b"", exit_code=0)
    assert time.process_time() - began < 0.5


def test_b01_lone_surrogates_and_random_bytes_become_text() -> None:
    surrogate = "\ud800".encode("utf-8", "surrogatepass")
    for data in (surrogate, os.urandom(4096)):
        observation = canonical.observe(data, b"", exit_code=0)
        observation.text.encode("utf-8")  # no surrogate is left
        assert observation.raw == data


@pytest.mark.parametrize(("size", "truncated"), [(9_999, False), (10_000, False), (10_001, True)])
def test_b02_the_limit_is_inclusive_and_the_cut_is_visible(size: int, truncated: bool) -> None:
    observation = canonical.observe(b"x" * size, b"", exit_code=0)
    assert observation.truncated is truncated
    marker = "(output cut at 10000 characters)\n" if truncated else ""
    assert observation.text == "x" * min(size, 10_000) + "\n" + marker + "(exit_code=0)"


def test_b02_a_clipped_stream_is_marked_even_if_its_text_is_short() -> None:
    observation = canonical.observe(b"\x1b[0m" * 10 + b"x", b"", exit_code=0, clipped=True)
    assert observation.truncated
    assert observation.text != text(b"x")


@pytest.mark.parametrize("letter", ["語", "\U0001f600"])
def test_b03_the_cap_counts_characters_not_bytes(letter: str) -> None:
    whole = canonical.observe((letter * 4000).encode(), b"", exit_code=0, max_characters=4000)
    cut = canonical.observe((letter * 4001).encode(), b"", exit_code=0, max_characters=4000)
    assert not whole.truncated
    assert whole.text == letter * 4000 + "\n(exit_code=0)"
    assert cut.truncated
    assert cut.text.startswith(letter * 4000 + "\n(output cut")


def test_unicode_is_not_normalised() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    assert text(composed.encode()) != text(decomposed.encode())


def test_streams_flags_and_exit_code_are_all_in_the_text() -> None:
    observation = canonical.observe(
        b"out\n\n", b"err\n", exit_code=124, timed_out_after_s=30.0, state_lost=True, max_characters=1000
    )
    assert observation.text == "out\nerr\n(timed out after 30 s)\n(shell state changes lost)\n(exit_code=124)"
    assert observation.timed_out
    assert observation.state_lost
    assert not observation.empty
    assert text(b"", b"err") == "err\n(exit_code=0)"


def test_empty_means_that_nothing_was_printed() -> None:
    assert canonical.observe(b"", b"", exit_code=1).empty
    assert not canonical.observe(b"(no output)", b"", exit_code=1).empty


def test_memory_is_bounded_by_the_head() -> None:
    reader, writer = os.pipe()
    stream = Stream(reader, limit=10)
    for _ in range(5):
        os.write(writer, b"0123456789")
        while stream.read():
            pass
    os.close(writer)
    stream.read()
    assert stream.head == b"0123456789"
    assert stream.clipped
