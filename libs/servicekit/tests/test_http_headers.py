import email.utils
import time

import pytest
from servicekit.http_headers import retry_after


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("inf", None), ("nan", None), ("soon", None), ("", None)],
)
def test_a_finite_number_of_seconds_is_used(value: str, seconds: float | None) -> None:
    """A finite number of seconds that is not negative is used. Any other value is ignored."""
    assert retry_after({"retry-after": value}) == seconds


def test_a_date_counts_from_now() -> None:
    """A date counts from now. A past date means at once."""
    ahead = email.utils.formatdate(time.time() + 60, usegmt=True)
    wait = retry_after({"retry-after": ahead})
    assert wait is not None
    assert 50 < wait <= 60
    assert retry_after({"retry-after": email.utils.formatdate(0, usegmt=True)}) == 0
