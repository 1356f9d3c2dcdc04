"""The commands of docs/qdrant.md are requests of the server's HTTP interface, as its client sends them."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from causeway_testing.retriever.qdrant import serving
from causeway_testing.retriever.qdrant_stores import SPEC
from qdrant_client import AsyncQdrantClient, models
from retriever.domain.document import Document
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore

PAGE = Path(__file__).resolve().parents[5] / "docs" / "qdrant.md"


class Request(NamedTuple):
    """A request over HTTP."""

    method: str
    url: str
    body: Any


def documented(path: str, **values: str) -> Request:
    """Return the command of the page whose URL has a path, with values in place of the names in capitals."""
    commands = re.findall(r"^curl (?:.*\\\n)*.*$", PAGE.read_text(), re.MULTILINE)
    [command] = [command for command in commands if path in command]
    for name, value in values.items():
        command, count = re.subn(rf"\b{name}\b", value, command)
        assert count == 1, name
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:2] == ["curl", "-X"]
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    assert body is None or words[words.index("-H") + 1] == "content-type: application/json"
    [url] = [word for word in words if word.startswith("http://")]
    return Request(words[2], url.replace("NODE", "127.0.0.1"), body)


class Sent:
    """Records the requests that the server's client sends."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.client = AsyncQdrantClient(
            "http://127.0.0.1:6333", check_compatibility=False, transport=httpx.MockTransport(self._take)
        )

    def _take(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.requests.append(Request(request.method, str(request.url), body))
        is_count = request.url.path.endswith("/count")
        return httpx.Response(200, json={"result": {"count": 1} if is_count else True, "status": "ok", "time": 0.0})


async def test_the_commands_after_the_loss_of_a_disk() -> None:
    """The commands remove the old node and copy a shard to the new one."""
    sent = Sent()
    await sent.client.remove_peer(7, force=True)
    copied = models.ReplicateShard(shard_id=2, from_peer_id=8, to_peer_id=9)
    await sent.client.cluster_collection_update("notes", models.ReplicateShardOperation(replicate_shard=copied))
    assert sent.requests == [
        documented("/cluster/peer/", OLD="7"),
        documented("/cluster -H", NAME="notes", SHARD="2", GOOD="8", NEW="9"),
    ]
    await sent.client.close()


async def test_the_commands_for_an_alias_without_points() -> None:
    """The commands count the documents of an incarnation, point an alias to it, and delete an alias."""
    async with serving() as server:
        store = await QdrantStore.open(Connection.from_url(server.url, None, 5.0), Layout(shared=True))
        collection = await store.create(SPEC)
        await collection.put_record(Document("d", generation=1))
        name, alias = collection.location.name, collection.location.alias
        wrong = f"{alias.rpartition('.')[0]}.{'0' * 32}"
        creation = models.CreateAlias(collection_name=name, alias_name=wrong)
        await server.client.update_collection_aliases([models.CreateAliasOperation(create_alias=creation)])
        sent = Sent()
        count = documented("/points/count", COLLECTION=name, INCARNATION=alias.rpartition(".")[2])
        rename = documented('"rename_alias"', ALIAS=wrong, CANDIDATE=alias)
        delete = documented('"delete_alias"', ALIAS=alias)
        counted = models.CountRequest.model_validate(count.body)
        renamed = models.ChangeAliasesOperation.model_validate(rename.body)
        deleted = models.ChangeAliasesOperation.model_validate(delete.body)
        await sent.client.count(name, counted.filter)
        await sent.client.update_collection_aliases(renamed.actions)
        await sent.client.update_collection_aliases(deleted.actions)
        assert [request._replace(body=None) for request in sent.requests] == [
            request._replace(body=None) for request in (count, rename, delete)
        ]
        assert [request.body for request in sent.requests[1:]] == [rename.body, delete.body]
        # The requests work on the stand-in for the server.
        assert (await server.client.count(name, counted.filter)).count == 1
        await server.client.update_collection_aliases(renamed.actions)
        assert await collection.is_current()
        await server.client.update_collection_aliases(deleted.actions)
        assert (await server.client.get_aliases()).aliases == []
        await sent.client.close()
        await store.aclose()
