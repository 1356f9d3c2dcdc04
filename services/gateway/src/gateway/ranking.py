"""What a reranker was to do with what was found, and did not."""

from gateway.domain import Retrieval, Selection

NO_RERANKER = "No reranker is configured: {}."
NOT_ASKED = "minimum_reranker_score needs semantic_ranker: nothing was left out for its score."
ITS_ORDER, ITS_MINIMUM = "the order is the search's own", "nothing was left out for its score"


def missed(found: Selection | None, retrieval: Retrieval) -> str:
    """What a reranker was to do and none did, and why; empty where nothing is missing."""
    least = retrieval.minimum_reranker_score is not None
    if found is None or not found.passages or not (least or retrieval.semantic_ranker):
        return ""
    if not retrieval.semantic_ranker:
        # A minimum of 0 is what clients send that have none.
        return NOT_ASKED if retrieval.minimum_reranker_score else ""
    left = f"{ITS_ORDER}; {ITS_MINIMUM}" if least else ITS_ORDER
    if found.not_reranked:
        return f"{found.not_reranked.removesuffix('.')}: {left}."
    if any(passage.reranker_score is not None for passage in found.passages):
        return ""
    return NO_RERANKER.format(left)
