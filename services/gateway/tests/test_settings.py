"""Values that the gateway's settings refuse."""

import pytest
from gateway.settings import Settings
from pydantic import ValidationError


@pytest.mark.parametrize("name", ["Authorization", "proxy-authorization", "api-key", "X-API-Key", "cookie"])
def test_detectors_do_not_get_credentials(name: str) -> None:
    """The gateway does not start if it would pass a header with credentials to detectors.

    The message names the header.
    """
    for headers in (name, f"x-tenant, {name} "):
        with pytest.raises(ValidationError, match=f"{name} contains credentials"):
            Settings(detector_headers=headers)
    assert Settings(detector_headers="x-tenant, x-request-id").detector_headers == "x-tenant, x-request-id"


def test_the_url_of_nats_must_not_be_empty() -> None:
    """An empty URL is refused with the setting's name. The client of NATS would fail with an assertion."""
    with pytest.raises(ValidationError, match="nats_url"):
        Settings(nats_url="")


def test_the_largest_upload_fits_the_spool() -> None:
    """The gateway does not start if the largest upload could never be stored, because it needs twice its size."""
    with pytest.raises(ValidationError, match="at least twice CAUSEWAY_MAX_UPLOAD_BYTES"):
        Settings(max_upload_bytes=100, max_spool_bytes=199)
    assert Settings(max_upload_bytes=100, max_spool_bytes=200).max_spool_bytes == 200
