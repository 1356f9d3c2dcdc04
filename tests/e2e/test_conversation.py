"""What a conversation gets beside an answer, wherever the stack runs and whichever model it has."""

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


def test_wishes_that_cannot_be_granted_do_not_fail_the_answer(http: httpx.Client, corpus: str) -> None:
    """Nor are they passed over in silence: a reranker and captions that are not there, pictures of text."""
    wishes = {"semantic_ranker": True, "semantic_captions": True, "minimum_reranker_score": 1, "use_gpt4v": True}
    answer = ask(http, corpus, **wishes)
    assert SOURCE in answer["context"]["data_points"]["citations"]
    results = thoughts(answer)["Results"]
    if all(result["reranker_score"] is None for result in results["description"]):
        assert any("No reranker" in note for note in results["props"]["notes"])
    assert any("pictures" in note for note in results["props"]["notes"])


def test_a_search_query_is_made_or_it_is_said_why_not(http: httpx.Client, corpus: str) -> None:
    """By a model that can; one that only quotes its sources searches for the question."""
    query = thoughts(ask(http, corpus, *HISTORY, query_rewriting=True))["Generated search query"]
    if "token_usage" not in query["props"]:
        assert query["description"] == QUESTION
        assert len(query["props"]["notes"]) == 1
    assert query["props"]["duration_ms"] > 0


def test_follow_up_questions_are_no_part_of_the_text(http: httpx.Client, corpus: str) -> None:
    """Where the model asks none it is said so."""
    answer = ask(http, corpus, suggest_followup_questions=True)
    assert "<<" not in answer["message"]["content"]
    if "followup_questions" not in answer["context"]:
        assert "follow-up" in str(thoughts(answer)["Prompt"]["props"].get("notes"))


def test_a_conversation_may_grow_for_ever(http: httpx.Client, corpus: str) -> None:
    """However much was said before, the question is answered from its sources; what was left out is told."""
    history = [
        {"role": role, "content": f"{number} " + "word " * 500}
        for number in range(400)
        for role in ("user", "assistant")
    ]
    answer = ask(http, corpus, *history)
    assert SOURCE in answer["context"]["data_points"]["citations"]
    assert thoughts(answer)["Prompt"]["props"]["messages_left_out"] > 0
