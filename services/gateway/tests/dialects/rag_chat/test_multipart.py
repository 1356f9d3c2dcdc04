import contextlib

import pytest
from gateway.dialects.rag_chat import multipart
from gateway.dialects.rag_chat.multipart import MAX_PARTS, File
from hypothesis import assume, given
from hypothesis import strategies as st
from servicekit.errors import InvalidRequest

TYPE = "multipart/form-data; boundary=edge"


def encoded(*parts: tuple[str, bytes], boundary: str = "edge") -> bytes:
    """Return the encoded form of parts, each with its headers and its content."""
    written = b"".join(
        b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), headers.encode(), content) for headers, content in parts
    )
    return written + b"--%b--\r\n" % boundary.encode()


def part(name: str, content: bytes = b"{}", more: str = "") -> tuple[str, bytes]:
    return f"Content-Disposition: form-data; name={name}{more}", content


def test_a_form_as_the_npm_client_sends_it() -> None:
    """The part with the JSON has no file name and an unquoted name, and the files have their positions."""
    boundary = "----Part-0b9c"
    body = encoded(
        ("content-type: application/json\r\ncontent-disposition: form-data; name=json", b'{"messages":[]}'),
        (
            "content-type: text/plain; charset=utf-8\r\n"
            'content-disposition: form-data; name="messages[1].files[0]"; filename="n.txt"',
            b"line\r\n--edge\r\n",
        ),
        ('content-disposition: form-data; name="messages[1].files[1]"\r\ncontent-type: IMAGE/PNG', b"\x00\xff"),
        boundary=boundary,
    )
    parsed = multipart.parse(body, f"multipart/form-data; boundary={boundary}")
    assert parsed.json == b'{"messages":[]}'
    assert parsed.files == (
        File(1, "messages[1].files[0]", "n.txt", "text/plain", b"line\r\n--edge\r\n"),
        File(1, "messages[1].files[1]", "messages[1].files[1]", "image/png", b"\x00\xff"),
    )


@pytest.mark.parametrize(
    ("body", "media", "message"),
    [
        (b"", TYPE, "is cut off"),
        (b"{}", TYPE, "cannot be read"),
        (encoded(part("json")), "multipart/form-data", "must name the boundary"),
        (encoded(part("json")), "multipart/form-data; boundary=other", "cannot be read"),
        (encoded(part("json"))[:-8], TYPE, "is cut off"),
        (encoded(part("messages[0].files[0]")), TYPE, "no part named 'json'"),
        (encoded(part("json"), part("json")), TYPE, "several parts named 'json'"),
        (
            encoded(part("json"), *[part('"messages[0].files[0]"')] * 2),
            TYPE,
            "several parts named 'messages[0].files[0]'",
        ),
        (encoded(part("json"), part("file")), TYPE, "a part named 'file'"),
        (encoded(part("json"), part('"messages[x].files[0]"')), TYPE, "a part named 'messages[x]"),
        (encoded(part("json"), ("Content-Type: text/plain", b"x")), TYPE, "a part named ''"),
        (encoded(*[part(f'"messages[0].files[{n}]"') for n in range(MAX_PARTS + 1)]), TYPE, "more than"),
        (encoded((f"X: {'x' * 5000}", b"")), TYPE, "cannot be read"),
    ],
)
def test_invalid_forms_are_refused(body: bytes, media: str, message: str) -> None:
    """The error gives the reason, also for an unknown part."""
    with pytest.raises(InvalidRequest) as caught:
        multipart.parse(body, media)
    assert message in caught.value.message


@given(st.binary(max_size=60), st.lists(st.binary(max_size=60), max_size=3))
def test_contents_remain_unchanged(json: bytes, contents: list[bytes]) -> None:
    """All bytes remain unchanged, unless they contain the boundary."""
    assume(not any(b"--edge" in content for content in (json, *contents)))
    parts = [part(f'"messages[0].files[{at}]"', content) for at, content in enumerate(contents)]
    parsed = multipart.parse(encoded(part("json", json), *parts), TYPE)
    assert parsed.json == json
    assert [file.content for file in parsed.files] == contents


@given(st.binary(max_size=200), st.text(max_size=40))
def test_any_bytes_are_parsed_or_refused(body: bytes, media: str) -> None:
    """Any body and any media type raise no error other than `InvalidRequest`."""
    for content in (body, encoded(part("json"))[: len(body)] + body):
        for content_type in (TYPE, f"multipart/form-data; boundary={media}", media):
            with contextlib.suppress(InvalidRequest):
                multipart.parse(content, content_type)
