from pathlib import Path

import nats.js.errors
import pytest
from causeway_testing.servers import nats_server
from nats.js import JetStreamContext
from servicekit import buckets, keys
from servicekit import nats as transport
from servicekit.errors import Unavailable
from servicekit.record_streams import record_streams
from servicekit.stream_limits import is_full

MEBI = 1024 * 1024


def small(directory: Path, size: int) -> str:
    """Return the configuration of a server with a given number of bytes."""
    return f'jetstream {{ store_dir: "{directory}", max_file_store: {size}, max_memory_store: 64MB }}\n'


async def filled(jetstream: JetStreamContext, subject: str) -> None:
    for _ in range(200):
        await jetstream.publish(subject, bytes(100_000))


async def test_a_server_without_space_is_reported(tmp_path: Path) -> None:
    """If the streams need more space than the server has, the error names them, their size and the setting. If
    they need less, all are created.
    """
    async with nats_server(tmp_path / "nats", extra=small(tmp_path / "js", 20 * MEBI)) as url:
        client = await transport.connect(url, "test")
        for make in (transport.ingest_transport, buckets.history_bucket):
            with pytest.raises(Unavailable, match="CAUSEWAY_NATS_STREAM_BYTES"):
                await make(client)
            await make(client, stream_bytes=2 * MEBI)
        for setting in ("usage_bytes", "audit_bytes"):
            with pytest.raises(Unavailable, match=f"CAUSEWAY_{setting.upper()}"):
                await record_streams(client, **{"usage_bytes": MEBI, "audit_bytes": MEBI, setting: 100 * MEBI})
        await client.close()


async def test_a_full_stream_is_detected(tmp_path: Path) -> None:
    """A stream at its limit counts as full, and so does a server. Other errors do not."""
    async with nats_server(tmp_path / "nats", extra=small(tmp_path / "js", 8 * MEBI)) as url:
        client = await transport.connect(url, "test")
        ingest = await transport.ingest_transport(client, stream_bytes=MEBI)
        subject = keys.ingest_subject(0, "acme", "docs")
        with pytest.raises(nats.js.errors.APIError) as of_stream:
            await filled(ingest.jetstream, subject)
        with pytest.raises(nats.js.errors.APIError) as of_server:
            await filled(ingest.jetstream, f"$O.{keys.ORIGINALS_BUCKET}.C.x")
        assert is_full(of_stream.value)
        assert is_full(of_server.value)
        with pytest.raises(nats.js.errors.NotFoundError) as other:
            await ingest.jetstream.stream_info("none")
        assert not is_full(other.value)
        assert not is_full(ValueError())
        await client.close()
