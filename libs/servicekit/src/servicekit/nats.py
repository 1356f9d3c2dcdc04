"""NATS: connections that reconnect, the streams and buckets of the services, trace contexts in message headers."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from nats.aio.client import Client
from nats.errors import NoServersError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    KeyValueConfig,
    ObjectStoreConfig,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import BadRequestError, BucketNotFoundError, NotFoundError
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from servicekit import keys, telemetry
from servicekit.nats_client import ClosingClient
from servicekit.stream_limits import STREAM_BYTES, ensure_bucket, ensure_stream
from servicekit.tls import Certificates

_log = structlog.get_logger(__name__)

GENERATION = "Causeway-Generation"
"""Header of a job that was sent again, with its original generation."""
ACK_WAIT = 30.0
"""Seconds without a heartbeat after which a job goes to another worker."""
_JOB_SECONDS = 30 * 86400.0
"""Seconds from the last change of a job's state to its deletion."""
_NOT_UNIQUE = 10100  # server error: another consumer of a work queue has overlapping subjects


async def connect(
    url: str,
    name: str,
    *,
    certificates: Certificates | None = None,
    connect_timeout: float = 2.0,
    on_reconnect: Callable[[], None] | None = None,
) -> Client:
    """Return a connection that always reconnects.

    While the server is unavailable, the client buffers up to 1 MiB of messages and sends them after it reconnects.
    It refuses further messages (``OutboundBufferLimitError``). So the server may still execute a request that timed
    out. A caller that must avoid this checks ``is_connected`` first.

    Args:
        url: ``nats://host:port``.
        name: The client's name in the server's lists, and the prefix of its inboxes. The broker lets each client
            read only its own inboxes.
        certificates: For mutual TLS; None: no TLS.
        connect_timeout: Seconds for the first connection, and for each attempt to reconnect.
        on_reconnect: Called after each reconnection.

    Raises:
        NoServersError: The first connection failed.
    """
    client = ClosingClient()
    server = url.rpartition("@")[2]  # without the password
    last = ""

    def renew() -> None:
        if certificates is not None:
            client.options["tls"] = certificates.client_context()

    async def error(failure: Exception) -> None:
        renew()
        # Attempts to reconnect fail four times a second with the same error, which is logged once.
        nonlocal last
        if (text := str(failure) or type(failure).__name__) != last:
            last = text
            _log.warning("nats error", server=server, error=text)

    async def disconnected() -> None:
        if not client.is_closed:  # otherwise this side has closed the connection
            _log.warning("nats disconnected", server=server)
            renew()

    async def reconnected() -> None:
        nonlocal last
        last = ""
        _log.info("nats reconnected", server=server)
        if on_reconnect is not None:
            on_reconnect()

    try:
        # Without this time-out, the client would repeat its first attempt forever.
        async with asyncio.timeout(connect_timeout):
            await client.connect(
                url,
                name=name,
                inbox_prefix=f"_INBOX_{name}".encode(),
                tls=certificates.client_context() if certificates else None,
                connect_timeout=connect_timeout,  # type: ignore[arg-type]  # the client accepts any number
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,  # type: ignore[arg-type]  # the client accepts any number
                # This detects a vanished peer after one minute instead of six.
                ping_interval=20,
                max_outstanding_pings=2,
                pending_size=1024 * 1024,
                error_cb=error,
                disconnected_cb=disconnected,
                reconnected_cb=reconnected,
            )
    except TimeoutError:
        await client.close()
        raise NoServersError from None
    except BaseException:
        await client.close()
        raise
    return client


@dataclass(frozen=True, slots=True)
class IngestTransport:
    """The NATS resources of ingest: the queue, the jobs' states, the originals and the pictures of their pages."""

    client: Client
    jetstream: JetStreamContext
    jobs: KeyValue
    originals: ObjectStore
    pictures: KeyValue
    epoch: int
    """Creation time of the job stream, in seconds since 1970. It orders the generations of a recreated stream."""

    async def remove_pictures(self, pattern: str) -> None:
        """Remove the pictures with matching keys: `keys.document_pictures`, `keys.index_pictures`."""
        bucket = keys.PICTURES_BUCKET
        await self.jetstream.purge_stream(f"KV_{bucket}", subject=f"$KV.{bucket}.{pattern}")

    def generation(self, sequence: int) -> int:
        """Return a generation, which orders the versions of a document by the time of their acceptance.

        The low 32 bits are the job's sequence in the stream. A time would not work, because the clocks of two
        gateways differ, and clocks jump. A new stream counts from 1 again, so the high 32 bits are its creation
        time.
        """
        return (self.epoch << 32) | sequence


