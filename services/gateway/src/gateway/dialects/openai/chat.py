"""OpenAI's chat completions, with retrieval if the request names an index or its profile always searches.

Sources: the OpenAI API reference for chat completions, and RAGEngine's chat completion algorithm. The algorithm
defines ``index_name``, ``context_token_ratio``, how messages are split into question and history, and which
requests pass through to the model unchanged.
"""

import contextlib
from dataclasses import replace

import msgspec
from servicekit import keys
from servicekit.errors import CausewayError, InvalidRequest

from gateway.answering import budget
from gateway.dialects import detectors_block, json_fields, turn_settings
from gateway.dialects.exchange import ChatRequest, Exchange, Media
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai import conversation, frontend_turn
from gateway.dialects.openai.render import OpenAiExchange
from gateway.dialects.problem import problem
from gateway.domain import (
    Detectors,
    Message,
    OriginalRequest,
    PromptOptions,
    PromptStyle,
    Retrieval,
    RetrievalMode,
    Turn,
)
from gateway.frontends.profiles import Frontend

PLATFORM_MEMBERS = ("index_name", "context_token_ratio", "detectors", "retrieval")
"""Members of a request that only the platform reads. A model server never receives them."""

_MAX_QUOTED_LENGTH = 100

# The gateway reads these members of every request. If a request passes through, the model server validates the
# other members.
_FIRST_FIELDS = ("index_name", "model", "stream")
# The gateway also reads these members if it searches or reads the messages.
_CONVERSATION_FIELDS = ("index_name", "retrieval", "stream_options", *frontend_turn.TOKEN_LIMITS)

_MIN_MESSAGE_LENGTH = len(b"{},")
_listed = msgspec.json.Decoder(list[msgspec.Raw])

Raw = dict[str, msgspec.Raw]

_FIELD_NAMES = {"index": "index_name"}
"""Maps a field's name in the services to the member's name in a request, for the errors of services."""


