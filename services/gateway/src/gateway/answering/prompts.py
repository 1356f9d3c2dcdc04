"""The texts around a question: system prompts, and the layout of the passages."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gateway.domain import Message, Passage, Picture, PromptStyle, Turn

ANSWER_FROM_SOURCES = (
    "You answer questions for the people of an organisation, from its own documents.\n"
    "Use only the sources below the question. If they do not contain the answer, say that you don't know. Ask the "
    "user a question if that would help.\n"
    "Every source begins with its name and a colon. After each fact that you take from a source, put the name of "
    "the source in square brackets, like [guide.pdf#page=2]. Name several sources one by one, like [a.md][b.md].\n"
    "Be brief, and answer in the language of the question."
)

IN_LANGUAGE = "Answer in this language, even if the question and the sources have another one: {}."

FOLLOW_UPS = (
    "After the answer, write up to three short questions that the user is likely to ask next, each on its own line "
    "between double angle brackets, like <<When does the office open?>>. Choose questions that the sources answer "
    "and that the user has not asked yet. Write no heading before them and nothing after them."
)

SEARCH_QUERY = (
    "A user talks with an assistant that searches a collection of documents. Turn the last question into one "
    "search query that can be understood without the conversation: name what the question refers to, keep every "
    "name and number in it, and leave out polite phrases. Write no names of files and nothing in brackets. Keep "
    "the language of the question. Answer only with the query, on one line. If the question needs no change, "
    "answer with the question."
)

_LINE_BREAKS = "\r\n"

LATEST_MESSAGES = 6
MAX_MESSAGE_LENGTH = 2000
"""The part of a conversation for a search query: the number of messages, and the characters of each."""

CONTEXT_INSTRUCTION = (
    "The passages below were found for the user's question. Use them where they help, cite them by their names in "
    "square brackets, and do not invent facts that they do not contain."
)

SEARCH_DESCRIPTION = (
    "Search the documents that belong to this conversation. The result has passages, each after its name and a "
    "colon. Search before you answer a question that the documents may answer, with words that can be understood "
    "without the conversation. If too little is found, search again with other words. After each fact that you "
    "take from a passage, put the name of the passage in square brackets, like [guide.pdf#page=2]."
)

NOTHING_FOUND = "Nothing was found. Search with other words, or say that the documents do not contain the answer."
NO_QUERY = "No search was run: the call has no valid query. Call again with a string as the query."
NO_MORE_SEARCHES = "There are no more searches. Answer from the passages that were found."


SUMMARISE = (
    "Summarise the conversation above, so that another assistant can continue it with your summary alone. Keep "
    "what the user wants and has decided, all names, numbers, identifiers and code that still matter, the results "
    "of tools that still matter, what is done and what is open. Keep the names of sources in square brackets "
    "after their facts. Do not answer questions. Write only the summary, in the language of the user."
)

SUMMARY = "A summary takes the place of the earlier conversation:"
"""The line before a summary."""


def summary(text: str) -> str:
    """Return the text that a model gets in place of a summarised conversation."""
    return f"{SUMMARY}\n{text}"


def is_summary(message: Message) -> bool:
    """Return whether a message contains a text from `summary`."""
    return message.role == "system" and message.text.startswith(f"{SUMMARY}\n")


def search_function(name: str) -> dict[str, Any]:
    """Return the function that a model calls to search.

    Args:
        name: The name of the function.
    """
    query = {"type": "string", "description": "What to search for: a question or key words."}
    parameters = {
        "type": "object",
        "properties": {"query": query},
        "required": ["query"],
        "additionalProperties": False,
    }
    function = {"name": name, "description": SEARCH_DESCRIPTION, "parameters": parameters}
    return {"type": "function", "function": function}


def search_results(passages: Sequence[Passage]) -> str:
    """Return the result of a model's search."""
    return "\n".join(data_point(passage) for passage in passages) or NOTHING_FOUND


def data_point(passage: Passage) -> str:
    """Return a passage as clients and models see it: its name, a colon, its text.

    Line breaks and indentation are kept, because tables and programs cannot be read without them.
    """
    return f"{passage.sourcepage}: {passage.prompt_text.lstrip(_LINE_BREAKS).rstrip()}"


def compose(turn: Turn, passages: Sequence[Passage], pictures: Sequence[Picture] = ()) -> tuple[Message, ...]:
    """Return the messages for the model. Pictures follow the sources, each after the name of its page."""
    if turn.style is not PromptStyle.SOURCES_AFTER_QUESTION:
        return _context_first(turn, passages)
    shown = {picture.sourcepage for picture in pictures} if turn.prompting.pictures_only else ()
    *others, question = _sources_last(turn, [passage for passage in passages if passage.sourcepage not in shown])
    return (*others, _with_pictures(question, pictures) if pictures else question)


def _with_pictures(question: Message, pictures: Sequence[Picture]) -> Message:
    parts: list[dict[str, Any]] = [{"type": "text", "text": question.text}]
    for picture in pictures:
        parts.append({"type": "text", "text": f"{picture.sourcepage}:"})
        parts.append({"type": "image_url", "image_url": {"url": picture.url}})
    return replace(question, text="", content_json=msgspec.json.encode(parts))


def query_messages(turn: Turn) -> tuple[Message, ...]:
    """Return the messages that ask a model for the search query of a turn.

    These are one system message and one user message, because not all models accept other roles and orders.
    """
    messages = [message for message in turn.history if message.role in ("user", "assistant") and message.text]
    lines = [f"{message.role}: {message.text[:MAX_MESSAGE_LENGTH]}" for message in messages[-LATEST_MESSAGES:]]
    conversation = "\n\n".join(lines)
    content = f"The conversation:\n\n{conversation}\n\nThe last question:\n\n{turn.query[:MAX_MESSAGE_LENGTH]}"
    return Message("system", SEARCH_QUERY), Message("user", content)


def _sources_last(turn: Turn, passages: Sequence[Passage]) -> tuple[Message, ...]:
    question = turn.question
    if turn.retrieval.indexes:
        sources = "\n".join(data_point(passage) for passage in passages)
        question = f"{question}\n\nSources:\n{sources}"
    return (Message("system", _system(turn)), *turn.history, _question(turn, question))


def _system(turn: Turn) -> str:
    return _instructions(turn, ANSWER_FROM_SOURCES)


def _instructions(turn: Turn, default: str) -> str:
    """Return the first message, with the instructions for the turn's options.

    Args:
        turn: The turn.
        default: The instructions if the request has no system prompt.
    """
    options = turn.prompting
    lines = [default if options.system_prompt is None else options.system_prompt]
    if options.language:
        lines.append(IN_LANGUAGE.format(options.language))
    if options.follow_ups:
        lines.append(FOLLOW_UPS)
    return "\n".join(line for line in lines if line)


def _context_first(turn: Turn, passages: Sequence[Passage]) -> tuple[Message, ...]:
    question = (_question(turn, turn.question),) if turn.question else ()
    first = _instructions(turn, CONTEXT_INSTRUCTION if passages else "")
    if passages:
        sources = "\n".join(data_point(passage) for passage in passages)
        first = f"{first}\n\n{sources}" if first else sources
    return (*((Message("system", first),) if first else ()), *turn.history, *question)


def _question(turn: Turn, text: str) -> Message:
    return Message("user", text, b"", turn.original.question_extra_json)
