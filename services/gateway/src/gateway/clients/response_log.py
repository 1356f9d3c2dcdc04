"""Store the logs of responses in a JetStream stream. Each log has its own subject.

Each append names the expected position of the last entry. If another gateway has written to the log meanwhile, the
append fails.
"""

import asyncio
import contextlib
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import APIError, NotFoundError
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, PayloadTooLarge, Unavailable
from servicekit.principal import Principal

from gateway.clients.nats_calls import call_nats
from gateway.domain.response_log import Entry

_TARGET = "The log of responses"
_STREAM = response_keys.RESPONSE_LOG_STREAM
_SEQUENCE, _LAST, _ROLLUP = "Nats-Sequence", "Nats-Last-Sequence", "Nats-Rollup"
_WRONG_LAST_SEQUENCE = 10071
# NATS limits the payload and the headers of a message together to 1 MiB (``max_payload``).
_MAX_BYTES = 1_000_000
_MIN_COMPRESSED_BYTES = 16 * 1024
_MAX_READ, _MAX_READ_BYTES = 512, 1024 * 1024
_TRY_SECONDS, _PAUSE_SECONDS = 2.0, 0.1
# The lifetime of a tombstone. A writer that was suspended for longer can begin the deleted log again.
_TOMBSTONE_SECONDS = 7 * 86400.0
_MAX_TENANTS = 1000
_END_OF_BATCH = ("204", "404")
"""The statuses for the end of a batch and for no message. Other statuses, such as 408 (bad request), are errors."""


class _Written(msgspec.Struct, array_like=True):
    writer: str
    first: int
    last: int
    ended: bool
    deleted: bool
    packed: bool
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Written).decode


