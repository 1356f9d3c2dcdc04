"""Backups of the streams of a real NATS server, and the pause of ingest during a backup."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats.errors
import pytest
from causeway.cli.backup import pause, streams
from causeway.cli.backup.folder import Contents, Folder, Part
from causeway.cli.errors import CommandError, UsageError
from causeway_testing.servers import nats_server
from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig
from servicekit import keys
from servicekit.nats import connect, ingest_transport

MEGABYTE = 1024 * 1024
NAME = keys.INGEST_STREAM


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Yield the operator's connection to an empty server."""
    async with nats_server(tmp_path / "nats") as url:
        connected = await connect(url, "operator")
        yield connected
        await connected.close()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Create an empty folder of a backup."""
    created = Folder(tmp_path / "backup")
    created.begin()
    return created


async def test_a_restored_stream_has_its_sequence_numbers(client: Client, folder: Folder) -> None:
    """A restored stream has the same messages, sequence numbers, gaps and configuration. A restore does not replace
    an existing stream.
    """
    jetstream = client.jetstream()
    await jetstream.add_stream(StreamConfig(name="CAUSEWAY_TRY", subjects=["try.>"]))
    for number in range(6):
        await jetstream.publish(f"try.{number}", bytes([number]) * 300_000)
    await jetstream.delete_msg("CAUSEWAY_TRY", 2)
    before = await jetstream.stream_info("CAUSEWAY_TRY")
    saved = await streams.save(client, "CAUSEWAY_TRY", folder)
    assert saved.messages == 5
    await jetstream.delete_stream("CAUSEWAY_TRY")
    await streams.restore(client, saved, folder, replicas=None)
    after = await jetstream.stream_info("CAUSEWAY_TRY")
    assert (after.state.first_seq, after.state.last_seq, after.state.messages) == (1, 6, 5)
    assert after.config == before.config
    for number in (0, 2, 3, 4, 5):
        assert (await jetstream.get_msg("CAUSEWAY_TRY", number + 1)).data == bytes([number]) * 300_000
    await jetstream.publish("try.later", b"later")
    with pytest.raises(CommandError, match="CAUSEWAY_TRY"):
        await streams.restore(client, saved, folder, replicas=None)
    assert (await jetstream.stream_info("CAUSEWAY_TRY")).state.last_seq == 7


async def test_foreign_and_temporary_streams_are_left_out(client: Client) -> None:
    """A backup leaves out streams in memory, the quotas, the keys of links, and streams of other programs."""
    jetstream = client.jetstream()
    for name, storage in (
        ("CAUSEWAY_KEPT", StorageType.FILE),
        ("CAUSEWAY_IN_MEMORY", StorageType.MEMORY),
        (f"KV_{keys.QUOTAS_BUCKET}", StorageType.FILE),
        (f"KV_{keys.LINK_KEYS_BUCKET}", StorageType.FILE),
        ("OTHERS", StorageType.FILE),
    ):
        await jetstream.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], storage=storage))
    assert [stream.config.name for stream in await streams.list_streams(client)] == ["CAUSEWAY_KEPT"]


async def test_no_job_is_delivered_during_a_pause(client: Client) -> None:
    """During a pause, the queue accepts jobs but does not deliver them. The pause waits for running jobs for at
    most ``max_wait`` seconds.
    """
    await ingest_transport(client, stream_bytes=MEGABYTE)
    jetstream = client.jetstream()
    subject, consumer = keys.ingest_subject(0, "t", "i"), keys.ingest_consumer(0)
    worker = await jetstream.pull_subscribe_bind(consumer, keys.INGEST_STREAM)
    await jetstream.publish(subject, b"first")
    [first] = await worker.fetch(1, timeout=5)
    async with pause.paused(client, max_wait=0.3) as idle:
        assert not idle
        await jetstream.publish(subject, b"second")
        with pytest.raises((TimeoutError, nats.errors.TimeoutError)):
            await worker.fetch(1, timeout=0.5)
    await first.ack_sync()
    [second] = await worker.fetch(1, timeout=5)
    assert second.data == b"second"

    async def end_later() -> None:
        await asyncio.sleep(0.3)  # longer than the first look at the running jobs
        await second.ack_sync()

    ending = asyncio.create_task(end_later())
    async with pause.paused(client, max_wait=60.0) as idle:
        assert idle
        assert ending.done()
    await ending


async def test_waiting_workers_are_detected(client: Client) -> None:
    """`has_waiting_workers` detects waiting workers, because a restore must not run beside them."""
    await ingest_transport(client, stream_bytes=MEGABYTE)
    assert not await pause.has_waiting_workers(client)
    worker = await client.jetstream().pull_subscribe_bind(keys.ingest_consumer(0), keys.INGEST_STREAM)
    fetching = asyncio.create_task(worker.fetch(1, timeout=5))
    while not await pause.has_waiting_workers(client):
        assert not fetching.done()
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)


async def test_pause_without_an_ingest_stream(client: Client) -> None:
    """A pause also works if the ingest stream does not exist yet."""
    async with pause.paused(client, max_wait=1.0) as idle:
        assert idle


async def part_of(folder: Folder, content: bytes) -> Part:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    return await folder.write("1.index", pieces())


async def test_a_complete_folder_is_a_backup(folder: Folder) -> None:
    """A folder without ``backup.json`` is not a backup. `begin` refuses a folder that is not empty. `read` refuses
    changed and missing files.
    """
    with pytest.raises(UsageError, match="no complete backup"):
        folder.read()
    part = await part_of(folder, b"points")
    stream = {"name": NAME, "messages": 0, "configuration": {}, "state": {}, "part": part}
    contents = Contents.model_validate({"created_at": "2026-01-02T03:04:05Z", "streams": [stream], "indexes": []})
    folder.end(contents)
    assert folder.read() == contents
    with pytest.raises(UsageError, match="not empty"):
        folder.begin()
    (folder.path / part.file).write_bytes(b"pointS")
    with pytest.raises(UsageError, match="damaged"):
        folder.read()
    (folder.path / part.file).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        folder.read()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ('{"kind": "causeway-backup", "version": 2, "parts": []}', "has version 2"),
        ('{"kind": "other", "parts": []}', "its kind is 'other'"),
        ('{"parts": []}', "cannot be read"),
    ],
)
def test_a_backup_with_other_members_is_refused(folder: Folder, members: str, message: str) -> None:
    """`read` names the version or the kind of a ``backup.json`` that has other members than this version."""
    (folder.path / "backup.json").write_text(members)
    with pytest.raises(UsageError, match=message):
        folder.read()
