"""A backup of an installation with a real NATS server."""

from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

from causeway.cli.backup.folder import Folder, SavedIndex
from causeway.cli.backup.indexes import RetrieverIndexes
from causeway.cli.backup.installation import Installation
from causeway.cli.backup.saving import save
from causeway_testing.servers import nats_server
from servicekit.errors import NotFound
from servicekit.nats import connect


async def test_an_index_may_be_deleted_during_the_backup(tmp_path: Path) -> None:
    """The backup leaves out an index that is deleted after it was listed, and contains the others."""

    async def save_index(tenant: str, name: str, folder: Folder, file: str) -> SavedIndex:
        if name == "deleted":
            raise NotFound("No such index.")
        return SavedIndex(tenant=tenant, name=name, manifest="{}", part=await folder.write(file, points()))

    async def points() -> Any:
        yield b"points"

    indexes = create_autospec(RetrieverIndexes, instance=True)
    indexes.names.return_value = [("a", "deleted"), ("a", "kept")]
    indexes.save.side_effect = save_index
    folder, reports = Folder(tmp_path / "backup"), list[str]()
    async with nats_server(tmp_path / "nats") as url:
        client = await connect(url, "operator")
        contents = await save(Installation(client, indexes, may_have_workers=False), folder, 1, reports.append)
        await client.close()
    assert [index.name for index in contents.indexes] == ["kept"]
    assert folder.read() == contents
    assert "index deleted of tenant a was deleted during the backup" in reports
