"""The streams of stored responses: their events, and the queue of background responses."""

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

from servicekit import response_keys
from servicekit.stream_limits import RESPONSE_BYTES, RESPONSE_JOB_BYTES, RESPONSE_LOG_BYTES, ensure_stream

ACK_WAIT = 6.0
"""Seconds without a heartbeat after which NATS delivers a gateway's job to another gateway."""
_SLACK_SECONDS = 3600.0


async def response_log(
    client: Client, *, replicas: int = 1, days: float = 30, size: int = RESPONSE_LOG_BYTES
) -> JetStreamContext:
    """Return the JetStream context for the logs of responses; create their stream if it is missing.

    A log is a subject. Readers subscribe to the republished messages, so they get only events that NATS has stored.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        days: Days until an event is deleted.
        size: Size limit in bytes. The server reserves this space at creation.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=2)
    await ensure_stream(
        jetstream,
        StreamConfig(
            name=response_keys.RESPONSE_LOG_STREAM,
            subjects=[response_keys.RESPONSE_LOG_SUBJECTS],
            max_bytes=size,
            max_age=days * 86400,
            discard=DiscardPolicy.OLD,
            storage=StorageType.FILE,
            num_replicas=replicas,
            # One message, the tombstone of a deleted response, replaces all events of a log.
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            allow_direct=True,
            deny_delete=True,
            republish=RePublish(src=response_keys.RESPONSE_LOG_SUBJECTS, dest=response_keys.RESPONSE_LIVE_SUBJECTS),
        ),
        "CAUSEWAY_RESPONSE_LOG_BYTES",
    )
    return jetstream


async def large_responses(
    client: Client, *, replicas: int = 1, days: float = 30, size: int = RESPONSE_BYTES
) -> JetStreamContext:
    """Return the JetStream context of the object store of large responses; create the store if it is missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        days: Days from a response's last change to its deletion.
        size: Size limit in bytes. The server reserves this space at creation.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=2)
    bucket = response_keys.LARGE_RESPONSES_BUCKET
    await ensure_stream(
        jetstream,
        StreamConfig(
            name=f"OBJ_{bucket}",
            subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
            max_bytes=size,
            # A key-value entry refers to the pieces, and is written after them. With the additional time, the
            # pieces still outlive the entry.
            max_age=days * 86400 + _SLACK_SECONDS,
            discard=DiscardPolicy.OLD,
            storage=StorageType.FILE,
            num_replicas=replicas,
            allow_rollup_hdrs=True,
            allow_direct=True,
        ),
        "CAUSEWAY_RESPONSE_BYTES",
    )
    return jetstream


async def response_jobs(client: Client, *, replicas: int = 1) -> JetStreamContext:
    """Return the JetStream context for background responses; create their queue if it is missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=2)
    await ensure_stream(
        jetstream,
        StreamConfig(
            name=response_keys.RESPONSE_JOB_STREAM,
            subjects=[response_keys.RESPONSE_JOB_SUBJECTS],
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
            max_bytes=RESPONSE_JOB_BYTES,
            storage=StorageType.FILE,
            num_replicas=replicas,
        ),
    )
    await jetstream.add_consumer(
        response_keys.RESPONSE_JOB_STREAM,
        ConsumerConfig(
            durable_name=response_keys.RESPONSE_RUNNERS,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            # Unlimited, because the gateway counts the attempts in the response log.
            max_deliver=-1,
            max_ack_pending=10_000,
        ),
    )
    return jetstream
