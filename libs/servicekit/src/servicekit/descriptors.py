"""The limit of the process's file descriptors."""

import resource

import structlog

_log = structlog.get_logger(__name__)
_OTHERS = 256
"""Descriptors for other purposes: services, the broker, files of uploads, logs, libraries."""


def limit(wanted: int, what: str) -> int:
    """Return the number of resources that the process may keep open, at least one.

    Each resource needs one descriptor. This function raises the soft limit of the process if it is too low.

    Args:
        wanted: The number from the settings.
        what: The name of the resources, for the log.
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
