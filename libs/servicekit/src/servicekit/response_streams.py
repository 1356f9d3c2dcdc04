"""The stream of the events of stored responses."""

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RePublish, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from servicekit import keys
from servicekit.stream_room import RESPONSE_LOG_BYTES, set_aside


async def response_log(
    client: Client, *, replicas: int = 1, days: float = 30, size: int = RESPONSE_LOG_BYTES
) -> JetStreamContext:
    """Makes the stream of the logs of responses where it is missing, and returns what writes to it.

    A log is a subject. Readers hear what NATS sends again once it is stored, and so nothing that it refused.

    Args:
        client: A connection.
        replicas: Copies of everything stored; 3 in production.
        days: How long an event is kept.
        size: Most bytes of it. The server sets them aside at once.

    Raises:
        Unavailable: It does not have as many.
    """
    jetstream = client.jetstream(timeout=2)
    try:
        await jetstream.stream_info(keys.RESPONSE_LOG_STREAM)
    except NotFoundError:
        with set_aside(keys.RESPONSE_LOG_STREAM, size, "CAUSEWAY_RESPONSE_LOG_BYTES"):
            await jetstream.add_stream(
                StreamConfig(
                    name=keys.RESPONSE_LOG_STREAM,
                    subjects=[keys.RESPONSE_LOG_SUBJECTS],
                    max_bytes=size,
                    max_age=days * 86400,
                    discard=DiscardPolicy.OLD,
                    storage=StorageType.FILE,
                    num_replicas=replicas,
                    # A tombstone takes the place of a log in one step.
                    allow_rollup_hdrs=True,
                    allow_msg_ttl=True,
                    allow_direct=True,
                    deny_delete=True,
                    republish=RePublish(src=keys.RESPONSE_LOG_SUBJECTS, dest=keys.RESPONSE_LIVE_SUBJECTS),
                )
            )
    return jetstream