class NatsResponseLog:
    """`ports.response_log.ResponseLog` over a stream.

    Args:
        stream: Returns the JetStream context, or raises `Unavailable` while NATS is unavailable.
        limit: The maximum number of logs of a tenant. The store may exceed it by a tenth, and then removes the
            oldest logs. Each gateway counts only its own new logs between two counts of all logs, so several
            gateways may together exceed the limit by more.
    """

    def __init__(self, stream: Callable[[], Awaitable[JetStreamContext]], *, limit: int = 50_000) -> None:
        self._stream = stream
        self._limit = limit
        # The number of logs that a tenant may begin before the next count of its logs.
        self._left: OrderedDict[str, int] = OrderedDict()

    async def append(self, principal: Principal, name: str, entry: Entry, after: int, deadline: Deadline) -> int:
        """See `ports.response_log.ResponseLog`."""
        subject, message = _subject(principal, name), _message(entry)
        if after == 0:
            await self._remove_oldest(principal.tenant, deadline)
        while True:
            jetstream = await self._stream()
            try:
                ack = await call_nats(
                    _append_fenced(jetstream, subject, message, after), deadline, _TARGET, max_seconds=_TRY_SECONDS
                )
            except (Unavailable, Conflict) as error:
                # The stream may have stored the message even though the acknowledgement was lost.
                last = await self._last_with_retries(principal, name, deadline)
                if last is not None and last.position > after and last.equals_except_position(entry):
                    return last.position
                if isinstance(error, Conflict) or (last.position if last is not None else 0) != after:
                    raise Conflict(f"Another gateway now writes the log of {name}.", resource=name) from error
                if error.retry_after is not None and error.retry_after > _TRY_SECONDS:
                    raise  # the stream is full
                deadline.timeout(_TRY_SECONDS)  # raises after the deadline
            else:
                return ack

    async def _last_with_retries(self, principal: Principal, name: str, deadline: Deadline) -> Entry | None:
        """Return the last entry. Retry until the deadline while NATS is unavailable."""
        while True:
            try:
                return await self.last(principal, name, deadline)
            except Unavailable:
                deadline.timeout()  # raises after the deadline
                await asyncio.sleep(_PAUSE_SECONDS)

    async def read(self, principal: Principal, name: str, after: int, deadline: Deadline) -> Sequence[Entry]:
        """See `ports.response_log.ResponseLog`."""
        jetstream = await self._stream()
        return await call_nats(_batch(jetstream, _subject(principal, name), after), deadline, _TARGET)

    async def last(self, principal: Principal, name: str, deadline: Deadline) -> Entry | None:
        """See `ports.response_log.ResponseLog`."""
        jetstream = await self._stream()
        return await call_nats(
            _last(jetstream, _subject(principal, name)), deadline, _TARGET, max_seconds=_TRY_SECONDS
        )

    @contextlib.asynccontextmanager
    async def watch(
        self, principal: Principal, name: str, on_entry: Callable[[Entry], None], deadline: Deadline
    ) -> AsyncIterator[None]:
        """See `ports.response_log.ResponseLog`."""

        async def take(message: Msg) -> None:
            headers = message.headers or {}
            position, before = int(headers[_SEQUENCE]), int(headers.get(_LAST) or 0)
            on_entry(replace(_entry(message.data), position=position, before=before))

        jetstream = await self._stream()
        client = jetstream._nc  # the library has no public access to the client
        live = response_keys.response_live(principal.tenant, principal.owner, name)
        subscription = await call_nats(client.subscribe(live, cb=take), deadline, _TARGET)
        try:
            yield
        finally:
            with contextlib.suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """See `ports.response_log.ResponseLog`."""
        await self._write_tombstone(_subject(principal, name), deadline)

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.response_log.ResponseLog`."""
        found = await self._logs(response_keys.response_logs_of(tenant, owner), deadline)
        for subject in found:
            await self._write_tombstone(subject, deadline)
        return len(found)

    async def _write_tombstone(self, subject: str, deadline: Deadline) -> None:
        """Replace a log with a tombstone. After a purge without a tombstone, a writer could begin the log again."""
        jetstream = await self._stream()
        message = _message(Entry("", ended=True, deleted=True))
        publication = jetstream.publish(
            subject, message, stream=_STREAM, headers={_ROLLUP: "sub"}, msg_ttl=_TOMBSTONE_SECONDS
        )
        await call_nats(publication, deadline, _TARGET)

    async def _logs(self, pattern: str, deadline: Deadline) -> list[str]:
        jetstream = await self._stream()
        info = await call_nats(jetstream.stream_info(_STREAM, pattern), deadline, _TARGET)
        return list(info.state.subjects or ())

    async def _remove_oldest(self, tenant: str, deadline: Deadline) -> None:
        """Remove the oldest logs of a tenant with too many logs.

        The gateway does not count the logs for each new log, because the cost of a count grows with their number.
        """
        left = self._left.pop(tenant, 0)
        if left <= 0:
            found = sorted(await self._logs(response_keys.response_logs_of(tenant), deadline), key=_age)
            jetstream = await self._stream()
            for subject in found[: max(0, len(found) - self._limit + 1)]:
                await call_nats(jetstream.purge_stream(_STREAM, subject=subject), deadline, _TARGET)
            left = max(1, self._limit // 10, self._limit - len(found))
        self._left[tenant] = left - 1
        while len(self._left) > _MAX_TENANTS:
            self._left.popitem(last=False)


def _subject(principal: Principal, name: str) -> str:
    return response_keys.response_log(principal.tenant, principal.owner, name)


def _age(subject: str) -> str:
    """Return the part of a subject that sorts logs by age. A response's id begins with the time of its creation."""
    return subject.rpartition("_")[2]


async def _append_fenced(jetstream: JetStreamContext, subject: str, message: bytes, after: int) -> int:
    """Append a message to a log whose last entry has the position ``after``, and return the new position.

    Raises:
        Conflict: The last entry has another position.
    """
    headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(after)}
    try:
        ack = await jetstream.publish(subject, message, timeout=_TRY_SECONDS, stream=_STREAM, headers=headers)
    except APIError as error:
        if error.err_code == _WRONG_LAST_SEQUENCE:
            raise Conflict("Another gateway writes to this log.") from error
        raise
    return ack.seq


async def _last(jetstream: JetStreamContext, subject: str) -> Entry | None:
    try:
        # Read from the stream's leader, because another server may not have the last entry yet.
        message = await jetstream.get_last_msg(_STREAM, subject)
    except NotFoundError:
        return None
    assert message.data is not None
    assert message.seq is not None
    return replace(_entry(message.data), position=message.seq)


async def _batch(jetstream: JetStreamContext, subject: str, after: int) -> list[Entry]:
    """Return the next entries with one request.

    Source: https://github.com/nats-io/nats-architecture-and-design, ADR-31.
    """
    client = jetstream._nc  # the library has no call for this
    request = {"seq": after + 1, "next_by_subj": subject, "batch": _MAX_READ, "max_bytes": _MAX_READ_BYTES}
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    entries: list[Entry] = []
    try:
        await client.publish(f"$JS.API.DIRECT.GET.{_STREAM}", msgspec.json.encode(request), reply=inbox)
        while True:
            message = await subscription.next_msg(timeout=_TRY_SECONDS)
            headers = message.headers or {}
            status = headers.get(Header.STATUS.value)
            if status in _END_OF_BATCH:
                return entries
            if status is not None:
                raise nats.errors.Error(f"{status} {headers.get(Header.DESCRIPTION.value, '')}")
            before = entries[-1].position if entries else after
            position = int(headers[_SEQUENCE])
            entries.append(replace(_entry(message.data), position=position, before=before))
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()


def _message(entry: Entry) -> bytes:
    packed = len(entry.data) > _MIN_COMPRESSED_BYTES
    data = zlib.compress(entry.data, 1) if packed else entry.data
    written = _Written(entry.writer, entry.first, entry.last, entry.ended, entry.deleted, packed, data)
    message = _encode(written)
    if len(message) > _MAX_BYTES:
        raise PayloadTooLarge("The response is too large to be stored. Set store to false.", field="store")
    return message


def _entry(message: bytes) -> Entry:
    written = _decode(message)
    data = zlib.decompress(written.data) if written.packed else written.data
    return Entry(written.writer, written.first, written.last, data, written.ended, written.deleted)
