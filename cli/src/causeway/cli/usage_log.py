"""Computes sums of the gateways' usage records."""

import json
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from causeway.cli.operator_connection import operator_connection
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from servicekit import keys

_BATCH = 500
_TIMEOUT_SECONDS = 10.0
_FIRST_ERROR_STATUS = 400


@dataclass(slots=True)
class Sum:
    """The sum of a group of records.

    Attributes:
        requests: The number of requests.
        failed: The number of requests with a status of 400 or more.
        input_tokens: The tokens of prompts.
        output_tokens: The tokens of answers.
        ingested_bytes: The bytes of documents.
        cost: The cost by currency, without the records that have no cost; None if no record has a cost.
    """

    requests: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    ingested_bytes: int = 0
    cost: dict[str, float] | None = None

    def add(self, record: dict[str, Any]) -> None:
        """Add one record."""
        self.requests += 1
        self.failed += int(record.get("status") or 0) >= _FIRST_ERROR_STATUS
        self.input_tokens += int(record.get("input_tokens") or 0)
        self.output_tokens += int(record.get("output_tokens") or 0)
        self.ingested_bytes += int(record.get("ingested_bytes") or 0)
        if (cost := record.get("cost")) is not None:
            self.cost = self.cost or {}
            currency = str(record.get("currency") or "")
            self.cost[currency] = self.cost.get(currency, 0.0) + float(cost)


async def sums(
    url: str, group_by: Sequence[str], *, tenant: str = "", since: float = 0.0, until: float = math.inf
) -> dict[tuple[str, ...], Sum]:
    """Return the sum of each group, ordered by group.

    Args:
        url: The platform's NATS.
        group_by: Members of a record (docs/usage.md), or ``day``, the day of its time in UTC.
        tenant: Only this tenant; empty: all tenants.
        since: Only requests that ended at this time or later, in seconds since 1970.
        until: Only requests that ended before this time, in seconds since 1970.

    Raises:
        Unreachable, UsageError, CommandError: See `operator_connection`.
    """
    groups: dict[tuple[str, ...], Sum] = {}
    async for record in _records(url, tenant, since):
        at = datetime.fromisoformat(str(record["time"]))
        if not since <= at.timestamp() < until:
            continue
        record["day"] = at.astimezone(UTC).date().isoformat()
        group = tuple(str(record.get(name) or "") for name in group_by)
        groups.setdefault(group, Sum()).add(record)
    return dict(sorted(groups.items()))


async def _records(url: str, tenant: str, since: float) -> AsyncIterator[dict[str, Any]]:
    """Yield the records that NATS stored at ``since`` or later.

    The gateways send a record after its request has ended. So these records include those of all requests that
    ended at ``since`` or later.
    """
    async with operator_connection(url) as client:
        jetstream = client.jetstream(timeout=_TIMEOUT_SECONDS)
        subject = keys.usage_subject(tenant) if tenant else keys.USAGE_SUBJECTS
        begin = datetime.fromtimestamp(since, UTC)
        try:
            subscription = await jetstream.pull_subscribe(
                subject,
                stream=keys.USAGE_STREAM,
                config=ConsumerConfig(
                    ack_policy=AckPolicy.NONE,
                    deliver_policy=DeliverPolicy.BY_START_TIME,
                    opt_start_time=begin.isoformat(),  # type: ignore[arg-type]  # the server's format
                ),
            )
        except NotFoundError:
            return  # there are no records
        pending = (await subscription.consumer_info()).num_pending or 0
        while pending > 0:
            messages = await subscription.fetch(min(_BATCH, pending), timeout=_TIMEOUT_SECONDS)
            pending -= len(messages)
            for message in messages:
                yield json.loads(message.data)
