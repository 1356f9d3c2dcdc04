"""The order of what was found, where a request wants a reranker's."""

from collections.abc import Sequence

from gateway.domain import Passage, Retrieval

NO_RERANKER = "No reranker is configured: {}."


def ranked(found: Sequence[Passage], retrieval: Retrieval) -> tuple[Passage, ...]:
    """The passages by the reranker, best first, less those below its minimum; without its scores, as they came."""
    passages = tuple(found)
    if not _has_scores(passages):
        return passages
    if retrieval.semantic_ranker:
        passages = tuple(sorted(passages, key=lambda passage: (-_score(passage), passage.id)))
    least = retrieval.minimum_reranker_score
    return tuple(passage for passage in passages if least is None or _score(passage) >= least)


def missed(found: Sequence[Passage], retrieval: Retrieval) -> str:
    """What a reranker was to do and none did; empty where nothing is missing."""
    wanted = (
        (retrieval.semantic_ranker, "the order is the search's own"),
        (retrieval.minimum_reranker_score is not None, "nothing was left out for its score"),
        (retrieval.semantic_captions, "there are no captions, the model got the whole passages"),
    )
    without = [what for asked, what in wanted if asked]
    if not without or not found or _has_scores(found):
        return ""
    return NO_RERANKER.format("; ".join(without))


def _has_scores(passages: Sequence[Passage]) -> bool:
    return any(passage.reranker_score is not None for passage in passages)


def _score(passage: Passage) -> float:
    # One that the reranker passed over stands behind those that it did not.
    return float("-inf") if passage.reranker_score is None else passage.reranker_score
