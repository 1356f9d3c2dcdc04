import base64
import json
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.domain import Action, Delta, Detector, Detectors
from gateway.main import build_app
from gateway.settings import Settings
from servicekit.errors import InvalidRequest, Unavailable

URL = "/2024-05-29/chat"
QUESTION = {"role": "user", "content": "When?"}
PICTURE = b"\x89PNG\r\n\x1a\n\x00--"


def form(body: Any, *files: tuple[str, str, str, bytes]) -> list[tuple[str, Any]]:
    """Return the parts of a form: its JSON, then files with their part name, file name, type and content."""
    parts: list[tuple[str, Any]] = [("json", (None, json.dumps(body), "application/json"))]
    return parts + [(part, (name or None, content, media)) for part, name, media, content in files]


async def test_an_answer_in_one_piece(client: httpx.AsyncClient) -> None:
    """The answer's keys are in camel case, and the message has only its role and its content."""
    body = {"messages": [QUESTION | {"context": {"a": 1}}], "sessionState": {"id": 1}, "session_state": "not read"}
    answer = (await client.post(URL, json=body)).json()
    assert list(answer) == ["message", "context", "sessionState"]
    assert answer["message"] == {"content": "At nine.", "role": "assistant"}
    assert answer["sessionState"] == {"id": 1}


async def test_a_streamed_answer(client: httpx.AsyncClient) -> None:
    """The stream has its own media type, and a delta has only its content."""
    response = await client.post(f"{URL}/stream", json={"messages": [QUESTION]})
    assert response.headers["content-type"] == "application/jsonl"
    first, *middle, last = [json.loads(line) for line in response.text.splitlines()]
    assert list(first) == list(last) == ["delta", "context", "sessionState"]
    assert middle == [{"delta": {"content": text}} for text in ("At ", "nine", ".")]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"messages": "x", "context": {"overrides": {"index": "nowhere"}}}, 404, "not_found"),
        ({"messages": "x" * 30_000}, 413, "payload_too_large"),
    ],
)
async def test_an_error_has_a_code(client: httpx.AsyncClient, body: Any, status: int, code: str) -> None:
    """The error has a code and a message, and no other key."""
    response = await client.post(URL, json=body)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"code", "message"}
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize("kind", ["a defect", "a deadline"])
async def test_a_failure_after_the_first_token_is_a_424(client: httpx.AsyncClient, fakes: Any, kind: str) -> None:
    """After the model's first token, a failure is a 424, because the protocol's client retries after a 5xx.

    In other stages, the failure is a 5xx.
    """

    class Broken(type(fakes.generator)):  # type: ignore[misc]  # the fake's own class
        async def generate(self, *_: Any) -> Any:
            yield [Delta(0, "At ")]
            raise RuntimeError if kind == "a defect" else TimeoutError

    fakes.generator = Broken()
    transport = httpx.ASGITransport(build_app(Settings(default_index="docs"), fakes.services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as broken_client:
        response = await broken_client.post(URL, json={"messages": "x"})
        assert response.status_code == 424
        assert response.json()["error"]["code"] == "broken_off"
        assert (await broken_client.post("/2024-04/chat", json={"messages": "x"})).status_code >= 500


@pytest.mark.parametrize("path", [URL, f"{URL}/stream"])
async def test_a_failure_after_query_rewriting_is_a_424(client: httpx.AsyncClient, fakes: Any, path: str) -> None:
    """After a model has rewritten the query, a failure is a 424. An error of the client is still a 400."""
    conversation = [
        QUESTION,
        {"role": "assistant", "content": "At nine."},
        {"role": "user", "content": "And then?"},
    ]
    body = {"messages": conversation, "context": {"overrides": {"query_rewriting": True}}}
    fakes.generator.scripts.append(FakeGenerator.words("ferry"))
    fakes.generator.script = [Unavailable("The model is away.")]
    response = await client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (424, "broken_off")
    without_rewriting = await client.post(path, json=body | {"context": {}})
    assert (without_rewriting.status_code, without_rewriting.json()["error"]["code"]) == (503, "unavailable")
    fakes.generator.scripts.append(FakeGenerator.words("ferry"))
    fakes.generator.script = [InvalidRequest("Not so warm.", field="temperature")]
    assert (await client.post(path, json=body)).status_code == 400


async def test_a_failure_after_withheld_tokens_is_a_424(client: httpx.AsyncClient, fakes: Any) -> None:
    """A failure is also a 424 while detectors still hold back the model's tokens."""
    fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))
    fakes.generator.script = [[Delta(0, "sec")], Unavailable("The model is away.")]
    response = await client.post(URL, json={"messages": [QUESTION]})
    assert response.status_code == 424


