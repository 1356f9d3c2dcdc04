"""What is said of an answer to whoever looks closely: what was asked for and not done, and what was left out."""

from gateway import ranking
from gateway.domain import Note, Selection, Subject, Turn

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
        (Subject.RESULTS, ranking.missed(found, asked.retrieval)),
        (Subject.RESULTS, pictures),
        (Subject.PROMPT, _left_out(left_out)),
        (Subject.PROMPT, NO_QUESTIONS if asked.follow_ups and not fit.follow_ups else ""),
    )
    return tuple(Note(subject, text) for subject, text in said if text)


def _left_out(number: int) -> str:
    if not number:
        return ""
    messages = "message" if number == 1 else f"{number} messages"
    return f"The model's window has no room for the oldest {messages} of the conversation."
