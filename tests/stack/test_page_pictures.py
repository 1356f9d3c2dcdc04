"""Pictures of pages: from the upload to the model, and their deletion."""

import base64
import io
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_server import ModelServer
from fpdf import FPDF
from PIL import Image
from servicekit import keys, nats

StartStack = Callable[..., AbstractAsyncContextManager[Any]]


def pdf(*pages: str) -> bytes:
    document = FPDF()
    document.set_font("Helvetica", size=14)
    for text in pages:
        document.add_page()
        document.multi_cell(0, 10, text)
    return bytes(document.output())


@pytest.fixture
async def stack_with_pictures(tmp_path: Path, start_stack: StartStack) -> AsyncIterator[tuple[Any, ModelServer]]:
    """Start a stack with a model that accepts pictures."""
    async with ModelServer.started(tokens=3) as model:
        environment = {
            "CAUSEWAY_OPENAI_BASE_URL": model.url,
            "CAUSEWAY_OPENAI_MODELS": "stub",
            "CAUSEWAY_OPENAI_PICTURES": "true",
            "CAUSEWAY_MODEL": "stub",
        }
        async with start_stack(tmp_path / "data", **environment) as stack:
            yield stack, model


async def upload(stack: Any, content: bytes, **fields: str) -> Any:
    files = {"file": ("pumps.pdf", content)}
    response = await stack.http.post("/documents", data={"index": "manuals", **fields}, files=files)
    job = await stack.wait_for_job(response.raise_for_status().json()["jobs"][0]["id"])
    assert job["state"] == "succeeded", job
    return job


async def stored_pages(stack: Any) -> list[str]:
    """Return the numbers of the pages whose pictures are stored."""
    client = await nats.connect(stack.description()["nats_url"], "test")
    try:
        transport = await nats.ingest_transport(client)
        stream = await transport.jetstream.stream_info(f"KV_{keys.PICTURES_BUCKET}", subjects_filter=">")
        return sorted(subject.rpartition(".")[2] for subject in stream.state.subjects or {})
    finally:
        await client.close()


def sent_pictures(model: ModelServer) -> list[Any]:
    """Return the pictures in the latest request to the model."""
    content = model.requests[-1].json()["messages"][-1]["content"]
    parts = content if isinstance(content, list) else []
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]


async def test_from_the_upload_to_the_model(stack_with_pictures: tuple[Any, ModelServer]) -> None:
    """The model receives the pictures of the found pages. A new version or a deletion of the document deletes
    them.
    """
    stack, model = stack_with_pictures
    await upload(stack, pdf("The pump weighs nine tons.", "The valve is made of brass."), pictures="true")
    assert await stored_pages(stack) == ["1", "2"]
    question = stack.question("What does the pump weigh?", "manuals", use_gpt4v=True, top=1)
    answer = (await stack.http.post("/2024-04/chat", json=question)).raise_for_status().json()
    [picture] = sent_pictures(model)
    assert picture.format == "JPEG"
    assert [image["url"][:23] for image in answer["context"]["data_points"]["images"]] == [
        "data:image/jpeg;base64,"
    ]
    assert answer["context"]["data_points"]["citations"] == ["pumps.pdf#page=1"]
    assert (await stack.http.get("/config")).json()["showMultimodalOptions"] is True

    job = await upload(stack, pdf("The pump weighs ten tons."), pictures="true")
    assert await stored_pages(stack) == ["1"]
    body = {"doc_ids": [job["document_id"]]}
    (await stack.http.post("/indexes/manuals/documents/delete", json=body)).raise_for_status()
    assert await stored_pages(stack) == []


async def test_an_upload_without_pictures(stack_with_pictures: tuple[Any, ModelServer]) -> None:
    """An upload without the field `pictures` stores no pictures. The answer has a note with the reason."""
    stack, model = stack_with_pictures
    await upload(stack, pdf("The pump weighs nine tons."))
    assert await stored_pages(stack) == []
    question = stack.question("What does the pump weigh?", "manuals", use_gpt4v=True)
    answer = (await stack.http.post("/2026-04-10/chat", json=question)).raise_for_status().json()
    assert sent_pictures(model) == []
    results = next(each for each in answer["context"]["thoughts"] if each["title"] == "Results")
    assert results["props"]["notes"] == ["No pictures of these pages are stored: the model got their text."]
