from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import nats.js.errors
import pytest
import trustme
from causeway_testing.servers import nats_server
from nats.aio.client import Client
from nats.js.api import StreamSource
from servicekit import buckets, keys, response_keys
from servicekit import nats as transport
from servicekit.permissions import USERS, authorization
from servicekit.tls import Certificates

JOBS, RUNNERS = response_keys.RESPONSE_JOB_STREAM, response_keys.RESPONSE_RUNNERS
PASSWORDS = {user: f"secret-of-{user}" for user in USERS}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[str]:
    async with nats_server(tmp_path, passwords=PASSWORDS) as url:
        yield url


async def refused(url: str, user: str, subject: str, *, subscribing: bool = False) -> bool:
    """Return whether the broker refuses a user's message to a subject, or a subscription."""
    refusals: list[str] = []

    async def noted(error: Exception) -> None:
        refusals.append(str(error))

    client = Client()
    await client.connect(url, user=user, password=PASSWORDS[user], error_cb=noted)
    try:
        if subscribing:
            await client.subscribe(subject)
        else:
            await client.publish(subject, b"")
        # A flush sends its ping before the buffered messages, so only the second ping follows the messages.
        await client.flush()
        await client.flush()
    finally:
        await client.close()
    assert all("permissions violation" in refusal.lower() for refusal in refusals), refusals
    return bool(refusals)


