"""OpenAI's Responses API.

Sources: the OpenAI API reference for responses; the types of the ``openai`` package, which clients use.
"""

import re
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError, InvalidRequest, NotFound

from gateway.dialects.exchange import ChatRequest, Exchange, Media
from gateway.dialects.openai.chat import OpenAiChat
from gateway.dialects.openai.render import OpenAiExchange
from gateway.dialects.problem import problem
from gateway.dialects.responses import continuation
from gateway.dialects.responses import request as requests
from gateway.dialects.responses.exchange import ResponsesExchange
from gateway.dialects.responses.item_cipher import ItemCipher
from gateway.dialects.responses.request import CheckedRequest
from gateway.dialects.responses.tools import FILE_SEARCH, FileSearch
from gateway.domain import CompactionOptions, Retrieval, SearchTool, Turn
from gateway.frontends.response_policy import UnknownTools
from gateway.ports.sealing import Sealing

# Maps a field's name in services and chats to its name in a Responses request, for fields whose names differ.
NAMES = {"index": "index_name", "messages": "input", "max_completion_tokens": "max_output_tokens"}
_MESSAGE = re.compile(r"messages\[(\d+)\]")


class _Composed(OpenAiExchange):
    """The `Exchange` of the chat request for the model. Only its turn is used; it does not render the answer."""

    composes_request = True

    def __init__(self, turn: Turn, *, streaming: bool, **_: bool) -> None:
        self.turn, self.streaming = turn, streaming


class Responses:
    """`Dialect` of ``POST /v1/responses``.

    Args:
        similarity_threshold: See `OpenAiChat`.
        sealing: Encrypts contents that only the platform can read. With None, the platform encrypts nothing.
    """

    name = "responses"
    media = Media(unary=b"application/json", stream=b"text/event-stream; charset=utf-8", heartbeat=b": \n\n")

    def __init__(self, similarity_threshold: float | None = None, sealing: Sealing | None = None) -> None:
        self._sealing = sealing
        self._chat = OpenAiChat(similarity_threshold, _Composed)

    def parse(self, request: ChatRequest, exchange_type: type[ResponsesExchange] = ResponsesExchange) -> Exchange:
        """See `Dialect`. The body's ``stream`` selects a stream.

        Args:
            request: The request.
            exchange_type: The class that renders the answer.
        """
        refuse_unknown = request.frontend.unknown_tools is UnknownTools.REFUSE
        body = continuation.resolved(request.body, request.continued)
        cipher = ItemCipher(self._sealing, request.principal, request.frontend.name)
        checked = requests.read(body, request.continued.items, cipher, refuse_unknown=refuse_unknown)
        frontend, search = request.frontend, checked.tools.search
        _check_prompt(request, checked)
        frontend.check_messages(checked.item_count, "input")
        frontend.check_answer_tokens(checked.fields.get("max_output_tokens"), "max_output_tokens")
        try:
            search_indexes = _indexes(request, checked, search)
            chat = self._chat.parse(replace(request, body=checked.body), search_indexes, check_limits=False)
        except CausewayError as error:
            raise _renamed(error, checked) from error
        turn = chat.turn
        if turn.original.deferred_error is not None:
            deferred_error = _renamed(turn.original.deferred_error, checked)
            assert isinstance(deferred_error, InvalidRequest)
            turn = replace(turn, original=replace(turn.original, deferred_error=deferred_error))
        if search is not None:
            turn = _with_search_options(turn, search)
            turn = replace(turn, searching=_search_tool(request, checked))
        if checked.fields.get("truncation") == "auto":
            turn = replace(turn, truncates=True)
        if exchange_type.compacts or checked.compaction is not None:
            turn = replace(
                turn,
                compaction=CompactionOptions(summary_only=True) if exchange_type.compacts else checked.compaction,
            )
            if turn.compaction is not None and turn.compaction.summary_only:
                turn = replace(turn, retrieval=Retrieval(), searching=None)
        has_source_nodes = bool(checked.fields.get("index_name"))
        return exchange_type(
            turn, checked, request.continued, cipher, streaming=chat.streaming, has_source_nodes=has_source_nodes
        )

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return problem(error, NAMES)


def _check_prompt(request: ChatRequest, checked: CheckedRequest) -> None:
    """Check that the prompt of a request names an assistant that the caller may use.

    Raises:
        NotFound: No such assistant exists for the caller.
    """
    if checked.fields.get("prompt") is None:
        return
    if not request.frontend.with_assistant(checked.model, request.principal).assistant:
        name = checked.model[:100]
        raise NotFound(f"prompt.id: there is no assistant {name!r}.", field="prompt.id", resource=name)


def _indexes(request: ChatRequest, checked: CheckedRequest, search: FileSearch | None) -> tuple[str, ...]:
    """Return the indexes of a file search, or no indexes without a file search.

    Raises:
        PermissionDenied: The profile does not allow one of the indexes.
    """
    if search is None:
        return ()
    frontend = request.frontend.with_assistant(checked.model, request.principal)
    return frontend.indexes_for(search.indexes, search.path)


def _with_search_options(turn: Turn, search: FileSearch) -> Turn:
    """Return the turn with the search options of a file search."""
    if not turn.retrieval.indexes:
        return turn
    retrieval = turn.retrieval
    weight = search.dense_weight
    return replace(
        turn,
        retrieval=replace(
            retrieval,
            top=search.top or retrieval.top,
            minimum_score=retrieval.minimum_score if search.minimum_score is None else search.minimum_score,
            metadata=(*retrieval.metadata, *search.metadata),
            tuning=retrieval.tuning if weight is None else replace(retrieval.tuning, dense_weight=weight),
        ),
    )


def _search_tool(request: ChatRequest, checked: CheckedRequest) -> SearchTool | None:
    """Return the tool with which the model searches, or None if the platform searches before the model answers.

    If the front end answers every chat from its indexes, the platform always searches first.
    """
    frontend = request.frontend.with_assistant(checked.model, request.principal)
    max_searches = min(frontend.max_searches, checked.fields.get("max_tool_calls") or frontend.max_searches)
    if frontend.always_searches or not max_searches:
        return None
    name = "file_search"
    while any(tool["function"]["name"] == name for tool in checked.tools.chat_tools):
        name += "_"
    choice: Any = checked.tools.first_choice
    if choice == FILE_SEARCH:
        choice = {"type": "function", "function": {"name": name}}
    return SearchTool(max_searches, name, msgspec.json.encode(choice) if choice else b"")


def _renamed(error: CausewayError, checked: CheckedRequest) -> CausewayError:
    """Return the error with the names and paths of the Responses request instead of the chat's names and paths."""

    def item_path(match: re.Match[str]) -> str:
        at = int(match[1])
        return checked.paths[at] if at < len(checked.paths) and checked.paths[at] else "input"

    field = _MESSAGE.sub(item_path, error.field or "")
    error.message = _MESSAGE.sub(item_path, error.message)
    error.field = NAMES.get(field, field) or None
    return error
