"""OpenAI chat completions, with retrieval where the request names an index.

Sources: the OpenAI API reference for chat completions; the RAGEngine chat completion algorithm for ``index_name``,
``context_token_ratio``, the splitting of messages and the cases that go through to the model as they came.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec
from servicekit import keys
from servicekit.errors import CausewayError, InvalidRequest

from gateway.answering import budget
from gateway.dialects import detectors_block, json_fields
from gateway.dialects.exchange import ChatRequest, Exchange, Media
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai.render import OpenAiExchange
from gateway.dialects.problem import problem
from gateway.domain import (
    PART_BREAK,
    Detectors,
    Message,
    OriginalRequest,
    PromptStyle,
    Retrieval,
    RetrievalMode,
    Turn,
)
from gateway.frontends.profiles import Frontend

OURS = ("index_name", "context_token_ratio", "detectors", "retrieval")
"""Members of a request that are the platform's and never reach a model server."""

MODES = tuple(mode.value for mode in RetrievalMode)
_ROLES = ("system", "user", "assistant", "developer")
_SPOKEN = ("user", "tool", "function")
_LONGEST_ANSWER = 2**31
_LEAST_RATIO, _USUAL_RATIO, _MOST_RATIO = 0.2, 0.5, 0.8
_LONGEST_QUOTE = 100
_INVALID = "Invalid request format"

# What is read of a request that goes to the model as it came; its other members are the model server's to judge.
_READ_FIRST = ("index_name", "model", "stream")
_LIMITS = ("max_tokens", "max_completion_tokens")
_READ_OF_A_CONVERSATION = ("retrieval", "stream_options", *_LIMITS)

_SHORTEST_MESSAGE = len(b"{},")
_listed = msgspec.json.Decoder(list[msgspec.Raw])
_messages_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

Raw = dict[str, msgspec.Raw]

_NAMES = {"index": "index_name"}


