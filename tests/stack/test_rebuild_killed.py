"""A retriever that is killed while it rebuilds an index loses no data, and completes the rebuild after a
restart.
"""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.query import Mode, Query
from retriever.indexes.rebuild_jobs import RebuildState
from retriever.stores.edge.store import EdgeStore
from servicekit.principal import LOCAL

REBUILDING_WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
import structlog
from causeway_testing.embedding import HashingEmbedder
from retriever.domain.document import Document
from retriever.domain.index import IndexSettings
from retriever.concurrency.scheduler import Scheduler
from retriever.stores.edge.store import EdgeStore
from causeway_testing.retriever.bench import INDEX, Bench
from servicekit.errors import CausewayError
from servicekit.principal import LOCAL

directory, stage = sys.argv[1:]
begun = False

def die(_logger, _method, event):
    if begun and event.get("stage") == stage:
        os.kill(os.getpid(), signal.SIGKILL)
    raise structlog.DropEvent

async def main():
    global begun
    structlog.configure(processors=[die])
    bench = await Bench.open(EdgeStore(Path(directory), Scheduler()))

    async def put(name, generation):
        texts = [f"ferry {name} {generation} {number}" for number in range(30)]
        await bench.put(Document(name, generation=generation), texts)
        print(name, generation, flush=True)

    for number in range(8):
        await put(f"d{number}", 1)
    begun = True
    await bench.rebuilds(HashingEmbedder(32)).begin(LOCAL, INDEX, "hashed-words-32", IndexSettings())
    generation = 1
    while True:
        generation += 1
        for number in range(4):
            try:
                await put(f"d{number}", generation)
            except CausewayError:
                await asyncio.sleep(0.05)  # the index already has the vectors of the new model
        await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.mark.parametrize("stage", ["copying", "pausing", "replacing", "publishing", "published", "replaced"])
async def test_killed_while_rebuilding(tmp_path: Path, stage: str) -> None:
    """After a kill at any stage, each acknowledged document exists in exactly one version. The next start completes
    the rebuild and deletes all temporary files.
    """
    directory = tmp_path / "store"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REBUILDING_WRITER, directory, stage, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(120):
        lines = (await process.stdout.read()).decode().splitlines()
    assert await process.wait() == -signal.SIGKILL
    acknowledged = {name: int(generation) for name, generation in (line.split() for line in lines)}
    assert len(acknowledged) == 8

    bench = await Bench.open(EdgeStore(directory, Scheduler()))
    new = HashingEmbedder(32)
    rebuilds = bench.rebuilds(new)
    rebuilds.resume()
    async with asyncio.timeout(60):
        while (await rebuilds.last(LOCAL, INDEX)).state is RebuildState.RUNNING:  # noqa: ASYNC110  # there is no event for this
            await asyncio.sleep(0.05)
    assert (await rebuilds.last(LOCAL, INDEX)).state is RebuildState.SUCCEEDED
    await rebuilds.aclose()
    assert (await bench.catalogue.index(LOCAL, INDEX)).embedding_model == new.model
    retrieval = bench.retrieval_with(new)
    for name, generation in acknowledged.items():
        stored = (await bench.catalogue.document(LOCAL, INDEX, name)).generation
        assert stored >= generation
        query = Query(indexes=(INDEX,), text=f"ferry {name}", mode=Mode.VECTORS, top=1000)
        passages = (await retrieval.retrieve(LOCAL, query)).passages
        document_passages = [passage.text for passage in passages if passage.document.document_id == name]
        assert sorted(document_passages) == sorted(f"ferry {name} {stored} {number}" for number in range(30))
    await bench.aclose()
    (collection,) = [path for path in directory.iterdir() if path.is_dir() and not path.name.startswith(".")]
    assert len([path for path in collection.iterdir() if path.is_dir()]) == 1
