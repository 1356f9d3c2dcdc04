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