class OpenAiChat:
    """`Dialect` of ``POST /v1/chat/completions``.

    Args:
        similarity_threshold: The default minimum cosine similarity of a passage to the question, or None for no
            minimum.
        exchange: The class that renders the answers.
    """

    name = "openai"
    media = Media(
        unary=b"application/json",
        stream=b"text/event-stream; charset=utf-8",
        heartbeat=b": \n\n",
        omits_end_on_failure=True,
        text_only=True,
    )

    def __init__(
        self, similarity_threshold: float | None = None, exchange: type[OpenAiExchange] = OpenAiExchange
    ) -> None:
        self._threshold = similarity_threshold
        self._exchange_type = exchange

    def parse(
        self, request: ChatRequest, search_indexes: tuple[str, ...] = (), *, check_limits: bool = True
    ) -> Exchange:
        """See `Dialect`.

        If the request or its profile selects indexes, and the messages or options are invalid, the turn contains
        the error. The pipeline raises it after it has checked that the indexes exist.

        Args:
            request: The request.
            search_indexes: The indexes to search, even if the chat has tools. The caller has checked that the
                profile allows them.
            check_limits: Whether to check the profile's limits; false if another dialect has checked them.

        Raises:
            InvalidRequest: The request is invalid; the error names the field.
            PermissionDenied: The profile does not allow an option of the request; the error names the field.
        """
        raw = json_fields.members(request.body)
        known = json_fields.pick(raw, _FIRST_FIELDS)
        model = request.model or known.text("model")
        frontend = request.frontend.with_assistant(model, request.principal)
        stream = known.flag("stream") if request.streaming is None else request.streaming
        if check_limits:
            _check_limits(raw, frontend)
        indexes = search_indexes or _indexes(known, frontend)
        defaults = Fields(dict(frontend.overrides) if frontend.always_searches else {}, "context.overrides")
        turn = Turn(
            principal=frontend.principal_for(
                request.principal, filter_requested=turn_settings.requests_access_filter(defaults)
            ),
            question="",
            model=frontend.model_for(model, "model"),
            model_alias=frontend.assistant,
            only_default_model=frontend.only_default_model,
            blocked_message=frontend.blocked_message,
            answers_blocked=frontend.answers_blocked,
            headers=request.headers,
            original=OriginalRequest(
                json=request.body
                if raw.keys().isdisjoint(PLATFORM_MEMBERS)
                else json_fields.without(raw, PLATFORM_MEMBERS),
                passthrough=True,
                in_one_piece=not stream,
                required_indexes=indexes,
            ),
        )
        try:
            return self._exchange(
                turn, raw, indexes, frontend, defaults, streaming=stream, must_search=bool(search_indexes)
            )
        except InvalidRequest as error:
            if not indexes:
                raise
            return self._exchange_type(
                replace(turn, original=replace(turn.original, deferred_error=error)),
                streaming=stream,
                has_source_nodes=True,
            )

    def _exchange(
        self,
        turn: Turn,
        raw: Raw,
        indexes: tuple[str, ...],
        frontend: Frontend,
        defaults: Fields,
        *,
        streaming: bool,
        must_search: bool,
    ) -> Exchange:
        ratio = _ratio(raw)
        detectors = frontend.detectors_for(
            detectors_block.parse(json_fields.pick(raw, ("detectors",)).object("detectors"))
        )
        options = frontend_turn.prompting(frontend, defaults)
        parameters = turn_settings.parameters(defaults)
        always_searches = must_search or (frontend.always_searches and frontend.searches_with_tools)
        tools = b"".join(bytes(raw[name]) for name in ("tools", "functions") if _has_items(raw, name))
        searches = bool(indexes) and (always_searches or not tools)
        include_usage = False
        composes_request = self._exchange_type.composes_request
        has_profile_options = options != PromptOptions() or bool(parameters) or bool(frontend.assistant)
        reads_messages = composes_request or has_profile_options or detectors != Detectors()
        if has_policy := frontend.detectors != Detectors():
            frontend.check_unjudged(name for name, value in raw.items() if bytes(value) != b"null")
            conversation.check_names(turn.original.json)
        if searches or reads_messages:
            messages = conversation.messages(raw)
            searches = searches and (always_searches or all(map(conversation.searchable, messages)))
        if searches or reads_messages:
            known = json_fields.pick(raw, _CONVERSATION_FIELDS)
            include_usage = known.object("stream_options").flag("include_usage")
            if detectors != Detectors():
                conversation.check_readable(messages, has_policy=has_policy)
            original_json = b"" if composes_request else turn.original.json
            turn = _with_messages(turn, raw, known, messages, tools, detectors, original_json)
        if searches:
            names_index = bool(known.text("index_name"))
            turn = frontend_turn.with_question(
                turn, messages, requires_question=names_index and not always_searches
            )
        if searches and turn.query:
            retrieval = turn_settings.retrieval(defaults, frontend, indexes, budget.MAX_CANDIDATES)
            turn = replace(
                turn,
                retrieval=self._retrieval(retrieval, known.object("retrieval"), ratio),
                # The search refuses an unknown index.
                original=replace(turn.original, required_indexes=()),
            )
        turn = frontend_turn.with_profile(turn, options, parameters, composes_request=composes_request)
        return self._exchange_type(
            turn, streaming=streaming, include_usage=include_usage, has_source_nodes=bool(indexes)
        )

    def _retrieval(self, defaults: Retrieval, options: Fields, ratio: float | None) -> Retrieval:
        """Return the options of the search. The request's options have priority over the profile's."""
        threshold = options.number("similarity_threshold", -1, 1)
        score = options.number("minimum_score", -1e9, 1e9)
        return replace(
            defaults,
            mode=RetrievalMode(options.one_of("mode", turn_settings.MODES) or defaults.mode.value),
            top=options.integer("top", 1, budget.MAX_CANDIDATES) or defaults.top,
            include_category=options.text("include_category") or defaults.include_category,
            exclude_category=options.text("exclude_category") or defaults.exclude_category,
            minimum_score=defaults.minimum_score if score is None else score,
            similarity_threshold=self._threshold if threshold is None else threshold,
            context_token_ratio=defaults.context_token_ratio if ratio is None else ratio,
        )

    def error(self, error: CausewayError) -> bytes:
        """Return an error body with ``error`` for OpenAI's clients and ``detail`` for RAGEngine's."""
        return problem(error, _FIELD_NAMES)


