"""Validates the arguments of tool calls, runs the tools, and returns structured results."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import mcp_types as types
import msgspec
import structlog
from servicekit.errors import (
    Blocked,
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unavailable,
)

from gateway.answering.document_reader import DocumentReader
from gateway.answering.pipeline import Pipeline
from gateway.dialects import upstream_errors
from gateway.dialects.answer import Answer
from gateway.dialects.json_fields import Fields
from gateway.dialects.mcp import links, tools
from gateway.dialects.mcp.agent_request import DEFAULT_PASSAGES, MAX_PASSAGES, AgentRequest
from gateway.dialects.ragengine.documents import conditions
from gateway.domain import Context, Delta, Done, Passage
from gateway.domain.documents import ReadDocument, TextRange
from gateway.ports.index_management import Indexes

_log = structlog.get_logger(__name__)
_CITATION = re.compile(r"\[([^\[\]]{1,1000})\]")
_BLOCKED = "content_filter"
_DETECTOR_FAILURES = (Unavailable, DeadlineExceeded, RateLimited)
"""The classes of `Blocked` errors that a failed detector causes. The agent receives the error and can retry."""

_Json = dict[str, Any]


class Progress(Protocol):
    """Reports the progress of a call, if the client requests progress."""

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress."""
        ...


class Calls:
    """Runs the tools.

    Args:
        pipeline: Answers questions.
        reader: Searches passages and reads documents.
        indexes: Lists the indexes.
    """

    def __init__(self, pipeline: Pipeline, reader: DocumentReader, indexes: Indexes) -> None:
        self._pipeline = pipeline
        self._reader = reader
        self._indexes = indexes
        self._tools: dict[str, Callable[[AgentRequest, Fields, Progress], Awaitable[types.CallToolResult]]] = {
            "search": self._search,
            "fetch": self._fetch,
            "ask": self._ask,
            "list_indexes": self._list_indexes,
        }

    async def call(
        self, agent: AgentRequest, name: str, arguments: Mapping[str, Any], progress: Progress
    ) -> types.CallToolResult:
        """Return the result of a tool. An error is also a result, so that the agent receives it.

        Args:
            agent: The request.
            name: A tool that the profile offers.
            arguments: The unchecked arguments.
            progress: Reports the progress of the call.
        """
        agent.log["tool"] = name
        try:
            return await self._tools[name](agent, _fields(name, arguments), progress)
        except Exception as error:  # the agent receives a message, and `client_message` logs an unexpected error
            failure = client_message(error, agent)
            agent.log["tool_error"] = failure
            return types.CallToolResult(content=[types.TextContent(text=failure)], is_error=True)

    async def _search(self, agent: AgentRequest, fields: Fields, _progress: Progress) -> types.CallToolResult:
        query = _query_text(fields, "query")
        turn = agent.turn(
            query, agent.indexes(fields.text("index")), conditions(fields.get("filters"), fields.path("filters"))
        )
        top = fields.integer("top", 1, MAX_PASSAGES) or turn.retrieval.top or DEFAULT_PASSAGES
        passages = await self._reader.search(turn, top, agent.timeline, agent.deadline)
        agent.sources = passages
        results = [_result(agent, passage) | {"score": passage.relevance} for passage in passages]
        for result, passage in zip(results, passages, strict=True):
            result["metadata"] = links.metadata(passage.metadata_json)
        return _structured({"results": results})

    async def _fetch(self, agent: AgentRequest, fields: Fields, _progress: Progress) -> types.CallToolResult:
        name = fields.text("id")
        index, read, part = await self.read(agent, name, fields)
        return _structured(
            {
                "id": name,
                "title": read.stored.sourcefile,
                "text": read.text,
                "url": links.url(
                    agent.base_url, index, read.stored.sourcefile, read.metadata_json, part.first_page
                ),
                "metadata": links.metadata(read.metadata_json),
                "index": index,
                "pages": read.pages,
                "next_offset": part.offset + part.length if read.is_truncated else None,
            }
        )

    async def read(self, agent: AgentRequest, name: str, fields: Fields) -> tuple[str, ReadDocument, TextRange]:
        """Return a part of a document, with the document's index and the range of the part.

        Args:
            agent: The request.
            name: The document's id from `links.document_name`.
            fields: The arguments, which may select the part.

        Raises:
            CausewayError: The document does not exist, the caller may not see it, or a detector blocks it.
        """
        index, document_id = links.parse_name(name, fields.path("id"))
        agent.indexes(index, fields.path("id"))
        part = TextRange(
            fields.integer("length", 1, tools.MAX_TEXT_LENGTH) or tools.DEFAULT_LENGTH,
            fields.integer("offset", 0, tools.MAX_OFFSET) or 0,
            fields.integer("first_page", 1, tools.MAX_PAGE) or 0,
            fields.integer("last_page", 1, tools.MAX_PAGE) or 0,
        )
        if part.last_page and part.first_page > part.last_page:
            raise fields.invalid("last_page", "must not be before first_page")
        turn = agent.turn("", (index,))
        read = await self._reader.read(turn, index, document_id, part, agent.timeline, agent.deadline)
        return index, read, part

    async def _ask(self, agent: AgentRequest, fields: Fields, progress: Progress) -> types.CallToolResult:
        turn = agent.question_turn(
            _query_text(fields, "question"), agent.indexes(fields.text("index")), fields.text("language")
        )
        answer = Answer()
        reports = 0
        events = self._pipeline.answer(turn, agent.deadline, agent.timeline)
        async with aclosing(events) as batches:
            async for batch in batches:
                answer.add_events(batch)
                if isinstance(last := batch[-1], Done):
                    agent.done = last
                if message := _progress_message(batch):
                    reports += 1
                    await progress(reports, None, message)
        choice = answer.choices.get(0)
        if choice is not None and choice.finish_reason == _BLOCKED:
            raise Blocked(agent.frontend.blocked_message)
        text = choice.text if choice is not None else ""
        passages = answer.context.passages if answer.context else ()
        cited = _cited(text, passages)
        citations = [{"label": passage.sourcepage, **_result(agent, passage)} for passage in cited]
        content = [types.TextContent(text=text)]
        if citations:
            sources = "\n".join(f"[{citation['label']}] {citation['url']}" for citation in citations)
            content.append(types.TextContent(text=f"Sources:\n{sources}"))
        return types.CallToolResult(content=[*content], structured_content={"answer": text, "citations": citations})

    async def _list_indexes(
        self, agent: AgentRequest, _fields: Fields, _progress: Progress
    ) -> types.CallToolResult:
        defaults = agent.frontend.indexes_for((), "index")
        summaries = await self._indexes.summaries(agent.principal, agent.deadline)
        listed = [
            {"name": summary.name, "documents": summary.documents, "default": summary.name in defaults}
            for summary in summaries
            if agent.offers(summary.name)
        ]
        return _structured({"indexes": listed})


