"""Reads the settings of a turn from requests and profiles. Their names are those of ``context.overrides``."""

import re
from typing import Any

from gateway.dialects.json_fields import Fields
from gateway.domain import Retrieval, RetrievalMode
from gateway.frontends.profiles import Frontend

MAX_ANSWER_TOKENS = 2**31
"""The maximum token limit that a request may set."""
MIN_CONTEXT_RATIO, MAX_CONTEXT_RATIO = 0.2, 0.8
"""The bounds of the passages' share of the free tokens."""
DEFAULT_CONTEXT_RATIO = 0.5
MODES = tuple(mode.value for mode in RetrievalMode)
_LANGUAGE = re.compile(r"[^\W\d_]{2,20}(?:[-_][^\W_]{1,8}){0,3}")
_ACCESS_FILTERS = ("use_oid_security_filter", "use_groups_security_filter")


def retrieval(settings: Fields, frontend: Frontend, indexes: tuple[str, ...], max_top: int) -> Retrieval:
    """Return where and how to search for passages.

    Args:
        settings: The settings of the request or the profile.
        frontend: The profile.
        indexes: The indexes to search together.
        max_top: The maximum value of ``top``.

    Raises:
        InvalidRequest: A setting is invalid; the error names it.
    """
    return Retrieval(
        indexes=indexes,
        mode=RetrievalMode(settings.one_of("retrieval_mode", MODES) or "hybrid"),
        top=settings.integer("top", 1, max_top),
        include_category=settings.text("include_category"),
        exclude_category=settings.text("exclude_category"),
        minimum_score=settings.number("minimum_search_score", -1e9, 1e9),
        minimum_reranker_score=settings.number("minimum_reranker_score", -1e9, 1e9),
        semantic_ranker=settings.flag("semantic_ranker") or frontend.rerank,
        semantic_captions=settings.flag("semantic_captions"),
        context_token_ratio=settings.number("context_token_ratio", MIN_CONTEXT_RATIO, MAX_CONTEXT_RATIO)
        or DEFAULT_CONTEXT_RATIO,
        tuning=frontend.tuning,
    )


def requests_access_filter(settings: Fields) -> bool:
    """Return whether the settings request an access filter. Access lists then apply to administrators, too.

    Raises:
        InvalidRequest: A flag is not a boolean.
    """
    flags = [settings.flag(name) for name in _ACCESS_FILTERS]  # validates every flag
    return any(flags)


def language(settings: Fields) -> str:
    """Return the answer's language: a tag like ``pt-BR``, or a name. Return an empty string if it is absent.

    The language becomes part of the prompt. Its format is limited, because not every profile allows requests to
    change the prompt.

    Raises:
        InvalidRequest: The language has another format.
    """
    text = settings.text("language")
    if text and not _LANGUAGE.fullmatch(text):
        raise settings.invalid("language", "must be a language tag or name, like en, pt-BR or Deutsch")
    return text


def parameters(settings: Fields) -> dict[str, Any]:
    """Return the parameters for the model, under the names of OpenAI's API.

    Raises:
        InvalidRequest: A parameter is invalid; the error names it.
    """
    values: dict[str, Any] = {
        "temperature": settings.number("temperature", 0, 2),
        "seed": settings.integer("seed", -(2**63), 2**63 - 1),
        "max_tokens": settings.integer("max_tokens", 1, MAX_ANSWER_TOKENS),
        "reasoning_effort": settings.text("reasoning_effort") or None,
    }
    return {name: value for name, value in values.items() if value is not None}
