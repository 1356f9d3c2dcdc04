"""The restore of a backup into a real NATS server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from causeway.cli.backup import streams
from causeway.cli.backup.folder import Contents, Folder
from causeway.cli.backup.indexes import RetrieverIndexes
from causeway.cli.backup.installation import Installation
from causeway.cli.backup.restoring import restore
from causeway.cli.errors import CommandError
from causeway_testing.servers import nats_server
from servicekit import keys
from servicekit.nats import connect


async def test_an_installation_without_requests_is_empty(tmp_path: Path) -> None:
    """The first gateway of a new installation writes a key for encrypted contents. A restore replaces this key. It
    refuses an installation with an API key, or with running gateways.
    """
    folder = Folder(tmp_path / "backup")
    folder.begin()
    async with nats_server(tmp_path / "nats") as url:
        client = await connect(url, "operator")
        jetstream = client.jetstream()
        content_keys = await jetstream.create_key_value(bucket=keys.CONTENT_KEYS_BUCKET)
        await content_keys.put("1", b"key in the backup")
        saved = await streams.save(client, f"KV_{keys.CONTENT_KEYS_BUCKET}", folder)
        folder.end(Contents(created_at=datetime.now(UTC), streams=[saved], indexes=[]))
        await content_keys.put("1", b"key of the new installation")
        indexes = create_autospec(RetrieverIndexes, instance=True)
        indexes.names.return_value = []
        installation = Installation(client, indexes, may_have_workers=True)
        await restore(installation, folder, None, lambda _: None)
        assert (await content_keys.get("1")).value == b"key in the backup"
        watcher: Any = await content_keys.watchall()  # as a gateway does
        with pytest.raises(CommandError, match="gateways are running"):
            await restore(installation, folder, None, lambda _: None)
        await watcher.stop()
        await (await jetstream.create_key_value(bucket=keys.API_KEYS_BUCKET)).put("1", b"key")
        with pytest.raises(CommandError, match=r"messages in KV_causeway-api-keys;"):
            await restore(installation, folder, None, lambda _: None)
        await client.close()
