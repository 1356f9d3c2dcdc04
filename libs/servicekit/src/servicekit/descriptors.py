"""The limit of the process's file descriptors."""

import resource

import structlog

_log = structlog.get_logger(__name__)
_OTHER_DESCRIPTORS = 256
"""Descriptors for other purposes: services, the broker, files of uploads, logs, libraries."""


def limit(requested: int, what: str) -> int:
    """Return the number of resources that the process may keep open, at least one.

    Each resource needs one descriptor. This function raises the soft limit of the process if it is too low.

    Args:
        requested: The number from the settings.
        what: The name of the resources, for the log.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = requested + _OTHER_DESCRIPTORS
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    possible = max(1, min(requested, soft - _OTHER_DESCRIPTORS))
    if possible < requested:
        _log.warning("too few file descriptors for the settings", what=what, wanted=requested, limit=possible)
    return possible
