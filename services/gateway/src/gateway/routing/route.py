"""The entry of a route: its role, its cost, its limits, and the format of its errors."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servicekit.errors import CausewayError

from gateway.frontends.profiles import Frontend

Errors = Callable[[Frontend, Mapping[bytes, bytes], CausewayError], bytes]
"""Renders an error's body from a request's profile and headers."""


class Role(enum.StrEnum):
    """The role that a caller needs; all but the first have the names of `servicekit.principal.ROLES`."""

    OPEN = "open"
    ASK = "ask"
    INGEST = "ingest"
    ADMIN = "admin"


class AdmissionClass(enum.StrEnum):
    """The priority of a request."""

    INTERACTIVE = "interactive"
    """A person waits for the answer."""
    BATCH = "batch"
    """A program waits, and can retry."""


class QuotaUnit(enum.Enum):
    """A resource that a request uses in addition to itself."""

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
    """All indexes of the tenant. A front end that limits its indexes has no such route."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path.

    Attributes:
        path: In Starlette's format: ``/jobs/{job_id}``, ``/content/{path:path}``.
        method: A route with GET answers HEAD, too.
        role: The role that a caller needs.
        reach: The indexes that it can read or write.
        admission: The class of an answer that needs a slot; None: it needs none.
        quota: The resource that it uses in addition to a request.
        upload: Its body has the limit of uploads.
        errors: The format of its errors; None: OpenAI's.
        takes_slash: The path with a trailing slash is the same route.
        is_resource: Its address is a protected resource (RFC 9728): a token may be valid for it alone, and a
            refusal names its metadata.
    """

    path: str
    method: str
    role: Role
    reach: IndexReach = IndexReach.NONE
    admission: AdmissionClass | None = None
    quota: QuotaUnit | None = None
    upload: bool = False
    errors: Errors | None = None
    takes_slash: bool = False
    is_resource: bool = False

    @property
    def first_segment(self) -> str:
        """Return the path up to its second slash, without the first one."""
        return self.path[1:].partition("/")[0]