class OpenAiChat:
    """`Dialect` of ``POST /v1/chat/completions``.

    Args:
        similarity_threshold: Least cosine similarity of a passage to the question, where a request does not say;
            None: none.
    """

    name = "openai"
    media = Media(
        unary=b"application/json", stream=b"text/event-stream; charset=utf-8", heartbeat=b": \n\n", breaks_off=True
    )

    def __init__(self, similarity_threshold: float | None = None) -> None:
        self._threshold = similarity_threshold

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`; the body's ``stream`` decides.

        What is wrong with a request that names an index is told after the index is known to exist: the pipeline
        raises it.
        """
        raw = json_fields.members(request.body)
        known = _fields(raw, _READ_FIRST)
        stream = known.flag("stream") if request.streaming is None else request.streaming
        _check_limits(raw, request.frontend)
        index = _index(known, request.frontend)
        turn = Turn(
            principal=request.frontend.principal_for(request.principal, filter_asked=False),
            question="",
            model=request.frontend.model_for(request.model or known.text("model"), "model"),
            only_default_model=request.frontend.only_default_model,
            blocked_message=request.frontend.blocked_message,
            answers_blocked=request.frontend.answers_blocked,
            headers=request.headers,
            original=OriginalRequest(
                json=request.body if raw.keys().isdisjoint(OURS) else json_fields.without(raw, OURS),
                passthrough=True,
                required_indexes=(index,) if index else (),
            ),
        )
        try:
            return self._exchange(turn, raw, index, request.frontend, streaming=stream)
        except InvalidRequest as error:
            if not index:
                raise
            return OpenAiExchange(
                replace(turn, original=replace(turn.original, objection=error)), streaming=stream, sources=True
            )

    def _exchange(self, turn: Turn, raw: Raw, index: str, frontend: Frontend, *, streaming: bool) -> Exchange:
        ratio = _ratio(raw)
        detectors = frontend.detectors_for(detectors_block.parse(_fields(raw, ("detectors",)).object("detectors")))
        searches = bool(index) and not (_has_items(raw, "tools") or _has_items(raw, "functions"))
        usage = False
        if searches or detectors != Detectors():
            messages = _messages(raw)
            searches = searches and all(_searchable(message) for message in messages)
        if searches or detectors != Detectors():
            known = _fields(raw, _READ_OF_A_CONVERSATION)
            usage = known.object("stream_options").flag("include_usage")
            turn = _conversation(turn, raw, known, messages, detectors)
        if searches:
            turn = self._searching(turn, known.object("retrieval"), messages, index, ratio)
            asked = replace(turn.retrieval, tuning=frontend.tuning, semantic_ranker=frontend.rerank)
            turn = replace(turn, retrieval=asked)
        return OpenAiExchange(turn, streaming=streaming, include_usage=usage, sources=bool(index))

    def _searching(self, turn: Turn, options: Fields, messages: list[Message], index: str, ratio: float) -> Turn:
        """The turn with the question put together and where to look for passages."""
        asked, others = _split(messages)
        question = [messages[at] for at in asked]
        threshold = options.number("similarity_threshold", -1, 1)
        return replace(
            turn,
            question=PART_BREAK.join(message.text for message in question),
            history=tuple(messages[at] for at in others),
            retrieval=Retrieval(
                indexes=(index,),
                mode=RetrievalMode(options.one_of("mode", MODES) or "hybrid"),
                top=options.integer("top", 1, budget.MOST_CANDIDATES),
                include_category=options.text("include_category"),
                exclude_category=options.text("exclude_category"),
                minimum_score=options.number("minimum_score", -1e9, 1e9),
                similarity_threshold=self._threshold if threshold is None else threshold,
                context_token_ratio=ratio,
            ),
            original=replace(
                turn.original,
                question_extra_json=_common_extra(question),
                messages=tuple(messages) if len(asked) > 1 else (),
                places=(*others, *asked),
                required_indexes=(),  # the search itself refuses an unknown one
            ),
        )

    def error(self, error: CausewayError) -> bytes:
        """OpenAI's clients read ``error``, RAGEngine's read ``detail``: both are there."""
        return problem(error, _NAMES)


def _fields(raw: Raw, names: Sequence[str]) -> Fields:
    return Fields({name: json_fields.value(raw[name], name) for name in names if name in raw})


def _index(known: Fields, frontend: Frontend) -> str:
    """The index that the request names; empty where it names none, which here means that nothing is searched."""
    asked = known.text("index_name")
    return frontend.index_for(keys.index_name(asked, "index_name"), "index_name") if asked else ""


def _check_limits(raw: Raw, frontend: Frontend) -> None:
    """What the deployment refuses, wherever the request goes.

    Raises:
        InvalidRequest: Too many messages, or too long an answer asked for.
    """
    said = raw.get("messages", b"")
    # Hardly a request is long enough to be counted.
    if frontend.max_messages is not None and len(said) > _SHORTEST_MESSAGE * frontend.max_messages:
        with contextlib.suppress(ValueError, RecursionError):  # no list: whoever reads it says so
            frontend.check_messages(len(_listed.decode(said)), "messages")
    if frontend.max_answer_tokens is not None:
        for name in _LIMITS:
            asked = json_fields.value(raw.get(name), name)
            frontend.check_answer_tokens(asked if isinstance(asked, int) else None, name)


def _has_items(raw: Raw, name: str) -> bool:
    return b"".join(bytes(raw.get(name, b"null")).split()) not in (b"null", b"[]", b"{}")


def _ratio(raw: Raw) -> float:
    value = json_fields.value(raw.get("context_token_ratio"), "context_token_ratio")
    if value is None:
        return _USUAL_RATIO
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if not right or not _LEAST_RATIO <= value <= _MOST_RATIO:
        said = bytes(raw["context_token_ratio"]).decode()
        said = said if len(said) <= _LONGEST_QUOTE else f"{said[:_LONGEST_QUOTE]}…"
        raise InvalidRequest(
            f"Invalid context_token_ratio: {said}. Must be between {_LEAST_RATIO} and {_MOST_RATIO}.",
            field="context_token_ratio",
        )
    return float(value)


def _conversation(turn: Turn, raw: Raw, known: Fields, messages: list[Message], detectors: Detectors) -> Turn:
    """The turn of a request that is not passed through, its messages as they came."""
    for at, message in enumerate(messages):
        if message.content_json and message.role in _SPOKEN:
            raise InvalidRequest(
                f"messages[{at}].content holds parts other than text, which the detectors cannot read.",
                field=f"messages[{at}].content",
            )
    *history, last = messages
    asks = last.role == "user"
    return replace(
        turn,
        question=last.text if asks else "",
        history=tuple(history if asks else messages),
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        parameters_json=json_fields.without(raw, (*OURS, "messages", "model", "stream", "stream_options")),
        # Both names are OpenAI's; the newer one wins.
        max_tokens=known.integer("max_completion_tokens", 1, _LONGEST_ANSWER)
        or known.integer("max_tokens", 1, _LONGEST_ANSWER),
        detectors=detectors,
        original=replace(turn.original, question_extra_json=last.extra_json if asks else b"", passthrough=False),
    )


def _messages(raw: Raw) -> list[Message]:
    try:
        items = _messages_decoder.decode(raw.get("messages", b"null"))
    except (ValueError, RecursionError):
        items = []
    if not items:
        raise InvalidRequest(f"{_INVALID}: messages must be a non-empty list of objects.", field="messages")
    return [_message(item, f"messages[{at}]") for at, item in enumerate(items)]


def _message(item: Raw, path: str) -> Message:
    role = json_fields.value(item.get("role"), f"{path}.role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{_INVALID}: messages must contain 'role'.", field=f"{path}.role")
    field = f"{path}.content"
    content = json_fields.value(item.get("content"), field)
    if content is None and role != "assistant":
        raise InvalidRequest(f"{_INVALID}: messages must contain 'content' for role '{role}'.", field=field)
    if content is not None and not isinstance(content, str | list):
        raise InvalidRequest(f"{_INVALID}: 'content' must be a string or a list of parts.", field=field)
    if role == "user" and not content:
        raise InvalidRequest(f"{_INVALID}: user messages must contain 'content'.", field=field)
    for name in item:
        json_fields.value(item[name], f"{path}.{name}")
    extra = json_fields.without(item, ("role", "content"))
    extra = b"" if extra == b"{}" else extra
    if isinstance(content, list):
        texts = [part["text"] for part in content if _is_text(part)]
        if len(texts) < len(content):
            return Message(role, "", bytes(item["content"]), extra)
        content = "\n".join(texts)
    return Message(role, content or "", b"", extra)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _searchable(message: Message) -> bool:
    """Retrieval knows what to do with it; else the model alone does."""
    return message.role in _ROLES and not (message.role == "user" and message.content_json)


def _split(messages: list[Message]) -> tuple[list[int], list[int]]:
    """Where what the user said since the latest answer stands, which is the question; and everything else."""
    latest = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    asked = [at for at, message in enumerate(messages) if at > latest and message.role == "user"]
    if not any(messages[at].text.strip() for at in asked):
        raise InvalidRequest("There must be a user prompt since the latest assistant message.", field="messages")
    return asked, [at for at, message in enumerate(messages) if at <= latest or message.role != "user"]


def _common_extra(asked: list[Message]) -> bytes:
    """The members that all of these messages have beside their text; of messages that differ in them, none."""
    first = asked[0].extra_json
    return first if all(message.extra_json == first for message in asked) else b""
