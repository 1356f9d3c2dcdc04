"""Publish records to JetStream in batches, and return the failures of the records that were not stored."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import NO_RESPONDERS_STATUS, Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import Header

from gateway.clients.nats_calls import NATS_FAILURES
from gateway.ports.records import Record

_ACKNOWLEDGEMENT_SECONDS = 5.0
"""The maximum number of seconds until the records of one batch are acknowledged."""


class RecordPublisher:
    """Publishes batches of records, one batch after the other.

    All acknowledgements arrive in one inbox. The library's own `publish` would need a task, a timer and a future
    for each record, which would be most of a record's cost.
    """

    def __init__(self) -> None:
        self._client: Client | None = None
        self._inbox = ""
        self._batch_number = 0
        self._failures: dict[int, Exception] = {}
        self._unacknowledged: set[int] = set()
        self._complete = asyncio.Event()

    async def publish(self, jetstream: JetStreamContext, records: Sequence[Record]) -> dict[int, Exception]:
        """Publish records, wait for the acknowledgements, and return the failures by position in the batch."""
        client = jetstream._nc  # the library has no call for several messages
        await self._listen(client)
        self._batch_number += 1
        self._failures = {at: TimeoutError() for at in range(len(records))}
        self._unacknowledged = set(self._failures)
        self._complete.clear()
        for at, record in enumerate(records):
            reply, headers = f"{self._inbox}.{self._batch_number}.{at}", {Header.MSG_ID.value: record.id}
            try:
                await client.publish(record.subject, record.payload, reply=reply, headers=headers)
            except NATS_FAILURES as error:
                self._failures[at] = error
                self._unacknowledged.discard(at)
        if self._unacknowledged:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ACKNOWLEDGEMENT_SECONDS):
                    await self._complete.wait()
        return self._failures

    async def _listen(self, client: Client) -> None:
        if self._client is client:
            return  # after a reconnection, the client subscribes again
        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*.*", cb=self._acknowledged)
        self._client, self._inbox = client, inbox

    async def _acknowledged(self, message: Msg) -> None:
        _, number, at = message.subject.rsplit(".", 2)
        if int(number) != self._batch_number:
            return  # too late: the outbox sends the record again in a later batch
        failure = _failure(message)
        if failure is None:
            self._failures.pop(int(at), None)
        else:
            self._failures[int(at)] = failure
        self._unacknowledged.discard(int(at))
        if not self._unacknowledged:
            self._complete.set()


class _Acknowledgement(msgspec.Struct):
    """The acknowledgement of a stream. Source: JetStream's API, ``PubAck``."""

    error: dict[str, Any] | None = None


_acknowledgement = msgspec.json.Decoder(_Acknowledgement)


def _failure(message: Msg) -> Exception | None:
    """Return the error in a stream's acknowledgement, or None if the stream has stored the record."""
    if (message.headers or {}).get(Header.STATUS.value) == NO_RESPONDERS_STATUS:
        return nats.js.errors.NoStreamResponseError()
    try:
        error = _acknowledgement.decode(message.data).error
        if error is not None:
            nats.js.errors.APIError.from_error(error)  # raises the error
    except nats.js.errors.APIError as failure:
        return failure
    except (ValueError, KeyError, TypeError) as failure:
        return nats.errors.Error(f"The stream sent an invalid acknowledgement: {failure}")
    return None
