"""The streams of usage and audit: their creation, their retention, and the removal of records from full streams."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import nats.errors
import nats.js.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from servicekit import keys
from servicekit.stream_limits import STREAM_BYTES, space_reserved

_log = structlog.get_logger(__name__)

_SUBJECTS = {keys.USAGE_STREAM: keys.USAGE_SUBJECTS, keys.AUDIT_STREAM: keys.AUDIT_SUBJECTS}
RECORD_STREAMS = tuple(_SUBJECTS)
_FULL, _TRIMMED = 0.9, 0.8
"""The share of its limit at which a stream is trimmed, and the share that remains."""
_CHECK_SECONDS = 15.0
_MIN_SHARE = 0.1
"""The minimum share of its limit that a stream must contain for an estimate of its retention."""


async def record_streams(
    client: Client,
    *,
    replicas: int = 1,
    days: float = 365,
    usage_bytes: int = STREAM_BYTES,
    audit_bytes: int = STREAM_BYTES,
) -> JetStreamContext:
    """Create the streams of usage and audit, or update their limits.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        days: Maximum retention of a record in days.
        usage_bytes: Size limit of the usage stream. The server reserves this space at creation.
        audit_bytes: Size limit of the audit stream. The server reserves this space at creation.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=10)
    for name, size, setting in (
        (keys.USAGE_STREAM, usage_bytes, "CAUSEWAY_USAGE_BYTES"),
        (keys.AUDIT_STREAM, audit_bytes, "CAUSEWAY_AUDIT_BYTES"),
    ):
        with space_reserved(name, size, setting):
            info = await _ensure(jetstream, name, days * 86400, size, replicas)
        seconds = await horizon(jetstream, info)
        if seconds < days * 86400 and info.state.bytes >= _MIN_SHARE * size:
            _log.warning(
                "records are dropped before their maximum age",
                stream=name,
                days=round(seconds / 86400, 1),
                record_days=days,
                needed_bytes=int(size * days * 86400 / seconds),
                setting=setting,
            )
    return jetstream


async def _ensure(jetstream: JetStreamContext, name: str, seconds: float, size: int, replicas: int) -> StreamInfo:
    try:
        info = await jetstream.stream_info(name)
    except NotFoundError:
        return await jetstream.add_stream(
            StreamConfig(
                name=name,
                subjects=[_SUBJECTS[name]],
                storage=StorageType.FILE,
                max_age=seconds,
                max_bytes=size,
                num_replicas=replicas,
                duplicate_window=120,
            )
        )
    if (info.config.max_bytes, info.config.max_age) == (size, seconds):
        return info
    _log.info("the limits of a stream change", stream=name, bytes=size, seconds=seconds)
    return await jetstream.update_stream(info.config, max_bytes=size, max_age=seconds)


async def horizon(jetstream: JetStreamContext, info: StreamInfo) -> float:
    """Return the seconds for which a stream can store records at the current rate."""
    max_age = info.config.max_age or float("inf")
    if not info.state.messages:
        return max_age
    assert info.config.name is not None
    age = await age_of(jetstream, info.config.name, info.state.first_seq)
    return min(max_age, age * (info.config.max_bytes or 0) / info.state.bytes) if age else max_age


async def age_of(jetstream: JetStreamContext, stream: str, sequence: int, subject: str | None = None) -> float:
    """Return the age of a message in seconds; 0 if there is no message.

    With a subject, the message is the first one of the subject at or after the sequence.
    """
    try:
        first = await jetstream.get_msg(stream, sequence, subject, next=True if subject else None)
    except NotFoundError:
        return 0.0
    now = datetime.now(UTC)
    return max(0.0, (now - (first.time or now)).total_seconds())


async def trim_full_streams(jetstream: JetStreamContext) -> None:
    """Trim streams that become full, until cancelled.

    A full stream drops its oldest records, so one tenant could displace the records of all others. To prevent this,
    `trim` first drops the oldest records of the tenants with the most records.
    """
    while True:
        for name in RECORD_STREAMS:
            try:
                await trim(jetstream, name)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                _log.debug("a stream of records cannot be trimmed", stream=name, error=str(error))
        await asyncio.sleep(_CHECK_SECONDS)


async def trim(jetstream: JetStreamContext, name: str) -> None:
    """Trim a stream of records to four fifths of its limit if it contains more than nine tenths."""
    info = await jetstream.stream_info(name, subjects_filter=">")
    limit = info.config.max_bytes or -1
    if limit <= 0 or info.state.bytes <= _FULL * limit:
        return
    counts: Counter[str] = Counter()
    for subject, count in (info.state.subjects or {}).items():
        counts[_tenant_pattern(subject)] += count
    level = _max_records_per_tenant(counts, int(sum(counts.values()) * _TRIMMED * limit / info.state.bytes))
    for subjects, count in counts.items():
        if count > level:
            _log.warning("a stream of records is full", stream=name, subjects=subjects, dropped=count - level)
            await jetstream.purge_stream(name, subject=subjects, keep=level)


def _tenant_pattern(subject: str) -> str:
    """Return the pattern of all subjects of a record's tenant."""
    parts = subject.split(".")
    return ".".join([*parts[:3], *(["*"] * (len(parts) - 3))])


def _max_records_per_tenant(counts: Mapping[str, int], total: int) -> int:
    """Return the maximum number of records per tenant, so that all tenants together keep at most ``total``."""
    left, tenants = total, len(counts)
    for count in sorted(counts.values()):
        if count * tenants > left:
            break
        left, tenants = left - count, tenants - 1
    return max(1, left // max(1, tenants))
