from gateway.domain import Passage, Retrieval, Selection
from gateway.ranking import missed


def found(score: float | None, not_reranked: str = "") -> Selection:
    passage = Passage("a", "docs", "d", "a.md", "a.md", "text", 1.0, reranker_score=score)
    return Selection((passage,), not_reranked=not_reranked)


WANTED = Retrieval(minimum_reranker_score=2.0, semantic_ranker=True)


def test_without_a_reranker() -> None:
    """What was wanted of one is told."""
    assert missed(found(None), WANTED) == (
        "No reranker is configured: the order is the search's own; nothing was left out for its score."
    )
    assert missed(found(None), Retrieval(semantic_ranker=True)) == (
        "No reranker is configured: the order is the search's own."
    )


def test_a_reranker_that_failed() -> None:
    """Its failure is told with what it did not do."""
    failed = found(None, "The reranker 'r' did not answer within 2 s.")
    assert missed(failed, Retrieval(semantic_ranker=True)) == (
        "The reranker 'r' did not answer within 2 s: the order is the search's own."
    )


def test_a_minimum_alone_runs_no_reranker() -> None:
    """It is told; but not where it is 0, as clients send it that have none."""
    assert missed(found(None), Retrieval(minimum_reranker_score=1.5)) == (
        "minimum_reranker_score needs semantic_ranker: nothing was left out for its score."
    )
    assert missed(found(None), Retrieval(minimum_reranker_score=0.0)) == ""


def test_nothing_is_missed() -> None:
    """That nobody wanted, of nothing, or that a reranker did."""
    assert missed(found(None), Retrieval(semantic_captions=True)) == ""
    assert missed(None, WANTED) == missed(Selection(()), WANTED) == ""
    assert missed(found(1.0), WANTED) == ""
