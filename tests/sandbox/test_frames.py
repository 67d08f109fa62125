"""The wire between a sandbox and its owner survives any chunking and refuses what it cannot hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.sandbox.inside.fields import Fields, items, mapping, rules
from obsspec.sandbox.inside.frames import MAX_FIELDS, Decoder, encode
from obsspec.sandbox.inside.shell import Rules

FRAMES = st.lists(st.lists(st.binary(max_size=20), max_size=5), max_size=5)


@given(FRAMES, st.lists(st.integers(1, 7), min_size=1))
def test_frames_come_out_as_they_went_in(frames: list[list[bytes]], sizes: list[int]) -> None:
    data = b"".join(map(encode, frames))
    decoder, received, number = Decoder(), list[list[bytes]](), 0
    while data:
        size = sizes[number % len(sizes)]
        received += decoder.feed(data[:size])
        data, number = data[size:], number + 1
    assert received == frames


def test_an_absurd_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="fields"):
        Decoder().feed((MAX_FIELDS + 1).to_bytes(4, "big"))


@given(st.dictionaries(st.text(), st.text()), st.lists(st.binary()), st.one_of(st.none(), st.integers(0, 70_000)))
def test_descriptions_can_be_read_back(pairs: dict[str, str], values: list[bytes], user: int | None) -> None:
    pairs = {key: value for key, value in pairs.items() if (key + value).isascii()}
    sent = Rules("/home/user", 1, 2, 3, 4, 5, user)
    fields = Fields([*mapping(pairs), *items(values), *rules(sent)])
    assert fields.mapping() == pairs
    assert fields.items() == values
    assert vars(fields.rules()) == vars(sent)