def _indexes(known: Fields, frontend: Frontend) -> tuple[str, ...]:
    """Return the index that the request names, or else the indexes of a profile that searches for every chat.

    A request with an empty name has no search.

    Raises:
        InvalidRequest: The name is not a valid name of an index.
        PermissionDenied: The profile does not allow the index.
    """
    requested = known.text("index_name")
    if requested:
        return frontend.indexes_for((keys.index_name(requested, "index_name"),), "index_name")
    is_empty = known.get("index_name") is not None
    return frontend.indexes_for((), "index_name") if frontend.always_searches and not is_empty else ()


def _check_limits(raw: Raw, frontend: Frontend) -> None:
    """Check the limits of the profile. They also apply to requests that pass through to the model server.

    Raises:
        InvalidRequest: The request has too many messages, or its limit of tokens is too high.
    """
    raw_messages = raw.get("messages", b"")
    # Only a long body can have too many messages.
    if frontend.max_messages is not None and len(raw_messages) > _MIN_MESSAGE_LENGTH * frontend.max_messages:
        with contextlib.suppress(ValueError, RecursionError):  # a later check refuses the type
            frontend.check_messages(len(_listed.decode(raw_messages)), "messages")
    if frontend.max_answer_tokens is not None:
        for name in frontend_turn.TOKEN_LIMITS:
            requested = json_fields.value(raw.get(name), name)
            frontend.check_answer_tokens(requested if isinstance(requested, int) else None, name)


def _has_items(raw: Raw, name: str) -> bool:
    """Return whether a member is present and is neither null nor an empty list or object."""
    return b"".join(bytes(raw.get(name, b"null")).split()) not in (b"null", b"[]", b"{}")


def _ratio(raw: Raw) -> float | None:
    """Return ``context_token_ratio``, or None if it is absent.

    Raises:
        InvalidRequest: The value is not a number, or is out of bounds.
    """
    value = json_fields.value(raw.get("context_token_ratio"), "context_token_ratio")
    if value is None:
        return None
    minimum, maximum = turn_settings.MIN_CONTEXT_RATIO, turn_settings.MAX_CONTEXT_RATIO
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not minimum <= value <= maximum:
        ratio = bytes(raw["context_token_ratio"]).decode()
        ratio = ratio if len(ratio) <= _MAX_QUOTED_LENGTH else f"{ratio[:_MAX_QUOTED_LENGTH]}…"
        raise InvalidRequest(
            f"Invalid context_token_ratio: {ratio}. Must be between {minimum} and {maximum}.",
            field="context_token_ratio",
        )
    return float(value)


def _with_messages(
    turn: Turn,
    raw: Raw,
    known: Fields,
    messages: list[Message],
    tools: bytes,
    detectors: Detectors,
    original_json: bytes,
) -> Turn:
    """Return the turn with its messages, for a request that is not passed through.

    Args:
        turn: The turn without messages.
        raw: The members of the request.
        known: The parsed members.
        messages: The messages.
        tools: The tools as JSON.
        detectors: The detectors of the turn.
        original_json: The request, or empty if the model server must not receive it unchanged.
    """
    *history, last = messages
    ends_with_question = last.role == "user" and not last.content_json
    return replace(
        turn,
        question=last.text if ends_with_question else "",
        history=tuple(history if ends_with_question else messages),
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        detectors=detectors,
        parameters_json=json_fields.without(
            raw, (*PLATFORM_MEMBERS, "messages", "model", "stream", "stream_options")
        ),
        # OpenAI has two names for this limit. The newer name has priority.
        max_tokens=known.integer("max_completion_tokens", 1, turn_settings.MAX_ANSWER_TOKENS)
        or known.integer("max_tokens", 1, turn_settings.MAX_ANSWER_TOKENS),
        original=replace(
            turn.original,
            json=original_json,
            question_extra_json=last.extra_json if ends_with_question else b"",
            question_gaps=last.gaps if ends_with_question else (),
            tools_json=tools,
            passthrough=False,
        ),
    )
