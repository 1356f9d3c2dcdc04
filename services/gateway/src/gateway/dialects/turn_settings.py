"""Settings of a turn under the names of ``context.overrides``, from requests or profiles."""

import re
from typing import Any

from gateway.dialects.json_fields import Fields
from gateway.domain import Retrieval, RetrievalMode
from gateway.frontends.profiles import Frontend

LONGEST_ANSWER = 2**31
_MODES = tuple(mode.value for mode in RetrievalMode)
_LANGUAGE = re.compile(r"[^\W\d_]{2,20}(?:[-_][^\W_]{1,8}){0,3}")
_FILTERS = ("use_oid_security_filter", "use_groups_security_filter")


def retrieval(settings: Fields, frontend: Frontend, indexes: tuple[str, ...], most: int) -> Retrieval:
    """Return where and how to search for passages.

    Args:
        settings: The settings.
        frontend: The profile.
        indexes: The indexes to search together.
        most: The limit of requested passages.

    Raises:
        InvalidRequest: A setting is invalid; the error names it.
    """
    return Retrieval(
        indexes=indexes,
        mode=RetrievalMode(settings.one_of("retrieval_mode", _MODES) or "hybrid"),
        top=settings.integer("top", 1, most),
        include_category=settings.text("include_category"),
        exclude_category=settings.text("exclude_category"),
        minimum_score=settings.number("minimum_search_score", -1e9, 1e9),
        minimum_reranker_score=settings.number("minimum_reranker_score", -1e9, 1e9),
        semantic_ranker=settings.flag("semantic_ranker") or frontend.rerank,
        semantic_captions=settings.flag("semantic_captions"),
        context_token_ratio=settings.number("context_token_ratio", 0.2, 0.8) or 0.5,
        tuning=frontend.tuning,
    )


def asks_for_filter(settings: Fields) -> bool:
    """Return whether access lists must bind administrators, too."""
    flags = [settings.flag(name) for name in _FILTERS]  # all are validated
    return any(flags)


def language(settings: Fields) -> str:
    """Return the answer's language: a tag like ``pt-BR``, or a name.

    Its length is limited, because it becomes part of the prompt, which not every profile lets requests change.
    """
    text = settings.text("language")
    if text and not _LANGUAGE.fullmatch(text):
        raise settings.wrong("language", "must be a language, like en, pt-BR or Deutsch")
    return text


def parameters(settings: Fields) -> dict[str, Any]:
    """Return the parameters for the model, under the names of OpenAI's API."""
    settings_given: dict[str, Any] = {
        "temperature": settings.number("temperature", 0, 2),
        "seed": settings.integer("seed", -(2**63), 2**63 - 1),
        "max_tokens": settings.integer("max_tokens", 1, LONGEST_ANSWER),
        "reasoning_effort": settings.text("reasoning_effort") or None,
    }
    return {name: value for name, value in settings_given.items() if value is not None}
