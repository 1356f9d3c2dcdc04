"""Connect the gateway to NATS in the background, and connect again after each loss."""

import asyncio
from collections.abc import Awaitable
from typing import Self, TypeVar

import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.kv import KeyValue
from servicekit import bounded_buckets, keys, response_streams
from servicekit import nats as transport
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.nats import IngestTransport
from servicekit.record_streams import keep_room, record_streams
from servicekit.stream_levels import STREAMS, StreamLevels
from servicekit.stream_room import RESPONSE_BYTES, RESPONSE_LOG_BYTES, STREAM_BYTES
from servicekit.tasks import ended
from servicekit.tls import Certificates

from gateway.clients.nats_calls import NATS_FAILURES

_log = structlog.get_logger(__name__)
T = TypeVar("T")
_LINK_KEY_HOURS, _CONTENT_KEY_HOURS = 48, 430 * 24
"""Hours after which NATS deletes a key: more than the time for which `LinkKeys` and `ContentKeys` use it."""


class NatsLink:
    """Connects in the background and creates the streams. Without NATS the gateway starts and answers chats.

    Args:
        url: The address of NATS.
        certificates: The certificates for mutual TLS.
        replicas: The number of NATS servers that store each stream and bucket.
        history_days: Days for which a conversation is stored after its last save.
        memory_hours: Hours for which a session is stored after its last turn.
        response_days: Days for which a response is stored.
        response_bytes: The maximum number of bytes of the responses.
        response_log_bytes: The maximum number of bytes of the logs of responses.
        record_days: The maximum number of days for which a record of usage or audit is stored.
        stream_bytes: The maximum number of bytes of each stream.
        usage_bytes: The maximum number of bytes of the usage records. None means ``stream_bytes``.
        audit_bytes: The maximum number of bytes of the audit records. None means ``stream_bytes``.
        retry: Seconds between attempts to connect.
    """

    def __init__(
        self,
        url: str,
        *,
        certificates: Certificates | None = None,
        replicas: int = 1,
        history_days: float = 365,
        memory_hours: float = 24,
        response_days: float = 30,
        response_bytes: int = RESPONSE_BYTES,
        response_log_bytes: int = RESPONSE_LOG_BYTES,
        record_days: float = 365,
        stream_bytes: int = STREAM_BYTES,
        usage_bytes: int | None = None,
        audit_bytes: int | None = None,
        retry: float = 0.5,
    ) -> None:
        self._url = url
        self._certificates = certificates
        self._replicas = replicas
        self._history_days = history_days
        self._memory_hours = memory_hours
        self._response_days, self._response_bytes = response_days, response_bytes
        self._response_log_bytes = response_log_bytes
        self._record_days = record_days
        self._stream_bytes = stream_bytes
        self._usage_bytes, self._audit_bytes = usage_bytes or stream_bytes, audit_bytes or stream_bytes
        self._retry = retry
        self._client: Client | None = None
        self._ingest: IngestTransport | None = None
        self._records: JetStreamContext | None = None
        self._history: KeyValue | None = None
        self._memory: KeyValue | None = None
        self._responses: KeyValue | None = None
        self._response_jobs: JetStreamContext | None = None
        self._response_log: JetStreamContext | None = None
        self._large_responses: JetStreamContext | None = None
        self._api_keys: KeyValue | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._problem = ""

    async def __aenter__(self) -> Self:
        self._connecting = asyncio.create_task(self._connect())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._connecting is not None:
            await ended(self._connecting)
        await ended(*self._watching)
        if self._client is not None:
            await self._client.close()

    async def client(self) -> Client:
        """Return the connection for messages that are not stored.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return self._ready("NATS", self._client)

    async def ingest(self) -> IngestTransport:
        """Return the streams and buckets of ingest.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return self._ready("The ingest queue", self._ingest)

    async def history(self) -> KeyValue:
        """Return the bucket of the chat history.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return self._ready("The chat history", self._history)

    async def api_keys(self) -> KeyValue:
        """Return the bucket of the API keys.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return self._ready("The API keys", self._api_keys)

    async def records(self) -> JetStreamContext:
        """Return the streams of usage and audit.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return self._ready("The usage and audit records", self._records)

    async def quotas(self) -> KeyValue:
        """Return the bucket of the quotas. Create the bucket again if the server has lost it.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        client = self._ready("The bucket of the quotas", self._client)
        return await transport.quotas_bucket(client, replicas=self._replicas)

    async def link_keys(self) -> KeyValue:
        """Return the bucket of the keys that sign links. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return await self._period_keys(keys.LINK_KEYS_BUCKET, _LINK_KEY_HOURS)

    async def content_keys(self) -> KeyValue:
        """Return the bucket of the keys that encrypt contents. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        return await self._period_keys(keys.CONTENT_KEYS_BUCKET, _CONTENT_KEY_HOURS)

    async def _period_keys(self, bucket: str, hours: float) -> KeyValue:
        client = await self.client()
        return await bounded_buckets.period_keys_bucket(client, bucket, replicas=self._replicas, hours=hours)

    async def memory(self) -> KeyValue:
        """Return the bucket of the sessions. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        target = "The memory of conversations"
        client = self._ready(target, self._client)
        if self._memory is None:
            creation = bounded_buckets.memory_bucket(client, replicas=self._replicas, hours=self._memory_hours)
            self._memory = await _created(target, creation)
        return self._memory

    async def responses(self) -> KeyValue:
        """Return the bucket of the responses. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        target = "The store of responses"
        client = self._ready(target, self._client)
        if self._responses is None:
            creation = bounded_buckets.responses_bucket(
                client, replicas=self._replicas, days=self._response_days, size=self._response_bytes
            )
            self._responses = await _created(target, creation)
        return self._responses

    async def large_responses(self) -> JetStreamContext:
        """Return the object store of large responses. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        target = "The store of large responses"
        client = self._ready(target, self._client)
        if self._large_responses is None:
            creation = response_streams.large_responses(
                client, replicas=self._replicas, days=self._response_days, size=self._response_bytes
            )
            self._large_responses = await _created(target, creation)
        return self._large_responses

    async def response_log(self) -> JetStreamContext:
        """Return the stream of the logs of responses. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        target = "The log of responses"
        client = self._ready(target, self._client)
        if self._response_log is None:
            creation = response_streams.response_log(
                client, replicas=self._replicas, days=self._response_days, size=self._response_log_bytes
            )
            self._response_log = await _created(target, creation)
        return self._response_log

    async def response_jobs(self) -> JetStreamContext:
        """Return the queue of the background responses. Create it on first use.

        Raises:
            Unavailable: NATS cannot be reached.
        """
        target = "The queue of responses"
        client = self._ready(target, self._client)
        self._ready(target, self._ingest)
        if self._response_jobs is None:
            creation = response_streams.response_jobs(client, replicas=self._replicas)
            self._response_jobs = await _created(target, creation)
        return self._response_jobs

    def _ready(self, target: str, resource: T | None) -> T:
        """Return a resource that exists while NATS is connected.

        Raises:
            Unavailable: The resource does not exist yet, or NATS is not connected.
        """
        if resource is None or self._client is None or not self._client.is_connected:
            raise _unavailable(target)
        return resource

    async def problem(self, deadline: Deadline) -> str | None:
        """Return None if NATS is available, or a description of the problem."""
        if self._ingest is None or self._client is None or not self._client.is_connected:
            return self._problem or "not connected"
        try:
            # Do not use the client's `flush`: after its time-out, a late reply blocks the client for a minute.
            async with asyncio.timeout(deadline.timeout()):
                await self._ingest.jetstream.account_info()
        except (Unavailable, *NATS_FAILURES) as error:
            return type(error).__name__
        return None

    async def _connect(self) -> None:
        while True:
            try:
                if self._client is None:
                    self._client = await transport.connect(self._url, "gateway", certificates=self._certificates)
                self._api_keys = await transport.api_keys_bucket(self._client, replicas=self._replicas)
                self._history = await transport.history_bucket(
                    self._client,
                    replicas=self._replicas,
                    days=self._history_days,
                    stream_bytes=self._stream_bytes,
                )
                self._records = await record_streams(
                    self._client,
                    replicas=self._replicas,
                    days=self._record_days,
                    usage_bytes=self._usage_bytes,
                    audit_bytes=self._audit_bytes,
                )
                self._ingest = await transport.ingest_transport(
                    self._client, replicas=self._replicas, stream_bytes=self._stream_bytes
                )
            except (Unavailable, *NATS_FAILURES) as error:
                self._problem = str(error) if isinstance(error, Unavailable) else ""
                _log.warning("NATS cannot be reached yet", error=str(error) or type(error).__name__)
                await asyncio.sleep(self._retry)
            else:
                # Do not use a task group: it cancels each task only once, and nats-py may lose the cancellation
                # (`servicekit.tasks.ended`).
                levels = StreamLevels(self._client, STREAMS)
                self._watching = [
                    asyncio.create_task(levels.watch()),
                    asyncio.create_task(keep_room(self._records)),
                ]
                return


async def _created(target: str, creation: Awaitable[T]) -> T:
    """Create a stream or bucket and return it.

    Raises:
        Unavailable: NATS did not create the stream or bucket.
    """
    try:
        return await creation
    except (Unavailable, *NATS_FAILURES) as error:
        _log.warning("a stream or bucket cannot be created", target=target, error=str(error))
        raise _unavailable(target) from error


def _unavailable(target: str) -> Unavailable:
    return Unavailable(f"{target} cannot be reached. Try again shortly.", retry_after=2)
