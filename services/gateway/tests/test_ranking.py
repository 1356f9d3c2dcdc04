from gateway.domain import Passage, Retrieval
from gateway.ranking import missed, ranked


def passage(name: str, score: float | None) -> Passage:
    return Passage(name, "docs", "d", "a.md", "a.md", "text", 1.0, reranker_score=score)


SCORED = [passage("a", 1.0), passage("b", 3.0), passage("c", None), passage("e", 2.0), passage("d", 2.0)]
PLAIN = [passage("b", None), passage("a", None)]


def names(passages: tuple[Passage, ...]) -> str:
    return "".join(each.id for each in passages)


def test_the_rerankers_order() -> None:
    """Equals by their ids, those without a score last; without the wish, as they were found."""
    assert names(ranked(SCORED, Retrieval(semantic_ranker=True))) == "bdeac"
    assert names(ranked(SCORED, Retrieval())) == "abced"


def test_what_the_reranker_rates_too_low_is_left_out() -> None:
    """With or without its order."""
    assert names(ranked(SCORED, Retrieval(minimum_reranker_score=2.0))) == "bed"
    assert names(ranked(SCORED, Retrieval(minimum_reranker_score=2.5, semantic_ranker=True))) == "b"


def test_without_a_reranker_all_stays() -> None:
    """And what was wanted of one is told."""
    wanted = Retrieval(minimum_reranker_score=2.0, semantic_ranker=True, semantic_captions=True)
    assert names(ranked(PLAIN, wanted)) == "ba"
    assert missed(PLAIN, wanted) == (
        "No reranker is configured: the order is the search's own; nothing was left out for its score; "
        "there are no captions, the model got the whole passages."
    )
    assert missed(PLAIN, Retrieval(semantic_ranker=True)) == (
        "No reranker is configured: the order is the search's own."
    )


def test_nothing_is_missed() -> None:
    """That nobody wanted, of nothing, or that a reranker did."""
    assert missed(PLAIN, Retrieval()) == ""
    assert missed([], Retrieval(semantic_ranker=True)) == ""
    assert missed(SCORED, Retrieval(semantic_ranker=True)) == ""
