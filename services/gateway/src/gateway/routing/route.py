"""The entry of a route: its role, its cost, its limits, and the format of its errors."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servicekit.errors import CausewayError

from gateway.frontends.profiles import Frontend

Errors = Callable[[Frontend, Mapping[bytes, bytes], CausewayError], bytes]
"""Renders an error's body from a request's profile and headers."""


class Role(enum.StrEnum):
    """The role that a caller needs. All values except ``open`` are also in `servicekit.principal.ROLES`."""

    OPEN = "open"
    ASK = "ask"
    INGEST = "ingest"
    ADMIN = "admin"


class AdmissionClass(enum.StrEnum):
    """The priority of a request."""

    INTERACTIVE = "interactive"
    """A person waits for the response."""
    BATCH = "batch"
    """A program waits for the response and can retry."""


class QuotaUnit(enum.Enum):
    """A resource that counts against a quota, in addition to the request."""

    TOKENS = "tokens"
    """Tokens of a model."""
    BYTES = "bytes"
    """Bytes of documents."""


class IndexReach(enum.Enum):
    """Which indexes a request can read or write."""

    NONE = "none"
    PROFILE = "profile"
    """The indexes that the profile of the request's front end allows."""
    TENANT = "tenant"
    """All indexes of the tenant. A front end that limits its indexes does not serve such a route."""


@dataclass(frozen=True, slots=True)
class Route:
    """The properties of one path and method.

    Attributes:
        path: The path in Starlette's format: ``/jobs/{job_id}``, ``/content/{path:path}``.
        method: The HTTP method. A GET route also answers HEAD.
        role: The role that a caller needs.
        reach: The indexes that a request can read or write.
        admission: The priority of a request that needs an admission slot; None: it needs no slot.
        quota: The resource that a request uses.
        upload: Whether the size limit of uploads applies to the body.
        errors: Renders the errors; None: in OpenAI's format.
        accepts_trailing_slash: Whether the path with a trailing slash is the same route.
        is_resource: Whether the address is a protected resource (RFC 9728). A token may be valid for this address
            only, and a refusal names the address of the metadata.
    """

    path: str
    method: str
    role: Role
    reach: IndexReach = IndexReach.NONE
    admission: AdmissionClass | None = None
    quota: QuotaUnit | None = None
    upload: bool = False
    errors: Errors | None = None
    accepts_trailing_slash: bool = False
    is_resource: bool = False

    @property
    def first_segment(self) -> str:
        """Return the first segment of the path."""
        return self.path[1:].partition("/")[0]
