import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from gateway.answering import budget, page_pictures
from gateway.domain import Action, Detector, Detectors, Passage
from servicekit.errors import Unavailable

PAGES = ["guide-1.pdf#page=1", "guide-2.pdf#page=2"]
JPEGS = [b"\xff\xd8one", b"\xff\xd8two"]
URLS = [f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}" for jpeg in JPEGS]
OVERRIDES = {"use_gpt4v": True, "gpt4v_input": "textAndImages"}
STAGES = ["/2024-01", "/2024-01-28", "/2024-04", "/2024-05-29", "/2026-04-10"]


def pictured(passage: Passage) -> Passage:
    return replace(passage, sha256=f"sha of {passage.document_id}", has_pictures=True)


@pytest.fixture(autouse=True)
def stored_pictures(fakes: Any) -> None:
    """Store pictures of both pages for a model that accepts pictures."""
    fakes.generator.takes_pictures = True
    passages = fakes.retriever.indexes["docs"] = [pictured(passage) for passage in fakes.retriever.indexes["docs"]]
    for each, jpeg in zip(passages, JPEGS, strict=True):
        fakes.pictures.contents["local", "docs", each.document_id, each.sha256, each.page] = jpeg


@pytest.fixture
def ask(client: httpx.AsyncClient) -> Callable[..., Any]:
    async def answer_context(overrides: dict[str, Any], stage: str = "/2024-04") -> Any:
        body = {"messages": [{"role": "user", "content": "the ferry?"}], "context": {"overrides": overrides}}
        response = await client.post(f"{stage}/chat", json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        return (answer["choices"][0] if "choices" in answer else answer)["context"]

    return answer_context


def parts(fakes: Any) -> list[Any]:
    question = fakes.generator.prompts[-1].messages[-1]
    assert question.text == ""
    found: list[Any] = json.loads(question.content_json)
    return found


def notes(context: Any) -> list[str]:
    thought = next(thought for thought in context["thoughts"] if thought["title"] == "Results")
    texts: list[str] = thought["props"].get("notes", [])
    return texts


@pytest.mark.parametrize("stage", STAGES)
async def test_the_model_sees_the_pages(ask: Any, fakes: Any, stage: str) -> None:
    """The model gets the pictures with their names after the question, and the client gets the same pictures.

    The prompt in the thoughts has a placeholder for a picture.
    """
    context = await ask(OVERRIDES, stage)
    text, *others = parts(fakes)
    assert text["text"].startswith("the ferry?\n\nSources:\nguide-1.pdf#page=1: The ferry leaves at nine.")
    assert others == [
        {"type": "text", "text": "guide-1.pdf#page=1:"},
        {"type": "image_url", "image_url": {"url": URLS[0]}},
        {"type": "text", "text": "guide-2.pdf#page=2:"},
        {"type": "image_url", "image_url": {"url": URLS[1]}},
    ]
    shown = context["data_points"]["images"]
    assert shown == (URLS if stage == "/2026-04-10" else [{"detail": "auto", "url": url} for url in URLS])
    assert context["data_points"]["citations"] == PAGES
    assert notes(context) == []
    prompt = json.dumps(next(thought for thought in context["thoughts"] if thought["title"] == "Prompt"))
    assert "(a picture)" in prompt
    assert "base64" not in prompt


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"use_gpt4v": True, "gpt4v_input": "texts"},
        {"use_gpt4v": False, "gpt4v_input": "images"},
        {"send_image_sources": False, "use_gpt4v": True},
    ],
)
async def test_without_a_request_there_are_no_pictures(ask: Any, fakes: Any, overrides: dict[str, Any]) -> None:
    """A request without pictures gets neither pictures nor a note."""
    context = await ask(overrides)
    assert fakes.generator.prompts[-1].messages[-1].content_json == b""
    assert context["data_points"]["images"] == []
    assert notes(context) == []


@pytest.mark.parametrize(
    "overrides",
    [{"use_gpt4v": True, "gpt4v_input": "images"}, {"send_image_sources": True, "send_text_sources": False}],
)
async def test_pictures_instead_of_text(ask: Any, fakes: Any, overrides: dict[str, Any]) -> None:
    """The model gets the picture of a page instead of its text. A page without a picture keeps its text.

    The data points have all texts.
    """
    plain = replace(fakes.retriever.indexes["docs"][1], has_pictures=False)
    fakes.retriever.indexes["docs"][1] = plain
    context = await ask(overrides)
    text, *others = parts(fakes)
    assert "leaves at nine" not in text["text"]
    assert "opens at noon" in text["text"]
    assert [part["type"] for part in others] == ["text", "image_url"]
    assert len(context["data_points"]["text"]) == 2


