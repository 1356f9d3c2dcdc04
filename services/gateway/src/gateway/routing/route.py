"""The entry of a route: who may call it, what it costs, what it may take, and how its errors look."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from servicekit.errors import CausewayError

from gateway.frontends.profiles import Frontend

Errors = Callable[[Frontend, Mapping[bytes, bytes], CausewayError], bytes]
"""A request's profile and headers, and an error → the error's body."""


class Role(enum.StrEnum):
    """The role that a caller needs; but for the first the names are those of `servicekit.principal.ROLES`."""

    OPEN = "open"
    ASK = "ask"
    INGEST = "ingest"
    ADMIN = "admin"


class AdmissionClass(enum.StrEnum):
    """How urgent a request is."""

    INTERACTIVE = "interactive"
    """A person waits for the answer."""
    BATCH = "batch"
    """A program waits, and can come again."""


class QuotaUnit(enum.Enum):
    """What a request uses besides itself."""

    TOKENS = "tokens"
    """Tokens of a model."""
    BYTES = "bytes"
    """Bytes of documents."""


class IndexReach(enum.Enum):
    """Which indexes a request can read or write."""

    NONE = "none"
    PROFILE = "profile"
    """Those that the profile of the request's front end allows."""
    TENANT = "tenant"
    """All of the tenant's, whatever the profile allows: a front end that limits its indexes has no such route."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path.

    Attributes:
        path: As Starlette writes it: ``/jobs/{job_id}``, ``/content/{path:path}``.
        method: A route with GET answers HEAD, too.
        role: The role that a caller needs.
        reach: The indexes that it can read or write.
        admission: Its class where it takes a place among the answers; None: it takes none.
        quota: What it uses besides a request.
        upload: The limit of uploads holds for its body, not that of other requests.
        errors: How its errors look; None: as OpenAI's.
        takes_slash: The path with a slash at its end is the same route.
        is_resource: Its address is a protected resource of its own (RFC 9728): tokens may be for it alone, and a
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
        """The path up to its second slash, without the first one."""
        return self.path[1:].partition("/")[0]
