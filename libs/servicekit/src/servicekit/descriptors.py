"""The limit of the process's file descriptors."""

import resource

import structlog

_log = structlog.get_logger(__name__)
_OTHERS = 256
"""Descriptors of other things: services, the broker, files of uploads, logs, libraries."""


def limit(wanted: int, what: str) -> int:
    """Return how many of these things, with one descriptor each, the process may have open, at least one.

    If the process's own limit of descriptors is too low, this function raises it.

    Args:
        wanted: The number by the settings.
        what: The name of the things, for the log.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHERS
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    possible = max(1, min(wanted, soft - _OTHERS))
    if possible < wanted:
        _log.warning("too few file descriptors for the settings", what=what, wanted=wanted, limit=possible)
    return possible
