"""The type of queued background responses."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from servicekit.principal import Principal


@dataclass(frozen=True, slots=True)
class ResponseJob:
    """A response that a gateway must generate in the background.

    Attributes:
        name: The id of the response.
        created: The time at which the gateway accepted the request, in seconds since 1970.
        principal: The principal of the request.
        key_id: The id of the API key, or empty for a token and without a credential.
        profile: The name of the front end.
        body: The request's original body.
        headers: The request's headers that detectors may receive.
        key_name: The name of the API key, which holds a quota; empty like ``key_id``.
    """

    name: str
    created: int
    principal: Principal
    key_id: str
    profile: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key_name: str = ""  # jobs of earlier versions have none
