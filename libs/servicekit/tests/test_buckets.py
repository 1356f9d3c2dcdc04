from nats.aio.client import Client
from nats.js.api import DiscardPolicy, StorageType
from servicekit import buckets, keys

DAY = 86400
GIB = 1024**3


async def test_the_history_is_bounded(client: Client) -> None:
    """A conversation is stored once, for its time, on disk. A second call changes nothing."""
    bucket = await buckets.history_bucket(client, days=7)
    await bucket.put("a", b"1")
    assert (await (await buckets.history_bucket(client, days=9)).get("a")).value == b"1"
    config = (await client.jetstream().stream_info(f"KV_{keys.HISTORY_BUCKET}")).config
    assert (config.max_msgs_per_subject, config.max_age, config.max_bytes) == (1, 7 * DAY, GIB)
    assert (config.storage, config.discard) == (StorageType.FILE, DiscardPolicy.NEW)


async def test_quotas_are_kept_in_memory(client: Client) -> None:
    """Quotas stay a little longer than a day. A second call changes nothing."""
    bucket = await buckets.quotas_bucket(client)
    await bucket.put("a", b"1")
    assert (await (await buckets.quotas_bucket(client)).get("a")).value == b"1"
    config = (await client.jetstream().stream_info(f"KV_{keys.QUOTAS_BUCKET}")).config
    assert config.storage == StorageType.MEMORY
    assert config.max_age is not None
    assert DAY < config.max_age < 2 * DAY
