"""What is said of an answer to whoever looks closely: what was asked for and not done, and what was left out."""

from gateway.domain import Note, Retrieval, Selection, Subject, Turn

NO_QUESTIONS = "The model only quotes its sources and asks no follow-up questions."


def notes(
    asked: Turn, fit: Turn, *, query: str, found: Selection | None, left_out: int, pictures: str
) -> tuple[Note, ...]:
    """The notes on an answer.

    Args:
        asked: The turn as it came.
        fit: The turn that the model gets.
        query: Why the search query is not the one that was asked for; empty where it is.
        found: What was found, whether there was room for it or not.
        left_out: Number of messages for which there was no room.
        pictures: Why there are not as many pictures of pages as could be; empty where there are.
    """
    said = (
        (Subject.QUERY, query),
        (Subject.RESULTS, not_ranked(found, asked.retrieval)),
        (Subject.RESULTS, pictures),
        (Subject.PROMPT, _left_out(left_out)),
        (Subject.PROMPT, NO_QUESTIONS if asked.prompting.follow_ups and not fit.prompting.follow_ups else ""),
    )
    return tuple(Note(subject, text) for subject, text in said if text)


def _left_out(number: int) -> str:
    if not number:
        return ""
    messages = "message" if number == 1 else f"{number} messages"
    return f"The model's window has no room for the oldest {messages} of the conversation."


NO_RERANKER = "No reranker is configured: {}."
NOT_ASKED = "minimum_reranker_score needs semantic_ranker: nothing was left out for its score."
ITS_ORDER, ITS_MINIMUM = "the order is the search's own", "nothing was left out for its score"


def not_ranked(found: Selection | None, retrieval: Retrieval) -> str:
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
