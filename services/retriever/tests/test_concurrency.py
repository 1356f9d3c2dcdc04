"""Concurrent readers and writers get consistent results, and the event loop is never blocked for long."""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable

import pytest
from causeway_testing.retriever.bench import INDEX, Bench, steps
from retriever.domain.changes import Commit, UpsertStep
from retriever.domain.document import Document
from retriever.domain.query import Mode
from servicekit.principal import LOCAL

pytestmark = pytest.mark.slow

MAX_WORK_SECONDS = 0.5  # CPU seconds of the event loop's thread between two iterations; measured 0.01 to 0.1


async def test_replacing_while_searching(bench: Bench) -> None:
    """While documents are replaced, each search finds all chunks of exactly one version."""
    sizes = [20 + 30 * (generation % 3) for generation in range(10)]
    searches = 0

    async def put(name: str, index: str, generation: int) -> None:
        texts = [f"ferry {name} {generation} {number}" for number in range(sizes[generation])]
        await bench.put(Document(name, generation=generation), texts, index=index)

    async def replace(name: str, index: str) -> None:
        for generation in range(1, len(sizes)):
            await put(name, index, generation)

    async def search(mode: Mode) -> None:
        nonlocal searches
        while not writing.done():
            passages = await bench.ask("ferry", mode=mode, top=1000, indexes=(INDEX, "other"))
            for index, name in ((INDEX, "a"), ("other", "b")):
                mine = [passage for passage in passages if passage.index == index]
                (generation,) = {passage.document.generation for passage in mine}
                assert [int(passage.text.split()[2]) for passage in mine] == [generation] * sizes[generation]
                assert {passage.document.document_id for passage in mine} == {name}
            searches += 1
            await asyncio.sleep(0)

    await put("a", INDEX, 0)
    await put("b", "other", 0)

    async def replace_both() -> None:
        await asyncio.gather(replace("a", INDEX), replace("b", "other"))

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(replace_both())
        for mode in Mode:
            tasks.create_task(search(mode))
    assert searches >= 10


@contextlib.asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """Collect the CPU seconds of the loop's thread between two iterations."""
    gaps: list[float] = []

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    # In a long run, collecting the garbage of earlier tests between two iterations takes up to half a second.
    gc.collect()
    gc.freeze()
    task = asyncio.create_task(watch())
    try:
        yield gaps
    finally:
        task.cancel()
        gc.unfreeze()


async def test_searches_continue_during_upserts(
    edge_bench: Bench, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """While eight documents of 200 chunks are stored, searches succeed, and the loop is never blocked for long."""
    bench = edge_bench
    await bench.put(Document("first", generation=1), [f"ferry number {number}" for number in range(500)])
    busy: list[float] = []

    async def search() -> float:
        begin = time.perf_counter()
        assert len(await bench.ask("ferry number 7")) == 10
        return time.perf_counter() - begin

    idle = [await search() for _ in range(30)]
    texts = [f"{' '.join(f'word{word * number}' for word in range(100))} bridge" for number in range(200)]
    chunks = await bench.chunks(texts)
    messages: list[UpsertStep] = [
        *(chunks[start : start + 64] for start in range(0, len(chunks), 64)),
        Commit(len(chunks)),
    ]
    begins = [bench.begin(Document(f"d{number}", generation=1)) for number in range(8)]
    async with watched_loop() as gaps:
        writing = asyncio.ensure_future(
            asyncio.gather(*(bench.upserts.upsert(steps(begin, *messages)) for begin in begins))
        )
        while not writing.done():
            busy.append(await search())
            await asyncio.sleep(0)  # the next call of a client needs an iteration of the loop
        await writing
    busy.sort()
    record_testsuite_property("search_p50_idle_ms", sorted(idle)[len(idle) // 2] * 1000)
    record_testsuite_property("search_p50_busy_ms", busy[len(busy) // 2] * 1000)
    record_testsuite_property("search_p99_busy_ms", busy[int(len(busy) * 0.99)] * 1000)
    record_testsuite_property("longest_gap_ms", max(gaps) * 1000)
    assert max(gaps) < MAX_WORK_SECONDS
    assert len(busy) > 20
    (summary,) = await bench.catalogue.indexes(LOCAL)
    assert summary.documents == 9


async def test_searches_continue_during_a_compaction(
    edge_bench: Bench, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Searches succeed during a compaction with concurrent writes."""
    bench = edge_bench
    for number in range(20):
        await bench.put(Document(f"d{number}", generation=1), [f"ferry {number} {part}" for part in range(60)])

    async def search() -> float:
        begin = time.perf_counter()
        assert len(await bench.ask("ferry 7")) == 10
        return time.perf_counter() - begin

    async def write() -> None:
        number = 0
        while not compacting.done():
            number += 1
            await bench.put(Document(f"e{number}", generation=1), [f"bridge {number} {part}" for part in range(5)])

    idle = sorted([await search() for _ in range(100)])
    compacting = asyncio.create_task(bench.catalogue.compact(LOCAL, INDEX))
    writing = asyncio.create_task(write())
    busy: list[float] = []
    while not writing.done():
        busy.append(await search())
        await asyncio.sleep(0)
    await asyncio.gather(compacting, writing)
    busy.sort()
    record_testsuite_property("search_p99_idle_ms", idle[98] * 1000)
    record_testsuite_property("search_p99_compacting_ms", busy[int(len(busy) * 0.99)] * 1000)
    assert len(busy) > 20