async def ingest_transport(
    client: Client, *, replicas: int = 1, stream_bytes: int = STREAM_BYTES
) -> IngestTransport:
    """Return the streams and buckets of ingest; create those that are missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        stream_bytes: Size limit in bytes of the waiting jobs, and also of the states of jobs; dead letters get a
            quarter. The server reserves this space at creation.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=10)
    epoch = await ensure_stream(
        jetstream,
        StreamConfig(
            name=keys.INGEST_STREAM,
            subjects=[keys.INGEST_SUBJECTS],
            retention=RetentionPolicy.WORK_QUEUE,
            # A full stream refuses new jobs and never drops accepted ones.
            discard=DiscardPolicy.NEW,
            max_bytes=stream_bytes,
            storage=StorageType.FILE,
            num_replicas=replicas,
            duplicate_window=120,
        ),
    )
    await ensure_stream(
        jetstream,
        StreamConfig(
            name=keys.INGEST_DEAD_STREAM,
            subjects=[keys.INGEST_DEAD_SUBJECTS],
            storage=StorageType.FILE,
            max_bytes=stream_bytes // 4,
            num_replicas=replicas,
        ),
    )
    try:
        await _consumers(jetstream)
    except BadRequestError as error:
        if error.err_code != _NOT_UNIQUE:
            raise
        with contextlib.suppress(NotFoundError):  # another process has removed it
            await jetstream.delete_consumer(keys.INGEST_STREAM, keys.INGEST_CONSUMER_WITHOUT_LANE)
        await _consumers(jetstream)
    jobs = await ensure_bucket(
        jetstream,
        KeyValueConfig(
            bucket=keys.JOBS_BUCKET,
            history=1,
            ttl=_JOB_SECONDS,
            max_bytes=stream_bytes,
            storage=StorageType.FILE,
            replicas=replicas,
        ),
    )
    try:
        originals = await jetstream.object_store(keys.ORIGINALS_BUCKET)
    except BucketNotFoundError:
        originals = await jetstream.create_object_store(
            keys.ORIGINALS_BUCKET, ObjectStoreConfig(storage=StorageType.FILE, replicas=replicas)
        )
    # A key-value bucket reads a page in one round trip, and one purge removes all pages of a document or an index.
    # An object store can do neither.
    pictures = await ensure_bucket(
        jetstream,
        KeyValueConfig(bucket=keys.PICTURES_BUCKET, history=1, storage=StorageType.FILE, replicas=replicas),
    )
    return IngestTransport(client, jetstream, jobs, originals, pictures, epoch)


async def _consumers(jetstream: JetStreamContext) -> None:
    """Create the consumers of the lanes, or update them to this version.

    The loop updates the first lane last. In earlier versions, the patterns of the other lanes overlapped with the
    additional subjects of the first lane, and the server refuses consumers with overlapping subjects.
    """
    for lane in reversed(range(keys.INGEST_LANES)):
        additional = [] if lane else [keys.INGEST_WITHOUT_LANE]
        await jetstream.add_consumer(
            keys.INGEST_STREAM,
            ConsumerConfig(
                durable_name=keys.ingest_consumer(lane),
                filter_subjects=[keys.ingest_lane(lane), *additional],
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ACK_WAIT,
                # The worker counts the attempts and writes dead letters. With the server's own limit, a job would
                # remain in the queue, and no worker would get it.
                max_deliver=-1,
                max_ack_pending=1024,
            ),
        )


def trace_headers() -> dict[str, str]:
    """Return the current trace context as headers of a message."""
    headers: dict[str, str] = {}
    telemetry.inject(headers)
    return headers
