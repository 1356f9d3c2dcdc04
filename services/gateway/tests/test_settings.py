"""gateway.settings: what cannot be set."""

import pytest
from gateway.settings import Settings
from pydantic import ValidationError


@pytest.mark.parametrize("name", ["Authorization", "proxy-authorization", "api-key", "X-API-Key", "cookie"])
def test_credentials_are_no_detectors_business(name: str) -> None:
    """The gateway does not start where it would hand them on; the message names the header."""
    for headers in (name, f"x-tenant, {name} "):
        with pytest.raises(ValidationError, match=f"{name} holds credentials"):
            Settings(detector_headers=headers)
    assert Settings(detector_headers="x-tenant, x-request-id").detector_headers == "x-tenant, x-request-id"
