"""HTTP response headers that several clients read."""

import email.utils
import math
import time
from collections.abc import Mapping


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a server wants a retry, or None without a valid header.

    The header contains seconds or a date (RFC 9110, 10.2.3).

    Args:
        headers: The headers of the response, with names in lower case.
    """
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
