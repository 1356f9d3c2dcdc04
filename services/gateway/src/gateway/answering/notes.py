"""Write the notes on an answer for diagnosis: which requested steps the gateway omitted, and why."""

from gateway.domain import Note, Retrieval, Selection, Subject, Turn

NO_QUESTIONS = "The model only quotes its sources and writes no follow-up questions."


def notes(
    requested: Turn, fit: Turn, *, query: str, found: Selection | None, left_out: int, pictures: str
) -> tuple[Note, ...]:
    """Return the notes on an answer.

    Args:
        requested: The requested turn.
        fit: The turn that the model gets.
        query: The reason for a search query that is not rewritten as requested, or empty.
        found: The search results, including the passages that do not fit the context window.
        left_out: The number of messages that do not fit the context window.
        pictures: The reason for missing pictures of pages, or empty.
    """
    entries = (
        (Subject.QUERY, query),
        (Subject.RESULTS, not_ranked(found, requested.retrieval)),
        (Subject.RESULTS, pictures),
        (Subject.PROMPT, _left_out(left_out)),
        (Subject.PROMPT, NO_QUESTIONS if requested.prompting.follow_ups and not fit.prompting.follow_ups else ""),
    )
    return tuple(Note(subject, text) for subject, text in entries if text)


def _left_out(number: int) -> str:
    if not number:
        return ""
    messages = "message" if number == 1 else f"{number} messages"
    return f"The model's window has no room for the oldest {messages} of the conversation."


NO_RERANKER = "No reranker is configured: {}."
NOT_REQUESTED = "minimum_reranker_score needs semantic_ranker: no passage was omitted because of its score."
SEARCH_ORDER, NO_MINIMUM = "the order is that of the search", "no passage was omitted because of its score"


def not_ranked(found: Selection | None, retrieval: Retrieval) -> str:
    """Return why the results lack the requested reranking, or an empty string if they are reranked."""
    has_minimum = retrieval.minimum_reranker_score is not None
    if found is None or not found.passages or not (has_minimum or retrieval.semantic_ranker):
        return ""
    if not retrieval.semantic_ranker:
        # Clients without a minimum send 0.
        return NOT_REQUESTED if retrieval.minimum_reranker_score else ""
    consequence = f"{SEARCH_ORDER}; {NO_MINIMUM}" if has_minimum else SEARCH_ORDER
    if found.not_reranked:
        return f"{found.not_reranked.removesuffix('.')}: {consequence}."
    if any(passage.reranker_score is not None for passage in found.passages):
        return ""
    return NO_RERANKER.format(consequence)