PIECE = response_keys.large_response(response_keys.response_key("t", "u", "resp_1"), "1")
LARGE = f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}"
ALLOWED = [
    ("gateway", keys.ingest_subject(0, "t", "i")),
    ("gateway", f"$KV.{keys.HISTORY_BUCKET}.a"),
    ("gateway", f"$KV.{keys.QUOTAS_BUCKET}.a"),
    ("gateway", f"$KV.{keys.LINK_KEYS_BUCKET}.1"),
    ("gateway", f"$KV.{keys.CONTENT_KEYS_BUCKET}.1"),
    ("gateway", response_keys.response_log("t", "u", "resp_1")),
    ("gateway", f"$JS.API.DIRECT.GET.{response_keys.RESPONSE_LOG_STREAM}"),
    ("gateway", PIECE),
    ("gateway", f"$JS.API.STREAM.MSG.GET.{LARGE}"),
    ("gateway", f"$JS.API.STREAM.PURGE.{LARGE}"),
    ("gateway", response_keys.response_job("t", "resp_1")),
    ("gateway", f"$JS.API.CONSUMER.MSG.NEXT.{JOBS}.{RUNNERS}"),
    ("gateway", f"$JS.ACK.{JOBS}.{RUNNERS}.1.1.1.1.0"),
    ("gateway", keys.GATEWAY_BEATS_SUBJECT),
    ("gateway", f"$JS.API.STREAM.PURGE.KV_{keys.PICTURES_BUCKET}"),
    ("ingest", f"$JS.API.CONSUMER.MSG.NEXT.{keys.INGEST_STREAM}.{keys.ingest_consumer(0)}"),
    ("gateway", f"$JS.API.STREAM.UPDATE.{keys.AUDIT_STREAM}"),
    ("ingest", keys.ingest_dead_subject("t", "i")),
    ("ingest", f"$KV.{keys.PICTURES_BUCKET}.a"),
    ("operator", f"$KV.{keys.API_KEYS_BUCKET}.a"),
]
REFUSED = [
    ("ingest", f"$JS.API.DIRECT.GET.KV_{keys.LINK_KEYS_BUCKET}.$KV.{keys.LINK_KEYS_BUCKET}.1"),
    ("ingest", f"$JS.API.DIRECT.GET.KV_{keys.CONTENT_KEYS_BUCKET}.$KV.{keys.CONTENT_KEYS_BUCKET}.1"),
    ("gateway", f"$JS.API.STREAM.UPDATE.KV_{keys.LINK_KEYS_BUCKET}"),
    ("gateway", f"$JS.API.STREAM.UPDATE.KV_{keys.CONTENT_KEYS_BUCKET}"),
    ("gateway", f"$JS.API.CONSUMER.MSG.NEXT.{keys.INGEST_STREAM}.{keys.ingest_consumer(0)}"),
    ("gateway", keys.ingest_dead_subject("t", "i")),
    ("gateway", f"$KV.{keys.API_KEYS_BUCKET}.a"),
    ("gateway", f"$KV.{keys.PICTURES_BUCKET}.a"),
    ("ingest", keys.audit_subject("t", "regex", "block")),
    ("gateway", f"$JS.API.STREAM.DELETE.KV_{keys.HISTORY_BUCKET}"),
    ("gateway", f"$JS.API.STREAM.UPDATE.KV_{keys.API_KEYS_BUCKET}"),
    ("gateway", f"$JS.API.STREAM.PURGE.KV_{keys.API_KEYS_BUCKET}"),
    ("gateway", f"$JS.API.STREAM.MSG.DELETE.KV_{keys.API_KEYS_BUCKET}"),
    ("gateway", f"$JS.API.STREAM.UPDATE.{keys.INGEST_STREAM}"),
    ("ingest", f"$JS.API.STREAM.UPDATE.{keys.INGEST_STREAM}"),
    ("gateway", "anything"),
    ("ingest", keys.ingest_subject(0, "t", "i")),
    ("ingest", f"$KV.{keys.HISTORY_BUCKET}.a"),
    ("ingest", f"$KV.{keys.QUOTAS_BUCKET}.a"),
    ("ingest", response_keys.response_log("t", "u", "resp_1")),
    ("gateway", response_keys.response_live("t", "u", "resp_1")),
    ("ingest", PIECE),
    ("ingest", f"$JS.API.STREAM.MSG.GET.{LARGE}"),
    ("gateway", f"$JS.API.STREAM.UPDATE.{LARGE}"),
    ("ingest", response_keys.response_job("t", "resp_1")),
    ("ingest", f"$JS.API.CONSUMER.MSG.NEXT.{JOBS}.{RUNNERS}"),
    ("ingest", f"$JS.ACK.{JOBS}.{RUNNERS}.1.1.1.1.0"),
    ("ingest", keys.GATEWAY_BEATS_SUBJECT),
    ("gateway", f"$JS.API.STREAM.UPDATE.{JOBS}"),
    ("gateway", f"$JS.API.STREAM.DELETE.{JOBS}"),
    ("gateway", f"$JS.API.STREAM.UPDATE.{response_keys.RESPONSE_LOG_STREAM}"),
    ("ingest", f"$JS.API.DIRECT.GET.KV_{keys.HISTORY_BUCKET}.a"),
    ("ingest", f"$JS.API.STREAM.MSG.GET.KV_{keys.API_KEYS_BUCKET}"),
    ("ingest", f"$JS.API.STREAM.DELETE.{keys.INGEST_STREAM}"),
    # A consumer of a forbidden stream, with the name of one of the user's own streams.
    ("ingest", f"$JS.API.CONSUMER.CREATE.KV_{keys.HISTORY_BUCKET}.{keys.INGEST_STREAM}"),
    ("ingest", f"$JS.API.CONSUMER.CREATE.KV_{keys.API_KEYS_BUCKET}.{keys.INGEST_STREAM}.$KV.>"),
    ("gateway", f"$JS.API.CONSUMER.CREATE.ANOTHER.KV_{keys.JOBS_BUCKET}"),
]


@pytest.mark.parametrize(("user", "subject"), ALLOWED)
async def test_each_user_may_send_to_its_subjects(broker: str, user: str, subject: str) -> None:
    """Each user may send to the subjects that its service needs."""
    assert not await refused(broker, user, subject)


@pytest.mark.parametrize(("user", "subject"), REFUSED)
async def test_no_user_may_send_to_the_subjects_of_others(broker: str, user: str, subject: str) -> None:
    """A service that an attacker controls cannot send beyond its own permissions."""
    assert await refused(broker, user, subject)


