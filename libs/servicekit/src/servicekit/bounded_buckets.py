"""Key-value buckets with size limits for sessions, stored responses and periodically renewed keys."""

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, KeyValueConfig, StorageType, StreamConfig
from nats.js.errors import BucketNotFoundError
from nats.js.kv import KeyValue

from servicekit import keys, response_keys
from servicekit.stream_limits import MEMORY_BYTES, RESPONSE_BYTES, STREAM_SETTING, space_reserved


async def memory_bucket(client: Client, *, replicas: int = 1, hours: float = 24) -> KeyValue:
    """Return the bucket of the conversation memory; create it if it is missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        hours: Hours from a session's last turn to its deletion.

    Raises:
        Unavailable: The server does not have enough space.
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
    """Return the bucket of responses and conversations; create it if it is missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        days: Days from a response's last change to its deletion.
        size: Size limit in bytes. The server reserves this space at creation.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=2)
    try:
        return await jetstream.key_value(response_keys.RESPONSES_BUCKET)
    except BucketNotFoundError:
        setting = "CAUSEWAY_RESPONSE_BYTES"
        await _make_bucket(jetstream, response_keys.RESPONSES_BUCKET, size, days * 86400, replicas, setting)
        return await jetstream.key_value(response_keys.RESPONSES_BUCKET)


async def _make_bucket(
    jetstream: JetStreamContext, name: str, size: int, seconds: float, replicas: int, setting: str = STREAM_SETTING
) -> None:
    """Create a bucket that drops its oldest entries when it is full.

    The client's own method creates buckets that refuse new entries when they are full.

    Args:
        jetstream: The JetStream context.
        name: The name of the bucket.
        size: Size limit in bytes.
        seconds: Seconds until an entry is deleted.
        replicas: Number of replicas.
        setting: The variable with the size, for the error message.
    """
    with space_reserved(name, size, setting):
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
    """Return a bucket of keys that are renewed at intervals; create it if it is missing.

    Args:
        client: A connection.
        bucket: The name of the bucket.
        replicas: Number of replicas; 3 in production.
        hours: Hours until a key is deleted.
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
