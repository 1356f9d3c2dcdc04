"""Connect the gateway to NATS in the background, connect again after each loss, and create streams and buckets."""

import asyncio
from functools import partial
from typing import Self, TypeVar

import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.kv import KeyValue
from servicekit import buckets, keys, response_streams
from servicekit import nats as transport
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.nats import IngestTransport
from servicekit.record_streams import record_streams, trim_full_streams
from servicekit.stream_levels import STREAMS, StreamLevels
from servicekit.stream_limits import RESPONSE_BYTES, RESPONSE_LOG_BYTES, STREAM_BYTES
from servicekit.tasks import cancel_and_wait
from servicekit.tls import Certificates

from gateway.clients.nats_calls import NATS_FAILURES
from gateway.clients.nats_resource import NatsResource, space_problem, unreachable

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
        response_bytes: The maximum number of bytes of the small responses. The large responses have a separate
            limit of the same size.
        response_log_bytes: The maximum number of bytes of the logs of responses.
        record_days: The maximum number of days for which a record of usage or audit is stored.
        stream_bytes: The maximum number of bytes of the chat history, of the waiting jobs, and of the states of
            jobs, each.
        usage_bytes: The maximum number of bytes of the usage records. None means ``stream_bytes``.
        audit_bytes: The maximum number of bytes of the audit records. None means ``stream_bytes``.
        retry: Seconds between attempts to connect, and between attempts to create the streams and buckets.
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
        self._record_days = record_days
        self._stream_bytes = stream_bytes
        self._usage_bytes, self._audit_bytes = usage_bytes or stream_bytes, audit_bytes or stream_bytes
        self._retry = retry
        self._client: Client | None = None
        self._ingest: IngestTransport | None = None
        self._records: JetStreamContext | None = None
        self._history: KeyValue | None = None
        self._api_keys: KeyValue | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._problem = ""
        self._reconnected = asyncio.Event()
        self._memory = NatsResource(
            "The memory of conversations",
            partial(buckets.memory_bucket, replicas=replicas, hours=memory_hours),
        )
        self._responses = NatsResource(
            "The store of responses",
            partial(buckets.responses_bucket, replicas=replicas, days=response_days, size=response_bytes),
        )
        self._large_responses = NatsResource(
            "The store of large responses",
            partial(response_streams.large_responses, replicas=replicas, days=response_days, size=response_bytes),
        )
        self._response_log = NatsResource(
            "The log of responses",
            partial(response_streams.response_log, replicas=replicas, days=response_days, size=response_log_bytes),
        )
        self._response_jobs = NatsResource(
            "The queue of responses", partial(response_streams.response_jobs, replicas=replicas)
        )

    async def __aenter__(self) -> Self:
        self._connecting = asyncio.create_task(self._connect())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._connecting is not None:
            await cancel_and_wait(self._connecting)
        await cancel_and_wait(*self._watching)
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
            Unavailable: NATS cannot be reached, or has no space.
        """
        return self._ready("The ingest queue", self._ingest)

    async def history(self) -> KeyValue:
        """Return the bucket of the chat history.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return self._ready("The chat history", self._history)

    async def api_keys(self) -> KeyValue:
        """Return the bucket of the API keys.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return self._ready("The API keys", self._api_keys)

    async def records(self) -> JetStreamContext:
        """Return the JetStream context for the streams of usage and audit.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return self._ready("The usage and audit records", self._records)

    async def quotas(self) -> KeyValue:
        """Return the bucket of the quotas. Create it if it is missing.

        Raises:
            Unavailable: NATS is not connected, or has no space.
            Exception: One of `NATS_FAILURES`: the call failed.
        """
        client = self._ready("The bucket of the quotas", self._client)
        return await buckets.quotas_bucket(client, replicas=self._replicas)

    async def link_keys(self) -> KeyValue:
        """Return the bucket of the keys that sign links. Create it if it is missing.

        Raises:
            Unavailable: NATS is not connected, or has no space.
            Exception: One of `NATS_FAILURES`: the call failed.
        """
        return await self._period_keys(keys.LINK_KEYS_BUCKET, _LINK_KEY_HOURS)

    async def content_keys(self) -> KeyValue:
        """Return the bucket of the keys that encrypt contents. Create it if it is missing.

        Raises:
            Unavailable: NATS is not connected, or has no space.
            Exception: One of `NATS_FAILURES`: the call failed.
        """
        return await self._period_keys(keys.CONTENT_KEYS_BUCKET, _CONTENT_KEY_HOURS)

    async def _period_keys(self, bucket: str, hours: float) -> KeyValue:
        client = await self.client()
        return await buckets.period_keys_bucket(client, bucket, replicas=self._replicas, hours=hours)

    async def memory(self) -> KeyValue:
        """Return the bucket of the sessions. Create it on first use, or if NATS has lost it.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return await self._get(self._memory)

    async def responses(self) -> KeyValue:
        """Return the bucket of the responses. Create it on first use, or if NATS has lost it.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return await self._get(self._responses)

    async def large_responses(self) -> JetStreamContext:
        """Return the JetStream context for large responses.

        Create the object store on first use, or if NATS has lost it.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return await self._get(self._large_responses)

    async def response_log(self) -> JetStreamContext:
        """Return the JetStream context for the logs of responses.

        Create the stream on first use, or if NATS has lost it.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return await self._get(self._response_log)

    async def response_jobs(self) -> JetStreamContext:
        """Return the JetStream context for the background responses.

        Create their queue on first use, or if NATS has lost it.

        Raises:
            Unavailable: NATS cannot be reached, or has no space.
        """
        return await self._get(self._response_jobs)

    async def _get(self, resource: NatsResource[T]) -> T:
        return await resource.get(self._ready(resource.target, self._client))

    def _ready(self, target: str, resource: T | None) -> T:
        """Return the resource, if it exists and NATS is connected.

        Raises:
            Unavailable: The resource does not exist yet, or NATS is not connected.
        """
        if self._client is None or not self._client.is_connected:
            raise unreachable(target)
        if resource is None:
            if self._problem:
                raise Unavailable(f"{target} cannot be used. {self._problem}", retry_after=30)
            raise unreachable(target)
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
        """Connect, create the streams and buckets, and create lost ones again after each reconnection."""
        while self._client is None:
            try:
                self._client = await transport.connect(
                    self._url, "gateway", certificates=self._certificates, on_reconnect=self._reconnected.set
                )
            except NATS_FAILURES as error:
                _log.warning("NATS cannot be reached yet", error=str(error) or type(error).__name__)
                await asyncio.sleep(self._retry)
        while True:
            self._reconnected.clear()
            await self._create(self._client)
            await self._reconnected.wait()

    async def _create(self, client: Client) -> None:
        """Create the streams and buckets that are missing. Retry until NATS has created all of them.

        This function does not create the streams and buckets that other methods create on first use.
        """
        while True:
            try:
                self._api_keys = await buckets.api_keys_bucket(client, replicas=self._replicas)
                self._history = await buckets.history_bucket(
                    client, replicas=self._replicas, days=self._history_days, stream_bytes=self._stream_bytes
                )
                self._records = await record_streams(
                    client,
                    replicas=self._replicas,
                    days=self._record_days,
                    usage_bytes=self._usage_bytes,
                    audit_bytes=self._audit_bytes,
                )
                self._ingest = await transport.ingest_transport(
                    client, replicas=self._replicas, stream_bytes=self._stream_bytes
                )
            except (Unavailable, *NATS_FAILURES) as error:
                self._problem = space_problem(error)
                reason = "has no space for a stream or bucket" if self._problem else "cannot be reached yet"
                _log.warning(f"NATS {reason}", error=str(error) or type(error).__name__)
                await asyncio.sleep(self._retry)
            else:
                self._problem = ""
                if not self._watching:
                    # Do not use a task group: it cancels each task only once, and nats-py may lose the cancellation
                    # (`servicekit.tasks.cancel_and_wait`).
                    self._watching = [
                        asyncio.create_task(StreamLevels(client, STREAMS).watch()),
                        asyncio.create_task(trim_full_streams(self._records)),
                    ]
                return
