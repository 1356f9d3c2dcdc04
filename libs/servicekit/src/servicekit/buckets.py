"""The key-value buckets of the gateway: chat history, API keys, quotas, sessions, responses, rotated keys."""

from nats.aio.client import Client
from nats.js.api import DiscardPolicy, KeyValueConfig, StorageType, StreamConfig
from nats.js.kv import KeyValue

from servicekit import keys, response_keys
from servicekit.stream_limits import (
    MEMORY_BYTES,
    RESPONSE_BYTES,
    STREAM_BYTES,
    STREAM_SETTING,
    ensure_bucket,
    ensure_stream,
)


async def history_bucket(
    client: Client, *, replicas: int = 1, days: float = 365, stream_bytes: int = STREAM_BYTES
) -> KeyValue:
    """Return the bucket of the chat history; create it if it is missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        days: Days from a conversation's last change to its deletion.
        stream_bytes: Size limit in bytes. The server reserves this space at creation.

    Raises:
        Unavailable: The server does not have enough space.
    """
    jetstream = client.jetstream(timeout=10)
    return await ensure_bucket(
        jetstream,
        KeyValueConfig(
            bucket=keys.HISTORY_BUCKET,
            history=1,
            ttl=days * 86400,
            max_bytes=stream_bytes,
            storage=StorageType.FILE,
            replicas=replicas,
        ),
    )


async def api_keys_bucket(client: Client, *, replicas: int = 1) -> KeyValue:
    """Return the bucket of the API keys; create it if it is missing.

    The keys of the bucket are the ids of `api_keys.ApiKey`, and the values are their records. Entries do not
    expire: lists contain an expired key until it is revoked.
    """
    jetstream = client.jetstream(timeout=10)
    return await ensure_bucket(
        jetstream,
        KeyValueConfig(bucket=keys.API_KEYS_BUCKET, history=1, storage=StorageType.FILE, replicas=replicas),
    )


async def quotas_bucket(client: Client, *, replicas: int = 1) -> KeyValue:
    """Return the bucket of the quotas; create it if it is missing.

    The bucket is in memory, because gateways write it many times a second. After a restart of the server, the
    running gateways write their entries again. Entries expire after 26 hours.
    """
    jetstream = client.jetstream(timeout=2)
    return await ensure_bucket(
        jetstream,
        KeyValueConfig(
            bucket=keys.QUOTAS_BUCKET,
            history=1,
            ttl=26 * 3600,
            max_bytes=64 * 1024 * 1024,
            storage=StorageType.MEMORY,
            replicas=replicas,
        ),
    )


async def memory_bucket(client: Client, *, replicas: int = 1, hours: float = 24) -> KeyValue:
    """Return the bucket of the conversation memory; create it if it is missing.

    Args:
        client: A connection.
        replicas: Number of replicas; 3 in production.
        hours: Hours from a session's last turn to its deletion.

    Raises:
        Unavailable: The server does not have enough space.
    """
    return await _ensure_dropping_bucket(client, keys.MEMORY_BUCKET, MEMORY_BYTES, hours * 3600, replicas)


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
    return await _ensure_dropping_bucket(
        client, response_keys.RESPONSES_BUCKET, size, days * 86400, replicas, "CAUSEWAY_RESPONSE_BYTES"
    )


async def _ensure_dropping_bucket(
    client: Client, name: str, size: int, seconds: float, replicas: int, setting: str = STREAM_SETTING
) -> KeyValue:
    """Return a bucket that drops its oldest entries when it is full; create it if it is missing.

    nats-py's ``create_key_value``, which `ensure_bucket` uses, creates buckets that refuse new entries when they
    are full.

    Args:
        client: A connection.
        name: The name of the bucket.
        size: Size limit in bytes.
        seconds: Seconds until an entry is deleted.
        replicas: Number of replicas.
        setting: The variable with the size, for the error message.
    """
    jetstream = client.jetstream(timeout=2)
    await ensure_stream(
        jetstream,
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
        ),
        setting,
    )
    return await jetstream.key_value(name)


async def period_keys_bucket(client: Client, bucket: str, *, replicas: int = 1, hours: float) -> KeyValue:
    """Return a bucket of rotated keys, which sign links or encrypt contents; create it if it is missing.

    Args:
        client: A connection.
        bucket: The name of the bucket.
        replicas: Number of replicas; 3 in production.
        hours: Hours until a key is deleted.

    Raises:
        Unavailable: The server does not have enough space.
    """
    return await ensure_bucket(
        client.jetstream(timeout=2),
        KeyValueConfig(
            bucket=bucket,
            history=1,
            ttl=hours * 3600,
            max_bytes=1024 * 1024,
            storage=StorageType.FILE,
            replicas=replicas,
        ),
    )