async def test_a_page_is_shown_once(ask: Any, fakes: Any) -> None:
    """A page with several passages is shown once, at the place of its first passage."""
    first, second = fakes.retriever.indexes["docs"]
    fakes.retriever.indexes["docs"] = [first, second, replace(first, id="p9", score=0.1)]
    assert [image["url"] for image in (await ask(OVERRIDES))["data_points"]["images"]] == URLS


def text_only_model(fakes: Any) -> None:
    fakes.generator.takes_pictures = False


def with_context_detectors(fakes: Any) -> None:
    fakes.policy = Detectors(context=(Detector("words", Action.REDACT),))


def without_page_pictures(fakes: Any) -> None:
    fakes.retriever.indexes["docs"] = [
        replace(passage, has_pictures=False) for passage in fakes.retriever.indexes["docs"]
    ]


def with_lost_pictures(fakes: Any) -> None:
    fakes.pictures.contents.clear()


def with_unavailable_store(fakes: Any) -> None:
    fakes.pictures.failure = Unavailable("Down.")


def with_small_window(fakes: Any) -> None:
    fakes.generator.window = budget.PICTURE_TOKENS


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (text_only_model, page_pictures.NOT_ACCEPTED),
        (with_context_detectors, page_pictures.NOT_JUDGED),
        (without_page_pictures, page_pictures.NOT_STORED),
        (with_lost_pictures, page_pictures.NOT_STORED),
        (with_unavailable_store, page_pictures.NOT_FETCHED),
        (with_small_window, page_pictures.NO_ROOM),
    ],
)
async def test_a_note_has_the_reason_for_missing_pictures(
    ask: Any, fakes: Any, change: Callable[[Any], None], note: str
) -> None:
    """The model gets the text instead of missing pictures, and a note has the reason."""
    change(fakes)
    context = await ask({"use_gpt4v": True, "gpt4v_input": "images"})
    question = fakes.generator.prompts[-1].messages[-1]
    assert "leaves at nine" in question.text
    assert context["data_points"]["images"] == []
    assert notes(context) == [note]


async def test_the_best_pages_that_fit_are_shown(ask: Any, fakes: Any) -> None:
    """The best pages are shown as far as they fit, and a note has the number of the others."""
    fakes.generator.window = 3 * budget.PICTURE_TOKENS
    context = await ask(OVERRIDES | {"max_tokens": 1024})
    assert [image["url"] for image in context["data_points"]["images"]] == URLS[:1]
    assert notes(context) == ["Pages whose pictures the model did not get: 1."]


async def test_pictures_go_with_their_documents(client: httpx.AsyncClient, fakes: Any) -> None:
    """The pictures of a removed document or index are removed. Documents without pictures cause no call."""
    fakes.retriever.indexes["docs"].append(replace(fakes.retriever.indexes["docs"][0], document_id="plain"))
    fakes.retriever.indexes["docs"][-1] = replace(fakes.retriever.indexes["docs"][-1], has_pictures=False)
    response = await client.post("/indexes/docs/documents/delete", json={"doc_ids": ["d1", "plain", "missing"]})
    assert response.status_code == 200
    assert fakes.pictures.forgotten == [("docs", ("d1",))]
    assert [key[2] for key in fakes.pictures.contents] == ["d2"]
    assert (await client.delete("/indexes/docs")).status_code == 200
    assert fakes.pictures.contents == {}


async def test_a_form_can_request_pictures(client: httpx.AsyncClient, fakes: Any) -> None:
    """Pictures are stored if a field of the form requests them."""
    for fields in ({}, {"pictures": "true"}):
        files = {"file": ("a.pdf", b"%PDF-")}
        response = await client.post("/documents", data={"index": "docs", **fields}, files=files)
        assert response.status_code == 202
    assert [upload.pictures for upload in fakes.ingest.uploads] == [False, True]


async def test_the_configuration_offers_pictures(client: httpx.AsyncClient, fakes: Any) -> None:
    """The configuration offers pictures if the model accepts them."""
    for takes in (True, False):
        fakes.generator.takes_pictures = takes
        config = (await client.get("/config")).json()
        assert config["showMultimodalOptions"] is takes
        assert config["showGPT4VOptions"] is takes
