"""What may be set for an index alone, and how what is asked for becomes what it has."""

from collections.abc import Iterable
from dataclasses import fields, replace

from servicekit.errors import InvalidRequest

from retriever.domain import IndexSettings

_CHUNK_TOKENS = range(16, 8193)
_NAMES = frozenset(field.name for field in fields(IndexSettings))


def checked(settings: IndexSettings) -> IndexSettings:
    """The settings, once they are known to make sense.

    Raises:
        InvalidRequest: Naming the field.
    """
    tokens, overlap = settings.chunk_tokens, settings.chunk_overlap
    if tokens is not None and tokens not in _CHUNK_TOKENS:
        raise InvalidRequest(
            f"A chunk has {_CHUNK_TOKENS[0]} to {_CHUNK_TOKENS[-1]} tokens.", field="settings.chunk_tokens"
        )
    if overlap is not None and overlap >= (tokens or _CHUNK_TOKENS[-1]):
        raise InvalidRequest(
            "A chunk repeats fewer tokens of the one before than it has.", field="settings.chunk_overlap"
        )
    if settings.dense_weight is not None and not 0 <= settings.dense_weight <= 1:
        raise InvalidRequest("dense_weight is a number from 0 to 1.", field="settings.dense_weight")
    return settings


def changed(old: IndexSettings, new: IndexSettings, names: Iterable[str]) -> IndexSettings:
    """The old settings with those of the new ones that are named.

    Raises:
        InvalidRequest: A name is none, or what comes of it makes no sense.
    """
    names = tuple(names)
    if unknown := sorted(set(names) - _NAMES):
        name = unknown[0][:100]
        raise InvalidRequest(f"'{name}' is no setting that can be changed in place.", field=f"settings.{name}")
    return checked(replace(old, **{name: getattr(new, name) for name in names}))


def said(settings: IndexSettings) -> tuple[str, ...]:
    """The names of those that are set."""
    return tuple(sorted(name for name in _NAMES if getattr(settings, name) is not None))
