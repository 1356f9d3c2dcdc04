import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator
from gateway.dialects.rag_chat.azure_js import follow_ups_text, pieces, thoughts_html
from gateway.domain import Action, Detector, Detectors, FollowUps
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings
from hypothesis import given
from hypothesis import strategies as st

PROFILE = """
frontends:
  - {name: js, mount: js, dialect: "2024-01", client: azure-js-component, index: docs}
"""
TWO = ["guide-2.pdf#page=2: The bridge opens at noon."]
BODY = {"messages": [{"role": "user", "content": "<b>When?</b>"}], "context": {"top": 2, "approach": "rrr"}}


@given(st.text(max_size=60))
def test_pieces_add_up_to_the_text(text: str) -> None:
    """The joined pieces are the text, and no piece is empty."""
    assert "".join(pieces(text)) == text
    assert all(pieces(text))


@given(st.text(alphabet="ab1 9.[]#=\n", max_size=60))
def test_a_piece_with_a_digit_has_only_digits(text: str) -> None:
    """A piece with a digit has only digits, because the component reads it as the number of a step."""
    for piece in pieces(text):
        if any(character.isdigit() for character in piece):
            assert piece.isdigit()
            assert len(piece) <= 3


def test_pieces_are_as_small_as_tokens() -> None:
    """A piece is a word with its space, a mark, up to three digits, or the marks of a follow-up question."""
    assert pieces("Since 2027. [a-1.pdf#page=12]") == [
        *("Since", " ", "202", "7", ".", " ", "[", "a", "-", "1", ".", "pdf", "#", "page", "=", "12", "]"),
    ]
    assert pieces(follow_ups_text(["Why so?", "Who?"])) == [
        *("\n\n", "<<", "Why", " so", "?", ">>\n", "<<", "Who", "?", ">>\n"),
    ]
    assert follow_ups_text([]) == ""


def test_thoughts_are_one_string_of_html() -> None:
    """The texts of questions and passages are escaped."""
    result = {"sourcepage": "a&b.pdf", "content": "<script>alert(1)</script>"}
    html = thoughts_html(
        [
            {"title": "Original user query", "description": "<img src=x onerror=y>", "props": None},
            {"title": "Results", "description": [result, "it's"], "props": {}},
        ]
    )
    assert html == (
        "<h3>Original user query</h3><p>&lt;img src=x onerror=y&gt;</p>"
        "<h3>Results</h3><ul><li>a&amp;b.pdf: &lt;script&gt;alert(1)&lt;/script&gt;</li><li>it&#x27;s</li></ul>"
    )


@pytest.fixture
async def component(fakes: Any, settings: Settings, tmp_path: Path) -> Any:
    """Return a client for the paths of the component's profile."""
    (tmp_path / "frontends.yaml").write_text(PROFILE)
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    transport = httpx.ASGITransport(build_app(settings, fakes.services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway/js") as client:
        yield client


def check_context(context: Any) -> None:
    assert context["data_points"]["text"] == ["guide-1.pdf#page=1: The ferry leaves at nine.", *TWO]
    assert isinstance(context["thoughts"], str)
    assert "<p>&lt;b&gt;When?&lt;/b&gt;</p>" in context["thoughts"]


async def test_an_answer_in_one_piece(component: httpx.AsyncClient, fakes: Any) -> None:
    """The message has the context, and the follow-up questions are at the end of its text."""
    fakes.generator.script.insert(-1, [FollowUps(("Why?",))])
    for path in ("/chat", "/ask"):
        [choice] = (await component.post(path, json=BODY)).json()["choices"]
        assert set(choice) == {"message", "session_state", "finish_reason", "index", "content_filter_results"}
        assert choice["message"]["content"] == "At nine.\n\n<<Why?>>\n"
        check_context(choice["message"]["context"])


async def test_a_streamed_answer(component: httpx.AsyncClient, fakes: Any) -> None:
    """The first delta has the context, each token has a line, and the follow-up questions end the text."""
    fakes.generator.script = FakeGenerator.saying("At 9 [guide-1.pdf#page=1].").script
    fakes.generator.script.insert(-1, [FollowUps(("Why?",))])
    response = await component.post("/chat", json=BODY | {"stream": True})
    first, *middle, last = [json.loads(line) for line in response.text.splitlines()]
    assert first["choices"][0]["delta"]["role"] == "assistant"
    check_context(first["choices"][0]["delta"]["context"])
    texts = [line["choices"][0]["delta"]["content"] for line in middle]
    assert texts == pieces("At 9 [guide-1.pdf#page=1].\n\n<<Why?>>\n")
    assert isinstance(last["choices"][0]["delta"]["context"]["thoughts"], str)
    assert "content" not in last["choices"][0]["delta"]


async def test_guarded_text_is_split_again(component: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway splits text that detectors release at once into pieces of one token."""
    fakes.policy = Detectors(output=(Detector("words", Action.REDACT),))
    fakes.generator.script = FakeGenerator.saying("one two sec", "ret three 4").script
    response = await component.post("/chat", json=BODY | {"stream": True})
    _, *middle, _ = [json.loads(line) for line in response.text.splitlines()]
    texts = [line["choices"][0]["delta"]["content"] for line in middle]
    assert "".join(texts) == "one two [REDACTED] three 4"
    assert max(map(len, texts)) == len("REDACTED")
