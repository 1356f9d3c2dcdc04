"""Features of a conversation, on any stack and with any model."""

from typing import Any

import httpx

QUESTION = "When will the pivot bearing be renewed?"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
HISTORY = [
    {"role": "user", "content": "Who looks after the Brannoch bridge?"},
    {"role": "assistant", "content": "The works department."},
]


def ask(http: httpx.Client, index: str, *history: dict[str, str], **overrides: Any) -> Any:
    body = {
        "messages": [*history, {"role": "user", "content": QUESTION}],
        "context": {"overrides": {"index": index, **overrides}},
    }
    return http.post("/2024-04/chat", json=body).raise_for_status().json()


def thoughts(answer: Any) -> dict[str, Any]:
    return {thought["title"]: thought for thought in answer["context"]["thoughts"]}


def test_unsupported_options_do_not_fail_the_answer(http: httpx.Client, corpus: str) -> None:
    """Options that the stack does not support do not fail the answer. The thoughts have notes about them."""
    wishes = {"semantic_ranker": True, "semantic_captions": True, "minimum_reranker_score": 1, "use_gpt4v": True}
    answer = ask(http, corpus, **wishes)
    assert SOURCE in answer["context"]["data_points"]["citations"]
    results = thoughts(answer)["Results"]
    if all(result["reranker_score"] is None for result in results["description"]):
        assert any("No reranker" in note for note in results["props"]["notes"])
    assert any("pictures" in note for note in results["props"]["notes"])


def test_a_search_query_is_made_or_it_is_said_why_not(http: httpx.Client, corpus: str) -> None:
    """The model rewrites the query. For a model that cannot, the question is the query, with a note."""
    query = thoughts(ask(http, corpus, *HISTORY, query_rewriting=True))["Generated search query"]
    if "token_usage" not in query["props"]:
        assert query["description"] == QUESTION
        assert len(query["props"]["notes"]) == 1
    assert query["props"]["duration_ms"] > 0


def test_follow_up_questions_are_no_part_of_the_text(http: httpx.Client, corpus: str) -> None:
    """Follow-up questions are not in the text. If the model asks none, a note says so."""
    answer = ask(http, corpus, suggest_followup_questions=True)
    assert "<<" not in answer["message"]["content"]
    if "followup_questions" not in answer["context"]:
        assert "follow-up" in str(thoughts(answer)["Prompt"]["props"].get("notes"))


def test_a_very_long_conversation(http: httpx.Client, corpus: str) -> None:
    """A question after a very long conversation is answered from its sources. The thoughts count the dropped
    messages.
    """
    history = [
        {"role": role, "content": f"{number} " + "word " * 500}
        for number in range(400)
        for role in ("user", "assistant")
    ]
    answer = ask(http, corpus, *history)
    assert SOURCE in answer["context"]["data_points"]["citations"]
    assert thoughts(answer)["Prompt"]["props"]["messages_left_out"] > 0
