"""Files inside messages, as some clients of the stage 2024-05-29 send them."""

import base64
import json
from typing import Any

import httpx
import pytest

URL = "/2024-05-29/chat"
PICTURE = b"\x89PNG\r\n\x1a\n\x00--"


def packed(content: bytes) -> str:
    return base64.b64encode(content).decode()


def body_with(files: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "When?", "files": files}]}


NOTES = {"contentType": "text/plain; charset=utf-8", "data": packed("Tä\n".encode()), "filename": "notes.txt"}


async def test_files_inside_messages_precede_their_message(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model gets each file with its name before the message. The retriever searches only for the question."""
    unnamed = {"contentType": "application/json", "data": packed(b"{}")}
    picture = {"contentType": "image/png", "data": packed(PICTURE), "name": "ship.png"}
    response = await client.post(URL, json=body_with([NOTES, unnamed, picture]))
    assert response.status_code == 200, response.text
    _, *files, question = fakes.generator.prompts[0].messages
    assert [message.text for message in files] == ["notes.txt:\nTä\n", "messages[0].files[1]:\n{}", ""]
    shown = json.loads(files[2].content_json)
    assert shown[0]["text"] == "ship.png:"
    assert shown[1]["image_url"]["url"] == f"data:image/png;base64,{packed(PICTURE)}"
    assert question.text.startswith("When?")
    assert fakes.retriever.queries == ["When?"]


async def test_files_of_a_form_come_first(client: httpx.AsyncClient, fakes: Any) -> None:
    """The files of a form precede the files inside the messages."""
    parts: list[tuple[str, Any]] = [
        ("json", (None, json.dumps(body_with([NOTES])), "application/json")),
        ("messages[0].files[0]", ("a.txt", b"A", "text/plain")),
    ]
    assert (await client.post(URL, files=parts)).status_code == 200
    assert [message.text for message in fakes.generator.prompts[0].messages[1:3]] == [
        "a.txt:\nA",
        "notes.txt:\nTä\n",
    ]


@pytest.mark.parametrize(
    ("files", "status", "field"),
    [
        ("x", 400, "messages[0].files must be a list"),
        (["x"], 400, "messages[0].files[0] must be an object"),
        ([NOTES, {"data": "QQ=="}], 400, "messages[0].files[1].contentType"),
        ([{"contentType": "text/plain"}], 400, "messages[0].files[0].data"),
        ([NOTES | {"data": 7}], 400, "messages[0].files[0].data"),
        ([NOTES | {"data": "no base64!"}], 400, "messages[0].files[0].data is not valid base64"),
        ([NOTES | {"data": "ä"}], 400, "messages[0].files[0].data is not valid base64"),
        ([NOTES | {"data": packed(b"\xff")}], 400, "messages[0].files[0] (notes.txt) is not text in UTF-8"),
        ([NOTES | {"filename": 7}], 400, "messages[0].files[0].filename"),
        ([NOTES] * 65, 400, "messages[0].files has too many files"),
        (
            [NOTES | {"contentType": "application/pdf"}],
            415,
            "messages[0].files[0] (notes.txt) has the media type 'application/pdf'",
        ),
    ],
)
async def test_invalid_files_are_refused(
    client: httpx.AsyncClient, fakes: Any, files: Any, status: int, field: str
) -> None:
    """The error names the file's field, and the model is not called."""
    response = await client.post(URL, json=body_with(files))
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"].startswith(field)
    assert fakes.generator.prompts == []


@pytest.mark.parametrize(
    "path", ["/2024-01/chat", "/2024-01/ask", "/2024-01-28/chat", "/2024-04/chat", "/2026-04-10/chat"]
)
async def test_other_stages_refuse_files(client: httpx.AsyncClient, fakes: Any, path: str) -> None:
    """Other stages refuse files, and accept null or an empty list."""
    response = await client.post(path, json=body_with([NOTES]))
    assert response.status_code == 400
    assert response.json()["error"].startswith("messages[0].files are not supported in this protocol version")
    assert fakes.generator.prompts == []
    nothing: Any
    for nothing in (None, []):
        assert (await client.post(path, json=body_with(nothing))).status_code == 200
