"""``context.overrides``: the settings of one turn, shared by all stages of the RAG chat protocol.

The settings can only narrow the front end's profile. The gateway ignores unknown, null and empty settings, and
refuses all other settings that have a wrong type or are out of range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest
from servicekit.principal import LOCAL

from gateway.answering import prompts
from gateway.dialects import detectors_block, turn_settings
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.json_fields import Fields
from gateway.domain import Message, PromptOptions, Turn
from gateway.frontends.profiles import Frontend

DEFAULT_TOP = 3
"""The default number of passages of an answer."""
MAX_TOP = 50
"""The maximum number of passages of an answer."""

KNOWN = frozenset(
    {
        "context_token_ratio",
        "detectors",
        "exclude_category",
        "gpt4v_input",
        "include_category",
        "index",
        "language",
        "max_tokens",
        "minimum_reranker_score",
        "minimum_search_score",
        "model",
        "prompt_template",
        "query_rewriting",
        "reasoning_effort",
        "retrieval_mode",
        "seed",
        "semantic_captions",
        "semantic_ranker",
        "send_image_sources",
        "send_text_sources",
        "suggest_followup_questions",
        "temperature",
        "top",
        "use_gpt4v",
        "use_groups_security_filter",
        "use_oid_security_filter",
        "vector_fields",
    }
)
"""The known settings. The gateway ignores other settings."""

_GPT4V_INPUTS = ("text", "texts", "textAndImages", "images")
_APPEND = ">>>"


def turn(request: ChatRequest, conversation: Sequence[Message], context: Fields) -> Turn:
    """Return the turn of a request.

    Args:
        request: The request.
        conversation: The messages; the last one is the question.
        context: The request's ``context``.

    Raises:
        InvalidRequest: A setting is invalid; the error names it.
        PermissionDenied: The profile does not allow a setting; the error names it.
    """
    frontend = request.frontend
    frontend = frontend.with_assistant(_Settings(context, frontend.overrides).text("model"), request.principal)
    settings = _Settings(context, frontend.overrides)
    *history, question = conversation
    filter_requested = turn_settings.requests_access_filter(settings)
    # There is one vector field, so this setting has no effect. The gateway still refuses an invalid value.
    settings.texts("vector_fields")
    pictures, texts = _sources(settings)
    indexes = frontend.indexes_for(settings.texts("index"), settings.path("index"))
    retrieval = turn_settings.retrieval(settings, frontend, indexes, MAX_TOP)
    max_tokens = settings.integer("max_tokens", 1, turn_settings.MAX_ANSWER_TOKENS)
    frontend.check_answer_tokens(max_tokens, settings.path("max_tokens"))
    return Turn(
        principal=frontend.principal_for(request.principal, filter_requested=filter_requested),
        question=question.text,
        history=tuple(history),
        model=frontend.model_for(settings.text("model"), settings.path("model")),
        model_alias=frontend.assistant,
        only_default_model=frontend.only_default_model,
        retrieval=replace(retrieval, top=retrieval.top or DEFAULT_TOP),
        parameters_json=msgspec.json.encode(turn_settings.parameters(settings)),
        max_tokens=max_tokens,
        detectors=frontend.detectors_for(
            detectors_block.parse(settings.object("detectors")), "context.overrides.detectors"
        ),
        blocked_message=frontend.blocked_message,
        answers_blocked=frontend.answers_blocked,
        headers=request.headers,
        prompting=PromptOptions(
            system_prompt=_system_prompt(settings, frontend),
            requested_prompt=_requested_prompt(settings),
            rewrite=settings.flag("query_rewriting"),
            follow_ups=settings.flag("suggest_followup_questions"),
            language=turn_settings.language(settings),
            pictures=pictures,
            pictures_only=pictures and not texts,
        ),
    )


class _Settings(Fields):
    """The settings of a request. Some clients put them directly into ``context``.

    Args:
        context: The request's ``context``.
        defaults: The values of missing settings.
    """

    def __init__(self, context: Fields, defaults: Mapping[str, Any]) -> None:
        flat, nested = _values(context), _values(context.object("overrides"))
        super().__init__({**defaults, **flat, **nested}, context.path("overrides"))
        self._flat = {name: context.path(name) for name in flat.keys() - nested.keys()}

    def path(self, name: str) -> str:
        return self._flat.get(name) or super().path(name)


def check(defaults: Mapping[str, Any]) -> None:
    """Check the default settings of a profile.

    Raises:
        InvalidRequest: A setting is unknown or invalid; ``field`` ends with its name.
    """
    for name in defaults:
        if name not in KNOWN:
            raise InvalidRequest("This setting does not exist.", field=name)
    request = ChatRequest(b"", LOCAL, Frontend(overrides=defaults))
    turn(request, (Message("user", "?"),), Fields({}, "context"))


def _values(fields: Fields) -> dict[str, Any]:
    """Return the settings that are neither null nor empty."""
    return {name: value for name, value in fields.members() if value != "" and name != "overrides"}


def _sources(settings: Fields) -> tuple[bool, bool]:
    """Return whether the model receives the pictures of pages, and whether it receives their text."""
    # Clients send ``gpt4v_input`` even if ``use_gpt4v`` is false.
    kind = settings.one_of("gpt4v_input", _GPT4V_INPUTS)
    pictures = settings.flag("use_gpt4v") and kind not in ("text", "texts")
    sources = {name: settings.flag(name) for name in ("send_image_sources", "send_text_sources")}
    pictures = sources["send_image_sources"] if settings.get("send_image_sources") is not None else pictures
    texts = sources["send_text_sources"] if settings.get("send_text_sources") is not None else kind != "images"
    return pictures, texts


def _requested_prompt(settings: Fields) -> str:
    """Return the part of the system prompt that the request contains."""
    return settings.text("prompt_template").removeprefix(_APPEND).strip()


def _system_prompt(settings: Fields, frontend: Frontend) -> str | None:
    """Return the system prompt, or None for the default prompt.

    Raises:
        PermissionDenied: The profile does not allow a ``prompt_template``.
    """
    template = settings.text("prompt_template")
    if not template:
        return frontend.system_prompt
    frontend.check_prompt_template(settings.path("prompt_template"))
    if not template.startswith(_APPEND):
        return template
    base = prompts.ANSWER_FROM_SOURCES if frontend.system_prompt is None else frontend.system_prompt
    return f"{base}\n{template.removeprefix(_APPEND).strip()}"
