"""Parses durations and dates of options."""

import re
from datetime import UTC, datetime

_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(text: str) -> float | None:
    """Return a duration such as ``90d``, ``12h``, ``5m`` or ``2w`` in seconds; None for another text."""
    found = _DURATION.fullmatch(text)
    return float(int(found[1]) * _SECONDS[found[2]]) if found else None


def timestamp(text: str) -> float | None:
    """Return a date or a time (ISO 8601, by default in UTC) as seconds since 1970; None for another text."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
