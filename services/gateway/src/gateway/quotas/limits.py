"""Loads the limits of usage from a YAML file."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ByteSize, ConfigDict, Field
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, setting_errors

from gateway.identity.caller import Caller
from gateway.quotas.uses import DAY, MINUTE, NO_EXPIRY, Window


class Measure(enum.Enum):
    """A measure that can have a limit. The values are the keys of the file, in the order of the checks."""

    RUNNING = "concurrent_requests"
    REQUESTS = "requests_per_minute"
    TOKENS = "tokens_per_minute"
    INGEST = "ingest_bytes_per_day"

    @property
    def window(self) -> Window:
        """Return the window over which the measure is summed."""
        return _WINDOWS[self]


_WINDOWS = {Measure.RUNNING: NO_EXPIRY, Measure.REQUESTS: MINUTE, Measure.TOKENS: MINUTE, Measure.INGEST: DAY}

Limits = dict[Measure, int]
"""The limits of one holder. A missing measure has no limit."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a quota.

    Attributes:
        kind: ``tenant``, ``key`` or ``user``.
        tenant: The tenant, or the tenant of the key or user.
        name: The name of the key or the user; empty for a tenant.
    """

    kind: str
    tenant: str
    name: str = ""

    def __str__(self) -> str:
        return {"tenant": "The tenant", "key": "The API key", "user": "The user"}[self.kind]


@dataclass(frozen=True, slots=True)
class Quotas:
    """All limits, by holder.

    Attributes:
        defaults: The limits of holders that the file does not name, by kind.
        named: The limits of the holders that the file names, by kind and name.
    """

    defaults: dict[str, Limits] = field(default_factory=dict)
    named: dict[tuple[str, str], Limits] = field(default_factory=dict)

    def of(self, holder: Holder) -> Limits:
        """Return the limits of a holder."""
        named = self.named.get((holder.kind, holder.name or holder.tenant))
        return self.defaults.get(holder.kind, {}) if named is None else named


def holders(caller: Caller) -> tuple[Holder, ...]:
    """Return the holders whose quotas a request uses: the API key, or else the user; and the tenant.

    The name identifies a key, so that a replacement key continues with the same usage.
    """
    tenant = caller.principal.tenant
    own = (
        Holder("key", tenant, caller.key_name) if caller.key_name else Holder("user", tenant, caller.principal.user)
    )
    return own, Holder("tenant", tenant)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Limits(_Model):
    concurrent_requests: Annotated[int, Field(gt=0)] | None = None
    requests_per_minute: Annotated[int, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[int, Field(gt=0)] | None = None
    ingest_bytes_per_day: Annotated[ByteSize, Field(gt=0)] | None = None

    def limits(self, default: Limits) -> Limits:
        """Return the limits. A missing key means the default limit; null means no limit.

        Args:
            default: The default limits.
        """
        given = {Measure(name): getattr(self, name) for name in self.model_fields_set}
        merged = {measure: given.get(measure, default.get(measure)) for measure in Measure}
        return {measure: int(limit) for measure, limit in merged.items() if limit is not None}


class _Defaults(_Model):
    tenant: _Limits = _Limits()
    key: _Limits = _Limits()
    user: _Limits = _Limits()


_Name = Annotated[str, Field(min_length=1)]


class _File(_Model):
    defaults: _Defaults = _Defaults()
    tenants: dict[_Name, _Limits] = {}
    keys: dict[_Name, _Limits] = {}
    users: dict[_Name, _Limits] = {}


def load(path: Path) -> Reloadable[Quotas]:
    """Load the file's limits; reload them when the file changes.

    Raises:
        InvalidRequest: The file cannot be read or is invalid. The message has the position.
    """
    with setting_errors("quotas_file"):
        return Reloadable(path, lambda raw: parse(raw, str(path)))


def parse(raw: bytes, name: str) -> Quotas:
    """Parse the limits of a file.

    Raises:
        BadFile: The file is invalid; the message has the line and the key.
    """
    file = Document(raw, name).validated(_File)
    defaults = {
        "tenant": file.defaults.tenant.limits({}),
        "key": file.defaults.key.limits({}),
        "user": file.defaults.user.limits({}),
    }
    named = {
        (kind, name): entry.limits(defaults[kind])
        for kind, entries in (("tenant", file.tenants), ("key", file.keys), ("user", file.users))
        for name, entry in entries.items()
    }
    return Quotas(defaults, named)