def client_message(error: Exception, agent: AgentRequest) -> str:
    """Return the error message for an agent. Log an unexpected error with its traceback."""
    if isinstance(error, CausewayError):
        if isinstance(error, Blocked) and not isinstance(error, _DETECTOR_FAILURES):
            return agent.frontend.blocked_message
        if isinstance(error, NotFound) and error.field == "index" and "list_indexes" in agent.frontend.agents.tools:
            return f"{error.message} list_indexes returns the names of the existing ones."
        return upstream_errors.client_error(error).message
    if isinstance(error, TimeoutError):
        return "The call took longer than its deadline."
    _log.exception("call failed", error=str(error))
    return Internal().message


def _fields(name: str, arguments: Mapping[str, Any]) -> Fields:
    """Return the arguments of a tool. Their types are not checked yet.

    Raises:
        InvalidRequest: The tool has no such argument, or a value cannot be encoded as JSON.
    """
    schema = tools.input_schema(name) or {}
    for argument in arguments:
        if argument not in schema["properties"]:
            known = ", ".join(schema["properties"]) or "none"
            raise InvalidRequest(
                f"{name} has no argument {argument[:200]!r}; its arguments are {known}.", field=argument
            )
    try:
        msgspec.json.encode(arguments)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        raise InvalidRequest(
            "The arguments contain text that is not valid Unicode, or numbers out of range."
        ) from None
    return Fields(dict(arguments))


def _query_text(fields: Fields, name: str) -> str:
    """Return a query or a question.

    Raises:
        InvalidRequest: The text is blank or too long.
    """
    text = fields.text(name)
    if not text.strip():
        raise fields.invalid(name, "must be text that is not blank")
    if len(text) > tools.MAX_QUERY_LENGTH:
        raise fields.invalid(name, f"must have at most {tools.MAX_QUERY_LENGTH} characters")
    return text


def _result(agent: AgentRequest, passage: Passage) -> _Json:
    return {
        "id": links.document_name(passage.index, passage.document_id),
        "title": passage.sourcefile,
        "url": links.url(agent.base_url, passage.index, passage.sourcefile, passage.metadata_json, passage.page),
        "text": passage.text,
        "index": passage.index,
        "page": passage.page,
    }


def _structured(result: _Json) -> types.CallToolResult:
    """Return a structured result, with the same JSON as text for clients that do not read structured results."""
    text = msgspec.json.encode(result).decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=result)


def _progress_message(batch: Sequence[Any]) -> str:
    """Return the progress message for a batch of events: the number of passages, or the next text."""
    for event in batch:
        if isinstance(event, Context):
            count = len(event.passages)
            return f"{count} passage{'' if count == 1 else 's'} found"
    return "".join(event.text for event in batch if isinstance(event, Delta) and event.choice == 0)


def _cited(text: str, passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages that an answer cites in square brackets, in the order of the citations.

    Documents of several indexes may have the same name. Such a name cites the first passage of each document.
    """
    by_label: dict[str, dict[tuple[str, str], Passage]] = {}
    for passage in passages:
        by_label.setdefault(passage.sourcepage, {}).setdefault((passage.index, passage.document_id), passage)
    named = dict.fromkeys(_CITATION.findall(text))
    return [passage for label in named for passage in by_label.get(label, {}).values()]