@pytest.mark.parametrize("subject", [">", "_INBOX_gateway.>", keys.INGEST_SUBJECTS, "$KV.>"])
async def test_the_ingest_user_cannot_subscribe_to_other_messages(broker: str, subject: str) -> None:
    """The ingest user cannot listen to all messages, to the queue, to the buckets, or to the gateway's answers."""
    assert await refused(broker, "ingest", subject, subscribing=True)


async def test_the_gateway_gets_the_states_of_jobs(broker: str) -> None:
    """The gateway gets changes of jobs and of responses, and no other changes of the buckets."""
    live = response_keys.response_live("t", "u", "resp_1")
    assert not await refused(broker, "gateway", live, subscribing=True)
    assert await refused(broker, "ingest", live, subscribing=True)
    assert not await refused(broker, "gateway", keys.GATEWAY_BEATS_SUBJECT, subscribing=True)
    assert await refused(broker, "ingest", keys.GATEWAY_BEATS_SUBJECT, subscribing=True)
    assert await refused(broker, "gateway", response_keys.RESPONSE_JOB_SUBJECTS, subscribing=True)
    job = f"$KV.{keys.JOBS_BUCKET}.{keys.job_key('t', '1')}"
    assert not await refused(broker, "gateway", job, subscribing=True)
    assert await refused(broker, "gateway", f"$KV.{keys.HISTORY_BUCKET}.a", subscribing=True)


async def test_gateway_and_worker_can_create_the_transport(broker: str) -> None:
    """Gateway and worker can each create the streams and buckets with their own permissions."""
    for user in ("ingest", "gateway"):
        url = broker.replace("nats://", f"nats://{user}:{PASSWORDS[user]}@")
        client = await transport.connect(url, user)
        try:
            made = await transport.ingest_transport(client)
            await made.jobs.put("a", b"1")
            assert (await made.jobs.get("a")).value == b"1"
        finally:
            await client.close()


async def test_a_certificate_names_its_user(tmp_path: Path) -> None:
    """With certificates the same permissions apply, and a client without a certificate is refused."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    for name in ("127.0.0.1", "gateway"):
        issued = authority.issue_cert(name)
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        (tmp_path / f"{name}.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    tls = (
        f'tls {{ cert_file: "{tmp_path}/127.0.0.1.crt", key_file: "{tmp_path}/127.0.0.1.key", '
        f'ca_file: "{tmp_path}/ca.crt", verify_and_map: true }}\n'
    )
    async with nats_server(tmp_path, extra=authorization() + tls) as url:
        certificates = Certificates(tmp_path / "gateway.crt", tmp_path / "gateway.key", tmp_path / "ca.crt")
        client = await transport.connect(url, "gateway", certificates=certificates)
        try:
            await buckets.history_bucket(client)
            with pytest.raises(nats.errors.TimeoutError):
                await client.request(f"$JS.API.STREAM.DELETE.KV_{keys.HISTORY_BUCKET}", timeout=0.2)
        finally:
            await client.close()
        with pytest.raises((OSError, nats.errors.Error)):
            await transport.connect(url, "gateway", connect_timeout=0.5)


async def test_a_service_cannot_copy_a_forbidden_stream(broker: str) -> None:
    """A service cannot read a forbidden stream by copying it into a stream that it may read."""
    for user in ("gateway", "ingest"):
        client = await transport.connect(broker.replace("//", f"//{user}:{PASSWORDS[user]}@"), user)
        try:
            if user == "gateway":
                await (await buckets.history_bucket(client)).put("a", b"said in confidence")
            await transport.ingest_transport(client)
            jetstream = client.jetstream(timeout=1)
            config = (await jetstream.stream_info(keys.INGEST_STREAM)).config
            config.sources = [StreamSource(name=f"KV_{keys.HISTORY_BUCKET}")]
            with pytest.raises((nats.errors.Error, nats.js.errors.Error)):
                await jetstream.update_stream(config)
        finally:
            await client.close()
