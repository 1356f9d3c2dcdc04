"""A stack with a reranker: its order and scores, and answers while it is too slow."""

from pathlib import Path
from typing import Any

import pytest
from causeway_testing.retriever.rerank_server import rerank_server

FILE = """
rerankers:
  - name: words
    kind: http
    url: {url}/v1
    timeout: 0.5
    required: {required}
"""
TEXTS = ["Kelsay ferry ferry ferry.", "High water at Kelsay is at six.", "The Kelsay office opens at nine."]
QUERY = "high water at kelsay ferry"


async def results(stack: Any, **overrides: Any) -> Any:
    question = stack.question(QUERY, index="tides", semantic_ranker=True, **overrides)
    answer = (await stack.http.post("/2024-04/chat", json=question)).raise_for_status().json()
    return next(each for each in answer["context"]["thoughts"] if each["title"] == "Results")


@pytest.mark.parametrize("required", [False, True])
async def test_a_reranker(start_stack: Any, tmp_path: Path, required: bool) -> None:
    """Passages have the order of the reranker and at least the minimum score. If an optional reranker does not
    answer, passages keep the order of the search, and the thoughts have a note. If a required reranker does not
    answer, the question fails.
    """
    async with rerank_server() as server:
        file = tmp_path / "rerankers.yaml"
        file.write_text(FILE.format(url=server.url, required=str(required).lower()))
        async with start_stack(tmp_path / "data", CAUSEWAY_RERANKERS_FILE=str(file)) as stack:
            for number, text in enumerate(TEXTS):
                await stack.ingest("tides", f"{number}.md", text.encode())
            found = await results(stack, semantic_captions=True)
            assert found["description"][0]["content"] == TEXTS[1]
            scores = [each["reranker_score"] for each in found["description"]]
            assert scores == sorted(scores, reverse=True)
            assert "notes" not in found["props"]
            assert found["description"][0]["captions"][0]["text"] == TEXTS[1]
            assert len((await results(stack, minimum_reranker_score=0.5))["description"]) == 1
            server.hold.clear()
            if required:
                question = stack.question(QUERY, index="tides", semantic_ranker=True)
                answer = await stack.http.post("/2024-04/chat", json=question)
                assert (answer.status_code, "did not answer within 0.5 s" in answer.text) == (504, True)
                return
            late = await results(stack, minimum_reranker_score=0.5)
            assert len(late["description"]) == 3
            assert all(each["reranker_score"] is None for each in late["description"])
            [note] = late["props"]["notes"]
            assert note.startswith(
                "The reranker 'words' did not answer within 0.5 s: the order is that of the search"
            )
