import json
from typing import Any

import pytest
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.rag_chat.azure_js import CLIENT
from gateway.dialects.rag_chat.registration import Stages
from gateway.domain import Context, Delta, Done, Event, Finish, FollowUps, Message, Passage, Start, Usage
from gateway.frontends.profiles import Frontend
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL

STAGES = {path: stage for path, stage in Stages().fixed().items() if path.endswith("/chat")}
CLIENTS = [*((path, "") for path in STAGES), ("/2024-01/chat", CLIENT)]
PASSAGE = Passage("p", "i", "d", "a.pdf", "a.pdf#page=1", "Line\u2028one.\n", 0.5)
# All line ends of any standard, characters that JSON must escape, and characters of one to four bytes.
texts = st.text(st.sampled_from('a9 <>\n\r\x00\x0b\x1c\x85\u2028\u2029"\\é€\U0001f600'), max_size=8)


def exchange(path: str, client: str = "") -> Exchange:
    body = {"messages": "When?", "stream": True, "session_state": "s", "sessionState": "s"}
    request = ChatRequest(
        json.dumps(body).encode(), LOCAL, Frontend(default_index="i", client=client), streaming=True
    )
    return STAGES[path].parse(request)


def events(said: list[str], follow_ups: tuple[str, ...]) -> list[list[Event]]:
    prompt = (Message("system", "Be\nbrief."), Message("user", "When?"))
    opening: list[Event] = [Context("When?", (PASSAGE,), prompt, ()), Start(b'{"id":"x","model":"m"}')]
    closing: list[Event] = [Finish(0, "stop"), FollowUps(follow_ups), Usage(1, 2)]
    pieces: list[list[Event]] = [[Delta(0, text)] for text in said]
    return [opening, *pieces, closing, [Done(())]]


def cut(written: bytes, size: int) -> list[bytes]:
    """Return the lines that a client reads from pieces of the given size.

    Text behind the last line feed is lost.
    """
    found: list[bytes] = []
    buffer = b""
    for at in range(0, len(written), size):
        buffer += written[at : at + size]
        *whole, buffer = buffer.split(b"\n")
        found += [line.removesuffix(b"\r") for line in whole if line]
    return found


def lines(written: bytes) -> list[Any]:
    return [json.loads(line) for line in cut(written, len(written))]


def piece_of(line: Any) -> str:
    if "type" in line:
        return line.get("delta", "") if line["type"] == "response.output_text.delta" else ""
    said = line["choices"][0]["delta"] if "choices" in line else line["delta"]
    return said.get("content") or ""


@pytest.mark.parametrize(("path", "client"), CLIENTS)
@given(said=st.lists(texts, max_size=4), follow_ups=st.lists(texts.filter(bool), max_size=2).map(tuple))
def test_a_stream_that_is_cut_at_any_byte_reads_the_same(
    path: str, client: str, said: list[str], follow_ups: tuple[str, ...]
) -> None:
    """Split at any byte, the stream has the same lines, and their pieces are the text."""
    speaker = exchange(path, client)
    written = b"".join(speaker.render(batch) for batch in events(said, follow_ups))
    assert all(cut(written, size) == cut(written, len(written)) for size in (1, 2, 3, 7, 1000))
    whole = lines(written)
    text = "".join(map(piece_of, whole))
    assert text.startswith("".join(said)) if client else text == "".join(said)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == len(whole)


@pytest.mark.parametrize(("path", "client"), CLIENTS)
def test_batches_do_not_matter(path: str, client: str) -> None:
    """Events in one batch and events in single batches give the same text."""
    batches = events(["At ", "nine."], ("Why?",))
    one, other = exchange(path, client), exchange(path, client)
    apart = b"".join(one.render([event]) for batch in batches for event in batch)
    together = other.render([event for batch in batches for event in batch])
    read = [[piece_of(line) for line in lines(written)] for written in (apart, together)]
    assert read[0] == read[1]


@pytest.mark.parametrize(("path", "client"), CLIENTS)
def test_a_failure_is_a_line_of_its_own(path: str, client: str) -> None:
    """At any time, a failure adds one line with only the error."""
    for begun in range(3):
        speaker = exchange(path, client)
        written = b"".join(speaker.render(batch) for batch in events(["At ", "nine."], ())[:begun])
        *before, last = lines(written + speaker.render_failure(Unavailable("Away.\nFor now.")))
        assert "".join(map(piece_of, before)) == ("", "", "At ")[begun]
        assert list(last) == ["error"]
