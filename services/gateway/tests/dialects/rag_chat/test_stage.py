import json
from typing import Any

import pytest
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.rag_chat.azure_js import CLIENT
from gateway.dialects.rag_chat.registration import Stages
from gateway.domain import Context, Delta, Done, Event, Finish, FollowUps, Message, Passage, Start, Usage
from gateway.frontends.profiles import Frontend
from hypothesis import given, settings
from hypothesis import strategies as st
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL

STAGES = {path: stage for path, stage in Stages().single_stage_paths().items() if path.endswith("/chat")}
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


def events(sent: list[str], follow_ups: tuple[str, ...]) -> list[list[Event]]:
    prompt = (Message("system", "Be\nbrief."), Message("user", "When?"))
    opening: list[Event] = [Context("When?", (PASSAGE,), prompt, ()), Start(b'{"id":"x","model":"m"}')]
    closing: list[Event] = [Finish(0, "stop"), FollowUps(follow_ups), Usage(1, 2)]
    pieces: list[list[Event]] = [[Delta(0, text)] for text in sent]
    return [opening, *pieces, closing, [Done(())]]


def lines_of_pieces(written: bytes, size: int) -> list[bytes]:
    """Return the lines that a client reads if the stream arrives in pieces of this size.

    The client discards text after the last line feed.
    """
    found: list[bytes] = []
    buffer = b""
    for at in range(0, len(written), size):
        buffer += written[at : at + size]
        *whole, buffer = buffer.split(b"\n")
        found += [line.removesuffix(b"\r") for line in whole if line]
    return found


def lines(written: bytes) -> list[Any]:
    return [json.loads(line) for line in lines_of_pieces(written, len(written))]


def piece_of(line: Any) -> str:
    if "type" in line:
        return line.get("delta", "") if line["type"] == "response.output_text.delta" else ""
    sent = line["choices"][0]["delta"] if "choices" in line else line["delta"]
    return sent.get("content") or ""


@pytest.mark.parametrize(("path", "client"), CLIENTS)
@given(sent=st.lists(texts, max_size=4), follow_ups=st.lists(texts.filter(bool), max_size=2).map(tuple))
@settings(max_examples=25)
def test_a_stream_that_is_cut_at_any_byte_reads_the_same(
    path: str, client: str, sent: list[str], follow_ups: tuple[str, ...]
) -> None:
    """A stream that is split at any byte has the same lines, and their pieces join to the text."""
    answer = exchange(path, client)
    written = b"".join(answer.render(batch) for batch in events(sent, follow_ups))
    assert all(
        lines_of_pieces(written, size) == lines_of_pieces(written, len(written)) for size in (1, 2, 3, 7, 1000)
    )
    whole = lines(written)
    text = "".join(map(piece_of, whole))
    assert text.startswith("".join(sent)) if client else text == "".join(sent)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == len(whole)


@pytest.mark.parametrize(("path", "client"), CLIENTS)
def test_batches_do_not_matter(path: str, client: str) -> None:
    """Events in one batch and events in separate batches result in the same text."""
    batches = events(["At ", "nine."], ("Why?",))
    one, other = exchange(path, client), exchange(path, client)
    apart = b"".join(one.render([event]) for batch in batches for event in batch)
    together = other.render([event for batch in batches for event in batch])
    read = [[piece_of(line) for line in lines(written)] for written in (apart, together)]
    assert read[0] == read[1]


@pytest.mark.parametrize(("path", "client"), CLIENTS)
def test_a_failure_is_a_line_of_its_own(path: str, client: str) -> None:
    """At any point of the stream, a failure adds one line that contains only the error."""
    for begun in range(3):
        answer = exchange(path, client)
        written = b"".join(answer.render(batch) for batch in events(["At ", "nine."], ())[:begun])
        *before, last = lines(written + answer.render_failure(Unavailable("Away.\nFor now.")))
        assert "".join(map(piece_of, before)) == ("", "", "At ")[begun]
        assert list(last) == ["error"]
