import asyncio
import json

from nats.aio.client import Client
from servicekit import keys
from servicekit.record_streams import horizon, record_streams, trim
from structlog.testing import capture_logs

MEBI = 1024 * 1024
DAY = 86400


async def fill(client: Client, tenant: str, verdict: str, count: int, size: int = 400) -> None:
    """Write numbered records of the audit."""
    jetstream = client.jetstream()
    subject = keys.audit_subject(tenant, "regex", verdict)
    payloads = [json.dumps({"number": number, "padding": "x" * size}).encode() for number in range(count)]
    for at in range(0, count, 100):
        await asyncio.gather(*(jetstream.publish(subject, payload) for payload in payloads[at : at + 100]))


async def test_existing_streams_get_their_limits(client: Client) -> None:
    """Records stay when the bytes and days of their stream change. Each of the two streams has its own bytes."""
    jetstream = await record_streams(client, days=10, usage_bytes=MEBI, audit_bytes=MEBI)
    await jetstream.publish(keys.usage_subject("north"), b"{}")
    await record_streams(client, days=20, usage_bytes=2 * MEBI, audit_bytes=3 * MEBI)
    usage = await jetstream.stream_info(keys.USAGE_STREAM)
    audit = await jetstream.stream_info(keys.AUDIT_STREAM)
    assert (usage.config.max_bytes, usage.config.max_age, usage.state.messages) == (2 * MEBI, 20 * DAY, 1)
    assert (audit.config.max_bytes, audit.config.max_age) == (3 * MEBI, 20 * DAY)
    assert audit.config.duplicate_window == 120


async def test_a_short_retention_is_logged(client: Client) -> None:
    """Once the rate is known, the start reports for how many days the bytes suffice and how many are needed."""
    with capture_logs() as logs:
        jetstream = await record_streams(client, usage_bytes=MEBI, audit_bytes=MEBI)
        assert await horizon(jetstream, await jetstream.stream_info(keys.AUDIT_STREAM)) == 365 * DAY
        await fill(client, "north", "block", 500)
        await record_streams(client, usage_bytes=MEBI, audit_bytes=MEBI)
    [warning] = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (warning["stream"], warning["setting"]) == (keys.AUDIT_STREAM, "CAUSEWAY_AUDIT_BYTES")
    assert warning["days"] < 1
    assert warning["needed_bytes"] > 365 * MEBI


async def test_a_tenant_that_floods_the_audit_leaves_anothers_readable(client: Client) -> None:
    """A stream that gets full drops the oldest records of the tenant with most records, and of no other tenant."""
    jetstream = await record_streams(client, usage_bytes=MEBI, audit_bytes=MEBI)
    await fill(client, "quiet", "block", 50)
    for _ in range(4):
        for verdict in ("block", "redact"):
            await fill(client, "loud", verdict, 250)
        await trim(jetstream, keys.AUDIT_STREAM)
    info = await jetstream.stream_info(keys.AUDIT_STREAM, subjects_filter=">")
    assert (info.state.subjects or {})[keys.audit_subject("quiet", "regex", "block")] == 50
    assert info.state.bytes <= 0.9 * MEBI
    newest = await jetstream.get_last_msg(keys.AUDIT_STREAM, keys.audit_subject("loud", "regex", "redact"))
    assert json.loads(newest.data or b"")["number"] == 249


async def test_one_tenant_keeps_the_newest_records(client: Client) -> None:
    """No record is dropped before the stream is nearly full. Then a fifth of the stream becomes free."""
    jetstream = await record_streams(client, usage_bytes=MEBI, audit_bytes=MEBI)
    await fill(client, "only", "block", 1000)
    await trim(jetstream, keys.AUDIT_STREAM)
    assert (await jetstream.stream_info(keys.AUDIT_STREAM)).state.messages == 1000
    await fill(client, "only", "block", 1000)
    await trim(jetstream, keys.AUDIT_STREAM)
    state = (await jetstream.stream_info(keys.AUDIT_STREAM)).state
    assert 0.75 * MEBI < state.bytes <= 0.81 * MEBI
