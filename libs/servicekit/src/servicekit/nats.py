"""NATS: connections that come back, the platform's streams and buckets, the trace in message headers."""

import asyncio
import contextlib
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
from servicekit.stream_room import STREAM_BYTES, ensure_stream, set_aside
from servicekit.tls import Certificates

_log = structlog.get_logger(__name__)

GENERATION = "Causeway-Generation"
"""Header of a job that was sent again: the generation that it had at first."""
ACK_WAIT = 30.0
"""Seconds after which a job whose worker fell silent goes to another one."""
_NOT_UNIQUE = 10100  # of the server: another consumer of a work queue takes some of the same subjects


async def connect(
    url: str, name: str, *, certificates: Certificates | None = None, connect_timeout: float = 2.0
) -> Client:
    """A connection that reconnects for ever, once it was there.

    While the server is away, up to 1 MiB of messages waits for it and is sent when it is back; what goes beyond is
    refused (``OutboundBufferLimitError``). A request whose time runs out meanwhile may therefore still be carried
    out: whoever must not promise what he cannot keep asks ``is_connected`` first.

    Args:
        url: ``nats://host:port``.
        name: The caller's name in the server's lists, and of the subjects that its answers come on: what the
            broker lets it read.
        certificates: For mutual TLS; None: no TLS.
        connect_timeout: Seconds that the server gets to answer at first, and again at each attempt to reconnect.

    Raises:
        NoServersError: Nobody answers at first.
    """
    client = ClosingClient()
    server = url.rpartition("@")[2]  # without the password
    last = ""

    def renew() -> None:
        if certificates is not None:
            client.options["tls"] = certificates.client_context()

    async def error(failure: Exception) -> None:
        renew()
        # Attempts to reconnect fail four times a second, all of them alike.
        nonlocal last
        if (text := str(failure) or type(failure).__name__) != last:
            last = text
            _log.warning("nats", server=server, error=text)

    async def disconnected() -> None:
        if not client.is_closed:  # else it was us
            _log.warning("nats is gone", server=server)
            renew()

    async def reconnected() -> None:
        nonlocal last
        last = ""
        _log.info("nats is back", server=server)

    try:
        # Without an end of our own the client's first attempt, too, would be repeated for ever.
        async with asyncio.timeout(connect_timeout):
            await client.connect(
                url,
                name=name,
                inbox_prefix=f"_INBOX_{name}".encode(),
                tls=certificates.client_context() if certificates else None,
                connect_timeout=connect_timeout,  # type: ignore[arg-type]  # any number will do
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,  # type: ignore[arg-type]  # any number will do
                # A peer that vanished without a word is noticed after a minute, not after six.
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
    """What ingest runs on: the queue, the jobs' states, the originals and the pictures of their pages."""

    client: Client
    jetstream: JetStreamContext
    jobs: KeyValue
    originals: ObjectStore
    pictures: KeyValue
    epoch: int
    """When the job stream was made, in seconds since 1970; orders generations across a stream's loss."""

    async def remove_pictures(self, pattern: str) -> None:
        """Removes the pictures whose keys match: `keys.document_pictures`, `keys.index_pictures`."""
        bucket = keys.PICTURES_BUCKET
        await self.jetstream.purge_stream(f"KV_{bucket}", subject=f"$KV.{bucket}.{pattern}")

    def generation(self, sequence: int) -> int:
        """Orders the versions of a document by when they were accepted.

        The job's place in the stream decides, not a clock: two gateways' clocks differ, and clocks jump. A stream
        that had to be made anew counts from 1 again, so its birth goes into the high 32 bits.
        """
        return (self.epoch << 32) | sequence


async def ingest_transport(
    client: Client, *, replicas: int = 1, history_days: float = 30, stream_bytes: int = STREAM_BYTES
) -> IngestTransport:
    """Makes the ingest streams and buckets where they are missing, and returns handles of them.

    Args:
        client: A connection.
        replicas: Copies of everything stored; 3 in production.
        history_days: How long the state of a finished job can be read.
        stream_bytes: Most bytes of the jobs that wait, and of the states of jobs. The server sets them aside.

    Raises:
        Unavailable: It does not have as many.
    """
    jetstream = client.jetstream(timeout=10)
    stream = await ensure_stream(
        jetstream,
        StreamConfig(
            name=keys.INGEST_STREAM,
            subjects=[keys.INGEST_SUBJECTS],
            retention=RetentionPolicy.WORK_QUEUE,
            # A full stream refuses new jobs; it never forgets accepted ones.
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
    try:
        jobs = await jetstream.key_value(keys.JOBS_BUCKET)
    except BucketNotFoundError:
        with set_aside(keys.JOBS_BUCKET, stream_bytes):
            jobs = await jetstream.create_key_value(
                KeyValueConfig(
                    bucket=keys.JOBS_BUCKET,
                    history=1,
                    ttl=history_days * 86400,
                    max_bytes=stream_bytes,
                    storage=StorageType.FILE,
                    replicas=replicas,
                )
            )
    try:
        originals = await jetstream.object_store(keys.ORIGINALS_BUCKET)
    except BucketNotFoundError:
        originals = await jetstream.create_object_store(
            keys.ORIGINALS_BUCKET, ObjectStoreConfig(storage=StorageType.FILE, replicas=replicas)
        )
    try:
        pictures = await jetstream.key_value(keys.PICTURES_BUCKET)
    except BucketNotFoundError:
        # No object store: a page is one message, read in one round trip, and all pages of a document or an index go
        # with one purge.
        pictures = await jetstream.create_key_value(
            KeyValueConfig(bucket=keys.PICTURES_BUCKET, history=1, storage=StorageType.FILE, replicas=replicas)
        )
    return IngestTransport(client, jetstream, jobs, originals, pictures, stream)


async def _consumers(jetstream: JetStreamContext) -> None:
    """Make the consumers of the lanes, or give them what this version asks for.

    The first lane comes last: what it takes beside its own is refused while another lane's pattern, as an earlier
    version made it, matches that, too.
    """
    for lane in reversed(range(keys.INGEST_LANES)):
        without = [] if lane else [keys.INGEST_WITHOUT_LANE]
        await jetstream.add_consumer(
            keys.INGEST_STREAM,
            ConsumerConfig(
                durable_name=keys.ingest_consumer(lane),
                filter_subjects=[keys.ingest_lane(lane), *without],
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ACK_WAIT,
                # The worker counts the attempts and buries what fails again and again; the server's own limit
                # would leave a job in the queue that nobody is given.
                max_deliver=-1,
                max_ack_pending=1024,
            ),
        )


async def history_bucket(
    client: Client, *, replicas: int = 1, days: float = 365, stream_bytes: int = STREAM_BYTES
) -> KeyValue:
    """Makes the bucket of the chat history where it is missing, and returns a handle of it.

    Args:
        client: A connection.
        replicas: Copies of everything stored; 3 in production.
        days: How long a conversation is kept after it was last saved.
        stream_bytes: Most bytes of it. The server sets them aside at once.

    Raises:
        Unavailable: It does not have as many.
    """
    jetstream = client.jetstream(timeout=10)
    try:
        return await jetstream.key_value(keys.HISTORY_BUCKET)
    except BucketNotFoundError:
        with set_aside(keys.HISTORY_BUCKET, stream_bytes):
            return await jetstream.create_key_value(
                KeyValueConfig(
                    bucket=keys.HISTORY_BUCKET,
                    history=1,
                    ttl=days * 86400,
                    max_bytes=stream_bytes,
                    storage=StorageType.FILE,
                    replicas=replicas,
                )
            )


async def api_keys_bucket(client: Client, *, replicas: int = 1) -> KeyValue:
    """Makes the bucket of the API keys where it is missing, and returns a handle of it.

    Its keys are the ids of `api_keys.ApiKey`, its values their records. Nothing in it goes by itself: a key that
    has expired stays in the lists until it is revoked.
    """
    jetstream = client.jetstream(timeout=10)
    try:
        return await jetstream.key_value(keys.API_KEYS_BUCKET)
    except BucketNotFoundError:
        return await jetstream.create_key_value(
            KeyValueConfig(bucket=keys.API_KEYS_BUCKET, history=1, storage=StorageType.FILE, replicas=replicas)
        )


async def quotas_bucket(client: Client, *, replicas: int = 1) -> KeyValue:
    """Makes the bucket of the quotas where it is missing, and returns a handle of it.

    In memory, because it is written to many times a second; what a server forgets when it starts again, the
    gateways that run tell it anew. Nothing in it is of use after a day.
    """
    jetstream = client.jetstream(timeout=2)
    try:
        return await jetstream.key_value(keys.QUOTAS_BUCKET)
    except BucketNotFoundError:
        return await jetstream.create_key_value(
            KeyValueConfig(
                bucket=keys.QUOTAS_BUCKET,
                history=1,
                ttl=26 * 3600,
                max_bytes=64 * 1024 * 1024,
                storage=StorageType.MEMORY,
                replicas=replicas,
            )
        )


def trace_headers() -> dict[str, str]:
    """The current trace, as headers of a message."""
    headers: dict[str, str] = {}
    telemetry.inject(headers)
    return headers
