"""The words around a question: system prompts and how passages stand beside it."""

from collections.abc import Sequence

from gateway.domain import Message, Passage, PromptStyle, Turn

ANSWER_FROM_SOURCES = (
    "You answer questions for the people of an organisation, from its own documents.\n"
    "Use nothing but the sources that stand below the question. When they do not hold the answer, say that you "
    "don't know; ask back where a question would help.\n"
    "Every source begins with its name and a colon. Put the name of the source in square brackets behind each fact "
    "that you take from it, like [guide.pdf#page=2]; name several sources one by one, like [a.md][b.md].\n"
    "Be brief, and answer in the language of the question."
)

CONTEXT_INSTRUCTION = (
    "The passages below were found for the user's question. Use them where they help, cite them by their names in "
    "square brackets, and do not make up what they do not say.\n\n"
)


def data_point(passage: Passage) -> str:
    """A passage as clients and models see it: its name, a colon, its text on one line."""
    return f"{passage.sourcepage}: {' '.join(passage.text.split())}"


def compose(turn: Turn, passages: Sequence[Passage]) -> tuple[Message, ...]:
    """The messages that the model gets."""
    if turn.style is PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE:
        return _context_first(turn, passages)
    return _sources_last(turn, passages)


def _sources_last(turn: Turn, passages: Sequence[Passage]) -> tuple[Message, ...]:
    system = turn.system_prompt if turn.system_prompt is not None else ANSWER_FROM_SOURCES
    question = turn.question
    if turn.retrieval.indexes:
        sources = "\n".join(data_point(passage) for passage in passages)
        question = f"{question}\n\nSources:\n{sources}"
    return (Message("system", system), *turn.history, Message("user", question))


def _context_first(turn: Turn, passages: Sequence[Passage]) -> tuple[Message, ...]:
    question = (Message("user", turn.question),) if turn.question else ()
    if not passages:
        return (*turn.history, *question)
    sources = "\n".join(data_point(passage) for passage in passages)
    return (Message("system", CONTEXT_INSTRUCTION + sources), *turn.history, *question)
