"""Truncated forms are refused, and all other bodies pass unchanged."""

import itertools
from collections.abc import Sequence

import pytest
from gateway.server.complete_forms import CompleteForms
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import InvalidRequest
from starlette.types import Message, Receive, Scope, Send

FORM = b'--X\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ntext\r\n--X--\r\n'
TYPE = b'Multipart/Form-Data; boundary="X"'


async def read(pieces: Sequence[bytes], media: bytes = TYPE) -> bytes:
    """Return the body that the application reads."""
    messages: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages[-1]["more_body"] = False
    received = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        while True:
            message = await receive()
            received.append(message["body"])
            if not message["more_body"]:
                return

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        del message

    await CompleteForms(app)({"type": "http", "headers": [(b"content-type", media)]}, receive, send)
    return b"".join(received)


@given(st.lists(st.integers(0, len(FORM)), max_size=8), st.sampled_from([b"", b"\r\nan epilogue"]))
async def test_a_complete_form_passes_with_any_split(cuts: list[int], epilogue: bytes) -> None:
    """The last boundary is found with any split of the body."""
    body = FORM + epilogue
    positions = [0, *sorted(cuts), len(body)]
    assert await read([body[a:b] for a, b in itertools.pairwise(positions)]) == body


@given(st.integers(0, len(FORM) - 3), st.integers(0, len(FORM)))
async def test_a_truncated_form_is_refused(length: int, cut: int) -> None:
    """A form without a complete last boundary is refused, because form parsers drop its last part."""
    body = FORM[:length]
    with pytest.raises(InvalidRequest, match="last boundary"):
        await read([body[:cut], body[cut:]])


@pytest.mark.parametrize(
    "media", [b"", b"application/json", b"multipart/form-data", b"multipart/mixed; boundary=X"]
)
async def test_other_bodies_pass(media: bytes) -> None:
    """Only forms with a boundary are checked."""
    assert await read([b"text"], media) == b"text"
