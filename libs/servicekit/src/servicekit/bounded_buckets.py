"""Key-value buckets with limits: sessions and responses, whose oldest entries go; keys that change with time."""

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, KeyValueConfig, StorageType, StreamConfig
from nats.js.errors import BucketNotFoundError
from nats.js.kv import KeyValue

from servicekit import keys
from servicekit.stream_room import MEMORY_BYTES, RESPONSE_BYTES, STREAM_SETTING, set_aside


async def memory_bucket(client: Client, *, replicas: int = 1, hours: float = 24) -> KeyValue:
    """Makes the bucket of the conversations' memory where it is missing, and returns a handle of it.

    Args:
        client: A connection.
        replicas: Copies of everything stored; 3 in production.
        hours: How long a session is remembered after its last turn.
    """
    jetstream = client.jetstream(timeout=2)
    try:
        return await jetstream.key_value(keys.MEMORY_BUCKET)
    except BucketNotFoundError:
        await _make_bucket(jetstream, keys.MEMORY_BUCKET, MEMORY_BYTES, hours * 3600, replicas)
        return await jetstream.key_value(keys.MEMORY_BUCKET)


async def responses_bucket(
    client: Client, *, replicas: int = 1, days: float = 30, size: int = RESPONSE_BYTES
) -> KeyValue:
    """Makes the bucket of responses and conversations where it is missing, and returns a handle of it.

    Args:
        client: A connection.
        replicas: Copies of everything stored; 3 in production.
        days: How long a response is kept after it was last written.
        size: Most bytes of it. The server sets them aside at once.

    Raises:
        Unavailable: It does not have as many.
    """
    jetstream = client.jetstream(timeout=2)
    try:
        return await jetstream.key_value(keys.RESPONSES_BUCKET)
    except BucketNotFoundError:
        setting = "CAUSEWAY_RESPONSE_BYTES"
        await _make_bucket(jetstream, keys.RESPONSES_BUCKET, size, days * 86400, replicas, setting)
        return await jetstream.key_value(keys.RESPONSES_BUCKET)


async def _make_bucket(
    jetstream: JetStreamContext, name: str, size: int, seconds: float, replicas: int, setting: str = STREAM_SETTING
) -> None:
    """Makes a bucket as the client makes them, but that the oldest entries go where it is full.

    Args:
        jetstream: Makes it.
        name: Its name.
        size: Most bytes of it.
        seconds: How long an entry is kept.
        replicas: Copies of everything stored.
        setting: The setting that has its size.
    """
    with set_aside(name, size, setting):
        await jetstream.add_stream(
            StreamConfig(
                name=f"KV_{name}",
                subjects=[f"$KV.{name}.>"],
                max_msgs_per_subject=1,
                max_bytes=size,
                max_age=seconds,
                discard=DiscardPolicy.OLD,
                storage=StorageType.FILE,
                num_replicas=replicas,
                allow_rollup_hdrs=True,
                allow_direct=True,
                allow_msg_ttl=True,
                deny_delete=True,
            )
        )


async def period_keys_bucket(client: Client, bucket: str, *, replicas: int = 1, hours: float) -> KeyValue:
    """Make a bucket of keys that change with time where it is missing, and return a handle of it.

    Args:
        client: A connection.
        bucket: Its name.
        replicas: Copies of everything stored; 3 in production.
        hours: How long a key is kept.
    """
    jetstream = client.jetstream(timeout=2)
    try:
        return await jetstream.key_value(bucket)
    except BucketNotFoundError:
        return await jetstream.create_key_value(
            KeyValueConfig(
                bucket=bucket,
                history=1,
                ttl=hours * 3600,
                max_bytes=1024 * 1024,
                storage=StorageType.FILE,
                replicas=replicas,
            )
        )