async def test_text_files_precede_their_message(client: httpx.AsyncClient, fakes: Any) -> None:
    """Each file becomes a message with the file's name, before the message that contains the file.

    The retriever searches only for the question.
    """
    earlier = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": "Yes."}]
    files = [
        ("messages[2].files[0]", "notes.md", "text/markdown", "# Früh\nAt eight.".encode()),
        ("messages[0].files[0]", "", "text/plain; charset=utf-8", b"\xef\xbb\xbfold"),
        ("messages[2].files[1]", "data.json", "application/json", b"{}"),
    ]
    for path in (URL, f"{URL}/stream"):
        response = await client.post(
            path, files=form({"messages": [*earlier, QUESTION], "sessionState": 7}, *files)
        )
        assert response.status_code == 200
        assert json.loads(response.text.splitlines()[-1])["sessionState"] == 7
    _, *earlier_messages, question = fakes.generator.prompts[0].messages
    assert [(message.role, message.text) for message in earlier_messages] == [
        ("user", "messages[0].files[0]:\nold"),
        ("user", "Look."),
        ("assistant", "Yes."),
        ("user", "notes.md:\n# Früh\nAt eight."),
        ("user", "data.json:\n{}"),
    ]
    assert question.text.startswith("When?\n\nSources:")
    assert fakes.retriever.queries == ["When?", "When?"]


async def test_a_picture_becomes_an_image_part(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model gets the picture as an `image_url` part of a message. The thoughts do not contain it."""
    files = form({"messages": [QUESTION]}, ("messages[0].files[0]", "map.png", "image/png", PICTURE))
    response = await client.post(URL, files=files)
    assert response.status_code == 200
    message = fakes.generator.prompts[0].messages[1]
    assert (message.role, message.text) == ("user", "")
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert json.loads(message.content_json) == [
        {"type": "text", "text": "map.png:"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    assert "base64" not in response.text


async def test_detectors_refuse_pictures(client: httpx.AsyncClient, fakes: Any) -> None:
    """With input detectors, the gateway refuses a picture, and the detectors judge the text of a file."""
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),))
    picture = form({"messages": [QUESTION]}, ("messages[0].files[0]", "map.png", "image/png", PICTURE))
    response = await client.post(URL, files=picture)
    assert response.status_code == 415
    assert "messages[0].files[0] (map.png) is a picture" in response.json()["error"]["message"]
    text = form({"messages": [QUESTION]}, ("messages[0].files[0]", "a.txt", "text/plain", b"a secret"))
    response = await client.post(URL, files=text)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "blocked")


@pytest.mark.parametrize(
    ("media", "content", "status"),
    [
        ("application/pdf", b"%PDF-1.7", 415),
        ("application/octet-stream", b"x", 415),
        ("image/tiff", b"x", 415),
        ("text/plain", b"\xff\xfe", 400),
    ],
)
async def test_other_files_are_refused_by_name(
    client: httpx.AsyncClient, media: str, content: bytes, status: int
) -> None:
    """The error names the file."""
    files = form({"messages": [QUESTION]}, ("messages[0].files[0]", "it", media, content))
    response = await client.post(URL, files=files)
    assert response.status_code == status
    assert "messages[0].files[0] (it)" in response.json()["error"]["message"]


async def test_a_file_without_a_message_is_refused(client: httpx.AsyncClient) -> None:
    """The error names the message that does not exist."""
    files = form({"messages": [QUESTION]}, ("messages[1].files[0]", "it", "text/plain", b"x"))
    response = await client.post(URL, files=files)
    assert response.status_code == 400
    assert "messages[1]" in response.json()["error"]["message"]
