"""OpenAI chat completions, with retrieval if the request names an index.

Sources: the OpenAI API reference for chat completions; the RAGEngine chat completion algorithm for ``index_name``,
``context_token_ratio``, the splitting of messages and the cases that are passed through to the model.
"""

import contextlib
from collections.abc import Sequence
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

OURS = ("index_name", "context_token_ratio", "detectors", "retrieval")
"""Members of a request for the platform, which never reach a model server."""

MODES = tuple(mode.value for mode in RetrievalMode)
_LEAST_RATIO, _MOST_RATIO = 0.2, 0.8
_LONGEST_QUOTE = 100

# The members of a passed-through request that the gateway reads; the model server validates the others.
_READ_FIRST = ("index_name", "model", "stream")
_LIMITS = ("max_tokens", "max_completion_tokens")
_READ_OF_A_CONVERSATION = ("index_name", "retrieval", "stream_options", *_LIMITS)

_SHORTEST_MESSAGE = len(b"{},")
_listed = msgspec.json.Decoder(list[msgspec.Raw])

Raw = dict[str, msgspec.Raw]

_NAMES = {"index": "index_name"}


class OpenAiChat:
    """`Dialect` of ``POST /v1/chat/completions``.

    Args:
        similarity_threshold: The default minimum cosine similarity of a passage to the question; None: none.
        exchange: Renders the answers.
    """

    name = "openai"
    media = Media(
        unary=b"application/json",
        stream=b"text/event-stream; charset=utf-8",
        heartbeat=b": \n\n",
        breaks_off=True,
        shows_text=True,
    )

    def __init__(
        self, similarity_threshold: float | None = None, exchange: type[OpenAiExchange] = OpenAiExchange
    ) -> None:
        self._threshold = similarity_threshold
        self._made = exchange

    def parse(self, request: ChatRequest, searched: tuple[str, ...] = (), *, limited: bool = True) -> Exchange:
        """See `Dialect`; the body's ``stream`` decides.

        If a request names an index, the pipeline raises its errors, after it has checked that the index exists.

        Args:
            request: The request.
            searched: Indexes that are always searched, also if the chat has tools. The profile allows them.
            limited: Check the limits of the profile; else another dialect has checked them.
        """
        raw = json_fields.members(request.body)
        known = _fields(raw, _READ_FIRST)
        model = request.model or known.text("model")
        frontend = request.frontend.serving(model, request.principal)
        stream = known.flag("stream") if request.streaming is None else request.streaming
        if limited:
            _check_limits(raw, frontend)
        indexes = searched or _indexes(known, frontend)
        usual = Fields(dict(frontend.overrides) if frontend.always_searches else {}, "context.overrides")
        turn = Turn(
            principal=frontend.principal_for(
                request.principal, filter_requested=turn_settings.asks_for_filter(usual)
            ),
            question="",
            model=frontend.model_for(model, "model"),
            answers_as=frontend.assistant,
            only_default_model=frontend.only_default_model,
            blocked_message=frontend.blocked_message,
            answers_blocked=frontend.answers_blocked,
            headers=request.headers,
            original=OriginalRequest(
                json=request.body if raw.keys().isdisjoint(OURS) else json_fields.without(raw, OURS),
                passthrough=True,
                in_one_piece=not stream,
                required_indexes=indexes,
            ),
        )
        try:
            return self._exchange(turn, raw, indexes, frontend, usual, streaming=stream, must_search=bool(searched))
        except InvalidRequest as error:
            if not indexes:
                raise
            return self._made(
                replace(turn, original=replace(turn.original, objection=error)), streaming=stream, sources=True
            )

    def _exchange(
        self,
        turn: Turn,
        raw: Raw,
        indexes: tuple[str, ...],
        frontend: Frontend,
        usual: Fields,
        *,
        streaming: bool,
        must_search: bool,
    ) -> Exchange:
        ratio = _ratio(raw)
        detectors = frontend.detectors_for(detectors_block.parse(_fields(raw, ("detectors",)).object("detectors")))
        requested = frontend_turn.prompting(frontend, usual)
        parameters = turn_settings.parameters(usual)
        takes_all = must_search or (frontend.always_searches and frontend.searches_with_tools)
        tools = b"".join(bytes(raw[name]) for name in ("tools", "functions") if _has_items(raw, name))
        searches = bool(indexes) and (takes_all or not tools)
        usage = False
        adds = requested != PromptOptions() or bool(parameters) or bool(frontend.assistant) or self._made.composed
        reads = adds or detectors != Detectors()
        if policy := frontend.detectors != Detectors():
            frontend.check_unjudged(name for name, value in raw.items() if bytes(value) != b"null")
            conversation.check_names(turn.original.json)
        if searches or reads:
            messages = conversation.messages(raw)
            searches = searches and (takes_all or all(map(conversation.searchable, messages)))
        if searches or reads:
            known = _fields(raw, _READ_OF_A_CONVERSATION)
            usage = known.object("stream_options").flag("include_usage")
            if detectors != Detectors():
                conversation.check_readable(messages, policy=policy)
            kept = b"" if self._made.composed else turn.original.json
            turn = _conversation(turn, raw, known, messages, tools, detectors, kept)
        if searches:
            named = bool(known.text("index_name"))
            turn = frontend_turn.with_question(turn, messages, must_ask=named and not takes_all)
        if searches and turn.query:
            found = turn_settings.retrieval(usual, frontend, indexes, budget.MOST_CANDIDATES)
            turn = replace(
                turn,
                retrieval=self._retrieval(found, known.object("retrieval"), ratio),
                # The search itself refuses an unknown index.
                original=replace(turn.original, required_indexes=()),
            )
        turn = frontend_turn.with_profile(turn, requested, parameters, composed=self._made.composed)
        return self._made(turn, streaming=streaming, include_usage=usage, sources=bool(indexes))

    def _retrieval(self, usual: Retrieval, options: Fields, ratio: float | None) -> Retrieval:
        """Return the options of the search: those of the request, else the profile's."""
        threshold = options.number("similarity_threshold", -1, 1)
        score = options.number("minimum_score", -1e9, 1e9)
        return replace(
            usual,
            mode=RetrievalMode(options.one_of("mode", MODES) or usual.mode.value),
            top=options.integer("top", 1, budget.MOST_CANDIDATES) or usual.top,
            include_category=options.text("include_category") or usual.include_category,
            exclude_category=options.text("exclude_category") or usual.exclude_category,
            minimum_score=usual.minimum_score if score is None else score,
            similarity_threshold=self._threshold if threshold is None else threshold,
            context_token_ratio=usual.context_token_ratio if ratio is None else ratio,
        )

    def error(self, error: CausewayError) -> bytes:
        """Return an error with ``error`` for OpenAI's clients and ``detail`` for RAGEngine's."""
        return problem(error, _NAMES)


