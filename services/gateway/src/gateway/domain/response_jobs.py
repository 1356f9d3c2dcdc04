"""Responses that run in the background, as they wait for a gateway."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from servicekit.principal import Principal


@dataclass(frozen=True, slots=True)
class ResponseJob:
    """A response that is to be answered.

    Attributes:
        name: Id of the response.
        created: When it was accepted, in seconds since 1970.
        principal: Who asks.
        key_id: Id of the API key; empty where it was a token, or nothing.
        profile: Name of the front end.
        body: The request as it came.
        headers: Those that detectors may get.
    """

    name: str
    created: int
    principal: Principal
    key_id: str
    profile: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
