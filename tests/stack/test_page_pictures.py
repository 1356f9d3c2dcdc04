"""Pictures of pages from the upload to the model, and their removal."""

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
async def seeing(tmp_path: Path, start_stack: StartStack) -> AsyncIterator[tuple[Any, ModelServer]]:
    """Start a stack with a model that takes pictures."""
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
    job = await stack.finished(response.raise_for_status().json()["jobs"][0]["id"])
    assert job["state"] == "succeeded", job
    return job


async def kept(stack: Any) -> list[str]:
    """Return the pages with pictures."""
    client = await nats.connect(stack.description()["nats_url"], "test")
    try:
        transport = await nats.ingest_transport(client)
        stream = await transport.jetstream.stream_info(f"KV_{keys.PICTURES_BUCKET}", subjects_filter=">")
        return sorted(subject.rpartition(".")[2] for subject in stream.state.subjects or {})
    finally:
        await client.close()


def shown(model: ModelServer) -> list[Any]:
    """Return the pictures of the latest request."""
    content = model.requests[-1].json()["messages"][-1]["content"]
    parts = content if isinstance(content, list) else []
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]


async def test_from_the_upload_to_the_model(seeing: tuple[Any, ModelServer]) -> None:
    """The model gets the pictures of the found pages. A new version and a deletion remove them."""
    stack, model = seeing
    await upload(stack, pdf("The pump weighs nine tons.", "The valve is made of brass."), pictures="true")
    assert await kept(stack) == ["1", "2"]
    question = stack.question("What does the pump weigh?", "manuals", use_gpt4v=True, top=1)
    answer = (await stack.http.post("/2024-04/chat", json=question)).raise_for_status().json()
    [picture] = shown(model)
    assert picture.format == "JPEG"
    assert [image["url"][:23] for image in answer["context"]["data_points"]["images"]] == [
        "data:image/jpeg;base64,"
    ]
    assert answer["context"]["data_points"]["citations"] == ["pumps.pdf#page=1"]
    assert (await stack.http.get("/config")).json()["showMultimodalOptions"] is True

    job = await upload(stack, pdf("The pump weighs ten tons."), pictures="true")
    assert await kept(stack) == ["1"]
    body = {"doc_ids": [job["document_id"]]}
    (await stack.http.post("/indexes/manuals/documents/delete", json=body)).raise_for_status()
    assert await kept(stack) == []


async def test_without_pictures(seeing: tuple[Any, ModelServer]) -> None:
    """An upload without pictures keeps none, and the answer has a note with the reason."""
    stack, model = seeing
    await upload(stack, pdf("The pump weighs nine tons."))
    assert await kept(stack) == []
    question = stack.question("What does the pump weigh?", "manuals", use_gpt4v=True)
    answer = (await stack.http.post("/2026-04-10/chat", json=question)).raise_for_status().json()
    assert shown(model) == []
    results = next(each for each in answer["context"]["thoughts"] if each["title"] == "Results")
    assert results["props"]["notes"] == ["No pictures of these pages are stored: the model got their text."]
