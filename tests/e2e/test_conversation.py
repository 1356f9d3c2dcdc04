"""Features of a conversation. The tests must pass with every configuration of the stack and with every model."""

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
    """An answer succeeds although the stack does not support an option. The thoughts have a note about each
    option.
    """
    options = {"semantic_ranker": True, "semantic_captions": True, "minimum_reranker_score": 1, "use_gpt4v": True}
    answer = ask(http, corpus, **options)
    assert SOURCE in answer["context"]["data_points"]["citations"]
    results = thoughts(answer)["Results"]
    if all(result["reranker_score"] is None for result in results["description"]):
        assert any("No reranker" in note for note in results["props"]["notes"])
    assert any("pictures" in note for note in results["props"]["notes"])


def test_the_search_query_is_rewritten_or_has_a_note(http: httpx.Client, corpus: str) -> None:
    """The model rewrites the query. If the model cannot, the query is the question, and the thoughts have a
    note.
    """
    query = thoughts(ask(http, corpus, *HISTORY, query_rewriting=True))["Generated search query"]
    if "token_usage" not in query["props"]:
        assert query["description"] == QUESTION
        assert len(query["props"]["notes"]) == 1
    assert query["props"]["duration_ms"] > 0


def test_follow_up_questions_are_not_in_the_text(http: httpx.Client, corpus: str) -> None:
    """The text contains no follow-up questions. If the model suggests none, a note reports this."""
    answer = ask(http, corpus, suggest_followup_questions=True)
    assert "<<" not in answer["message"]["content"]
    if "followup_questions" not in answer["context"]:
        assert "follow-up" in str(thoughts(answer)["Prompt"]["props"].get("notes"))


def test_a_very_long_conversation(http: httpx.Client, corpus: str) -> None:
    """A question at the end of a very long conversation is answered from its sources. The thoughts have the number
    of messages that were left out.
    """
    history = [
        {"role": role, "content": f"{number} " + "word " * 500}
        for number in range(400)
        for role in ("user", "assistant")
    ]
    answer = ask(http, corpus, *history)
    assert SOURCE in answer["context"]["data_points"]["citations"]
    assert thoughts(answer)["Prompt"]["props"]["messages_left_out"] > 0
