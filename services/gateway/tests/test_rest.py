import errno
import json

import httpx
import pytest
from fastapi import APIRouter
from gateway.routes.rest import rest
from servicekit.errors import CausewayError, http_status
from starlette.types import Scope


def error_body(scope: Scope, error: CausewayError) -> bytes:
    return json.dumps({"error": error.message, "status": http_status(error)}).encode()


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 503, "disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 503, "disk is full"),
        (OSError(errno.EIO, "Input/output error"), 500, "unexpected error"),
        (ZeroDivisionError("the inside"), 500, "unexpected error"),
    ],
)
async def test_what_nobody_expected(failure: Exception, status: int, said: str) -> None:
    """A disk without room is a state that passes; what else is not foreseen is a defect. Neither tells of the
    inside, and both are raised on, for the log.
    """
    router = APIRouter()

    @router.get("/")
    async def fails() -> None:
        raise failure

    app = rest([router], error_body)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        response = await http.get("/")
    assert response.status_code == status
    assert said in response.text
    assert ("retry-after" in response.headers) == (status == 503)
    assert str(failure.args[-1]) not in response.text
    with pytest.raises(type(failure)):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            await http.get("/")