def _fields(raw: Raw, names: Sequence[str]) -> Fields:
    return Fields({name: json_fields.value(raw[name], name) for name in names if name in raw})


def _indexes(known: Fields, frontend: Frontend) -> tuple[str, ...]:
    """Return the index that the request names, else those of a profile that answers every chat from them.

    An empty name requests no search.
    """
    requested = known.text("index_name")
    if requested:
        return frontend.indexes_for((keys.index_name(requested, "index_name"),), "index_name")
    named = known.get("index_name") is not None
    return frontend.indexes_for((), "index_name") if frontend.always_searches and not named else ()


def _check_limits(raw: Raw, frontend: Frontend) -> None:
    """Refuse what the deployment forbids, also for passed-through requests.

    Raises:
        InvalidRequest: There are too many messages, or the limit of the answer is too high.
    """
    raw_messages = raw.get("messages", b"")
    # Few requests are long enough to be counted.
    if frontend.max_messages is not None and len(raw_messages) > _SHORTEST_MESSAGE * frontend.max_messages:
        with contextlib.suppress(ValueError, RecursionError):  # not a list: a later check reports it
            frontend.check_messages(len(_listed.decode(raw_messages)), "messages")
    if frontend.max_answer_tokens is not None:
        for name in _LIMITS:
            requested = json_fields.value(raw.get(name), name)
            frontend.check_answer_tokens(requested if isinstance(requested, int) else None, name)


def _has_items(raw: Raw, name: str) -> bool:
    return b"".join(bytes(raw.get(name, b"null")).split()) not in (b"null", b"[]", b"{}")


def _ratio(raw: Raw) -> float | None:
    value = json_fields.value(raw.get("context_token_ratio"), "context_token_ratio")
    if value is None:
        return None
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or not _LEAST_RATIO <= value <= _MOST_RATIO:
        ratio = bytes(raw["context_token_ratio"]).decode()
        ratio = ratio if len(ratio) <= _LONGEST_QUOTE else f"{ratio[:_LONGEST_QUOTE]}…"
        raise InvalidRequest(
            f"Invalid context_token_ratio: {ratio}. Must be between {_LEAST_RATIO} and {_MOST_RATIO}.",
            field="context_token_ratio",
        )
    return float(value)


def _conversation(
    turn: Turn,
    raw: Raw,
    known: Fields,
    messages: list[Message],
    tools: bytes,
    detectors: Detectors,
    kept: bytes,
) -> Turn:
    """Return the turn with its messages, for a request that is not passed through; ``kept`` is its JSON."""
    *history, last = messages
    asks = last.role == "user" and not last.content_json
    return replace(
        turn,
        question=last.text if asks else "",
        history=tuple(history if asks else messages),
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        detectors=detectors,
        parameters_json=json_fields.without(raw, (*OURS, "messages", "model", "stream", "stream_options")),
        # Both names are OpenAI's; the newer one has priority.
        max_tokens=known.integer("max_completion_tokens", 1, turn_settings.LONGEST_ANSWER)
        or known.integer("max_tokens", 1, turn_settings.LONGEST_ANSWER),
        original=replace(
            turn.original,
            json=kept,
            question_extra_json=last.extra_json if asks else b"",
            question_gaps=last.gaps if asks else (),
            tools_json=tools,
            passthrough=False,
        ),
    )
