"""Headers of HTTP answers that more than one client reads."""

import email.utils
import math
import time
from collections.abc import Mapping


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds after which a server wants to be asked again, where it says so readably.

    The header holds seconds or a date (RFC 9110, 10.2.3).

    Args:
        headers: Of the answer; names are looked up in lower case.
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
