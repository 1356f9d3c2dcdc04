"""The parser of server-sent events."""

import pytest
from generator.openai.sse import SseParser
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable

LIMIT = 1 << 20
payload = st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"").replace(b"\n", b""))


def cut(stream: bytes, sizes: list[int]) -> list[bytes]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(stream[start : start + size])
        start += size
    return [*pieces, stream[start:]]


def parsed(pieces: list[bytes]) -> list[bytes]:
    parser = SseParser(LIMIT)
    return [payload for piece in pieces for payload in parser.feed(piece)] + parser.close()


@given(
    st.lists(st.lists(payload, min_size=1, max_size=3), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 9), max_size=60),
)
def test_events_do_not_depend_on_where_the_reads_cut_them(
    events: list[list[bytes]], end: bytes, sizes: list[int]
) -> None:
    """The payloads are the same for all cuts and line ends. An empty payload is dropped."""
    stream = b"".join(b"".join(b"data: " + line + end for line in lines) + end for lines in events)
    assert parsed(cut(stream, sizes)) == [b"\n".join(lines) for lines in events if lines != [b""]]


def test_every_single_cut_of_a_real_stream_gives_the_same_events() -> None:
    """A stream with comments, other fields and mixed line ends can be cut anywhere."""
    stream = (
        b'\xef\xbb\xbf: hello\r\nevent: x\r\ndata: {"a":1}\r\n\r\n'
        b'data:{"b":"\xc3\xa9"}\n\n: ping\n\nid: 7\ndata: one\ndata: two\n\ndata: [DONE]\n\n'
    )
    expected = [b'{"a":1}', b'{"b":"\xc3\xa9"}', b"one\ntwo", b"[DONE]"]
    for at in range(len(stream) + 1):
        assert parsed([stream[:at], stream[at:]]) == expected
    assert parsed([bytes([byte]) for byte in stream]) == expected


def test_an_event_is_returned_with_its_blank_line() -> None:
    """An event is returned with the read that has its blank line, even after bare carriage returns."""
    parser = SseParser(LIMIT)
    assert parser.feed(b"data: a\n\ndata: b") == [b"a"]
    assert parser.feed(b"\r\r") == [b"b"]
    assert parser.feed(b"\ndata: c\n\n") == [b"c"]


def test_an_event_without_its_blank_line_is_returned_at_the_end() -> None:
    """The end of the stream returns the last event, even without its blank line."""
    parser = SseParser(LIMIT)
    assert parser.feed(b"data: [DONE]\n") == []
    assert parser.close() == [b"[DONE]"]
    parser = SseParser(LIMIT)
    parser.feed(b'data: {"half')
    assert parser.close() == [b'{"half']
    assert SseParser(LIMIT).close() == []


@pytest.mark.parametrize("lines", [1, 4])
def test_an_event_over_the_limit_is_refused_before_it_is_complete(lines: int) -> None:
    """An event above the limit is refused before it is complete. An event at the limit passes."""
    part = b"x" * (1000 // lines)
    fits = b"".join(b"data: " + part + b"\n" for _ in range(lines)) + b"\n"
    assert SseParser(1006).feed(fits) == [b"\n".join([part] * lines)]
    parser = SseParser(1000)
    for _ in range(lines - 1):
        parser.feed(b"data: " + part + b"\n")
    with pytest.raises(Unavailable, match="more than 1000 bytes"):
        parser.feed(b"data: " + part + b"x" * 8)


def test_the_limit_is_for_each_event() -> None:
    """The limit is for each event, not for the stream."""
    parser = SseParser(100)
    for _ in range(50):
        assert parser.feed(b"data: " + b"y" * 60 + b"\n\n") == [b"y" * 60]
